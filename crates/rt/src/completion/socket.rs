//! The types that operations are handed over for.

use std::io;

use crate::async_fd::AsyncFd;
use crate::io_ref::AsIoRef;
use crate::net::unix::UnixStream;
use crate::net::{StreamSocket, TcpStream};
use crate::short_reads::IoState;

mod sealed {
    pub trait Sealed {
        /// Whether this is a socket, from which bytes are received and not read.
        const SOCKET: bool;
        /// Whether a short count means that there is no more.
        const SHORT_MEANS_BLOCKED: bool;
    }
}

use sealed::Sealed;

/// A stream socket: [`TcpStream`] or [`UnixStream`].
pub trait Socket: Source + Sink + StreamSocket {}

/// A source of bytes: a stream socket, or the reading end of a pipe.
pub trait Source: AsIoRef + Sealed {}

/// A sink of bytes: a stream socket, or the writing end of a pipe.
pub trait Sink: AsIoRef + Sealed {}

macro_rules! ends {
    ($($type:ty: $socket:literal, $short:literal, $($trait:ident)*;)*) => {$(
        impl Sealed for $type {
            const SOCKET: bool = $socket;
            const SHORT_MEANS_BLOCKED: bool = $short;
        }
        $(impl $trait for $type {})*
    )*};
}

ends! {
    TcpStream: true, true, Socket Source Sink;
    // A read ends where descriptors came along, whether or not bytes are behind them.
    UnixStream: true, false, Socket Source Sink;
    AsyncFd<io::PipeReader>: false, true, Source;
    AsyncFd<std::process::ChildStdout>: false, true, Source;
    AsyncFd<std::process::ChildStderr>: false, true, Source;
    AsyncFd<io::PipeWriter>: false, true, Sink;
    AsyncFd<std::process::ChildStdin>: false, true, Sink;
}

/// Returns the state in which a read leaves its source.
pub(super) fn state_after_read<S: Sealed>(done: usize, requested: usize) -> IoState {
    match (S::SHORT_MEANS_BLOCKED, S::SOCKET) {
        (false, _) => IoState::Ready,
        (true, true) => IoState::after(done, requested),
        (true, false) => IoState::after_pipe_read(done, requested),
    }
}
