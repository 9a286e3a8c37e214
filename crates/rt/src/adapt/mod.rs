//! Other libraries' traits for our streams, tasks and timers, each behind a feature.
//!
//! A library that speaks futures-io needs nothing from this module. Streams of this crate implement
//! hyper's and tokio's traits directly. Both traits lend memory that is not initialised, and the
//! kernel may read into that memory without clearing it first, which a wrapper around a futures-io
//! stream cannot do. Everything else with futures-io traits, such as a TLS stream, is wrapped, and
//! pays for clearing. So do Unix sockets, which read with `recvmsg(2)` because descriptors may come
//! along.

#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "tokio")]
pub mod tokio;

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use crate::async_fd::AsyncFd;
use crate::calls::{Call, count};
use crate::io_registration::IoRegistration;
use crate::short_reads::IoState;
use crate::sources::Direction;

/// The largest number of bytes to ask a wrapped reader for at a time. They are cleared first, and
/// hyper lends up to 400 KiB, where a TLS record fills 16 KiB.
const CLEARED: usize = 32 * 1024;

/// Reads from a connection into memory with room for `requested` bytes.
fn poll_read_to(
    fd: &AsyncFd<TcpStream>,
    cx: &mut Context<'_>,
    requested: usize,
    mut read: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
) -> Poll<io::Result<()>> {
    if requested == 0 {
        return IoRegistration::poll_empty(cx, || Ok(0)).map_ok(drop);
    }
    fd.poll_with(cx, Direction::Read, |io| {
        count(Call::Read);
        let done = read(io.as_fd())?;
        Ok(((), IoState::after(done, requested)))
    })
}

/// Implements the methods that each wrapper of a stream has.
macro_rules! wrapper {
    ($wrapper:ident) => {
        impl<T> $wrapper<T> {
            /// Wraps a stream.
            pub const fn new(io: T) -> $wrapper<T> {
                $wrapper { io, vectored: true }
            }

            /// Says that vectored writes do not pay: the stream has none of its own.
            #[must_use]
            pub fn without_vectored_writes(mut self) -> $wrapper<T> {
                self.vectored = false;
                self
            }

            /// Returns the stream.
            pub const fn get_ref(&self) -> &T {
                &self.io
            }

            /// Returns the stream, to change it.
            pub const fn get_mut(&mut self) -> &mut T {
                &mut self.io
            }

            /// Returns the stream. Nothing is buffered here.
            pub fn into_inner(self) -> T {
                self.io
            }
        }
    };
}

/// Implements a trait of writers, `$to`, through another one, `$from`, of what an expression finds
/// in the type. The traits differ in the name of their last method, and futures-io has no question
/// about vectored writes.
macro_rules! write_through {
    (
        [$($generics:tt)*] $type:ty: $from:path, $close:ident => $to:path, $to_close:ident,
        |$writer:ident| $inner:expr $(, vectored |$this:ident| $vectored:expr)?
    ) => {
        impl<$($generics)*> $to for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &[u8],
            ) -> Poll<io::Result<usize>> {
                let $writer = self;
                <_ as $from>::poll_write($inner, cx, buffer)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $writer = self;
                <_ as $from>::poll_flush($inner, cx)
            }

            fn $to_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $writer = self;
                <_ as $from>::$close($inner, cx)
            }

            $(fn is_write_vectored(&self) -> bool {
                let $this = self;
                $vectored
            })?

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffers: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let $writer = self;
                <_ as $from>::poll_write_vectored($inner, cx, buffers)
            }
        }
    };
}

/// Implements a trait of writers for each of our streams.
macro_rules! our_writers {
    ($to:path, $to_close:ident: $($type:ty),* $(,)?) => {$(
        $crate::adapt::write_through!(
            [] $type: futures_io::AsyncWrite, poll_close => $to, $to_close,
            |writer| writer, vectored |_stream| true
        );
    )*};
}

use {our_writers, wrapper, write_through};
