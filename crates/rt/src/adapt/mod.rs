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

/// Implements a trait of readers by an expression that reads into a buffer.
macro_rules! read_by {
    (
        [$($generics:tt)*] $type:ty: $to:ident, $buffer:ty,
        |$reader:ident, $cx:ident, $room:ident| $read:expr
    ) => {
        impl<$($generics)*> $to for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                $cx: &mut Context<'_>,
                buffer: $buffer,
            ) -> Poll<io::Result<()>> {
                let ($reader, mut buffer) = (self, buffer);
                let $room = &mut buffer;
                $read
            }
        }
    };
}

/// Implements a library's traits for each of our streams. `$straight` reads from a descriptor into
/// the buffer that the library lends, and `$initialised` makes another reader fill it.
macro_rules! our_streams {
    (
        $read:ident, $buffer:ty, $straight:path, $initialised:path;
        $write:path, $close:ident
    ) => {
        our_streams!(straight net::TcpStream: $read, $buffer, $straight, |stream| stream.async_fd());
        our_streams!(straight AsyncFd<TcpStream>: $read, $buffer, $straight, |stream| &*stream);
        // Only these streams' own reading can interpret a short read: descriptors may come along.
        our_streams!(initialised net::unix::UnixStream: $read, $buffer, $initialised);
        our_streams!(initialised AsyncFd<UnixStream>: $read, $buffer, $initialised);
        our_streams!(write net::TcpStream: $write, $close);
        our_streams!(write net::unix::UnixStream: $write, $close);
        our_streams!(write AsyncFd<TcpStream>: $write, $close);
        our_streams!(write AsyncFd<UnixStream>: $write, $close);
    };
    (straight $type:ty: $read:ident, $buffer:ty, $straight:path, |$stream:ident| $fd:expr) => {
        $crate::adapt::read_by!([] $type: $read, $buffer, |$stream, cx, room| {
            let requested = room.remaining();
            poll_read_to($fd, cx, requested, |io| $straight(io, room))
        });
    };
    (initialised $type:ty: $read:ident, $buffer:ty, $initialised:path) => {
        $crate::adapt::read_by!([] $type: $read, $buffer, |stream, cx, room| {
            $initialised(room, CLEARED, |room| {
                futures_io::AsyncRead::poll_read(stream, cx, room)
            })
        });
    };
    (write $type:ty: $write:path, $close:ident) => {
        $crate::adapt::write_through!(
            [] $type: futures_io::AsyncWrite, poll_close => $write, $close,
            |writer| writer, vectored |_stream| true
        );
    };
}

use {our_streams, read_by, wrapper, write_through};
