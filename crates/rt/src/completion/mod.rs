//! Operations that are done when they come back, instead of tried until they are.
//!
//! An async read elsewhere in this crate waits until a descriptor is ready and reads then. The functions here hand
//! the whole operation over, with its memory, and take it back when it is done. On `uring` the kernel carries it
//! out: many are begun and many are fetched with one call of the engine, and none takes a call of its own. On every
//! other back-end, where io_uring is refused and where the kernel does not know an operation, the same is done by
//! readiness: with the same results, in the same order, with the same errors.
//!
//! ```
//! use superpoll_rt::completion::{recv, send_all};
//! use superpoll_rt::net::unix::UnixStream;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! superpoll_rt::Runtime::new()?.block_on(async {
//!     let (one, other) = UnixStream::pair()?;
//!     let (sent, _) = send_all(&one, b"hello".to_vec()).await;
//!     assert_eq!(sent?, 5);
//!     let (received, buffer) = recv(&other, Vec::with_capacity(100)).await;
//!     assert_eq!((received?, &buffer[..]), (5, &b"hello"[..]));
//!     std::io::Result::Ok(())
//! })??;
//! # Ok(())
//! # }
//! ```
//!
//! # Memory
//!
//! A buffer goes along as a `Vec<u8>` and comes back with the result, because the kernel may use it at any time in
//! between. A future that is dropped has the kernel end the operation and waits for that, which is one system call;
//! until then the buffer is the engine's. So nothing is ever written to memory that was given back.
//!
//! # Giving up
//!
//! Each function says what becomes of an operation whose future is dropped. In short: nothing that has arrived is
//! lost. Bytes that were received already are the stream's, and come first in the next read, whichever it
//! is. A connection that was accepted already is the listener's, and comes with its next accept. What was sent
//! cannot be taken back: a send that is given up may have been made, in part or to the end.
//!
//! One receive of a stream at a time: of two, each gets a part of the bytes, and which of them came first cannot be
//! said afterwards.
//!
//! # Engines
//!
//! An operation belongs to the engine on which it was first polled. A future that is polled on another one, or whose
//! engine has ended, goes on where it is polled.
//!
//! # What is left to readiness
//!
//! There is no [`splice`](crate::transfer::splice) here: the kernel gives each one that comes through a ring to a worker
//! thread, where it does not wait for descriptors that are non-blocking, as all of this crate are. Listeners that
//! [wait exclusively](crate::net::ListenOptions::exclusive) accept by readiness, because taking turns is a matter
//! of waiting. A [`UnixStream`] connects at once or not at all.

use std::future::poll_fn;
use std::io;

use crate::async_fd::AsyncFd;
use crate::link::After;
use crate::net::unix::UnixStream;
use crate::net::{StreamSocket, TcpStream};
use crate::operations::poll_turn;
use crate::tie::Tied;

mod accept;
mod chunks;
mod connect;
mod incoming;
mod many;
mod receive;
mod send;

pub use accept::{Listener, accept};
pub use chunks::{Chunk, Chunks};
pub use connect::connect;
pub use incoming::Incoming;
pub use receive::{read, recv};
pub use send::{send, send_all, send_all_and_shutdown, write};

mod sealed {
    pub trait Sealed {
        /// Whether it is a socket, of which bytes are received and not read.
        const SOCKET: bool;
        /// Whether a short count says that there is no more.
        const SHORT_MEANS_BLOCKED: bool;
    }
}

use sealed::Sealed;

/// A stream socket: [`TcpStream`] or [`UnixStream`].
pub trait Socket: Source + Sink + StreamSocket {}

/// What bytes are read from: a stream socket, or the reading end of a pipe.
pub trait Source: Tied + Sealed {}

/// What bytes are written to: a stream socket, or the writing end of a pipe.
pub trait Sink: Tied + Sealed {}

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
    // A read ends where descriptors came along, whatever is behind them.
    UnixStream: true, false, Socket Source Sink;
    AsyncFd<io::PipeReader>: false, true, Source;
    AsyncFd<std::process::ChildStdout>: false, true, Source;
    AsyncFd<std::process::ChildStderr>: false, true, Source;
    AsyncFd<io::PipeWriter>: false, true, Sink;
    AsyncFd<std::process::ChildStdin>: false, true, Sink;
}

/// What a read says of its source.
fn after_read<S: Sealed>(done: usize, asked: usize) -> After {
    match (S::SHORT_MEANS_BLOCKED, S::SOCKET) {
        (false, _) => After::Ready,
        (true, true) => After::of(done, asked),
        (true, false) => After::of_pipe(done, asked),
    }
}

/// Lets other tasks run first, if this one has done enough.
async fn turn() {
    poll_fn(poll_turn).await;
}
