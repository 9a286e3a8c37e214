//! The operations that all stream sockets have in common, and `futures-io` for them.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A stream socket: [`TcpStream`](super::TcpStream) or [`UnixStream`](super::unix::UnixStream). Its
/// operations take a shared reference; a reader and a writer may be two tasks of one engine.
///
/// Each operation is cancel safe: while it is pending, nothing was read or written. An operation on
/// no bytes never waits for the stream.
pub trait StreamSocket: AsFd + sealed::Sealed {
    /// Reads; zero bytes are the end of the stream, or an empty buffer.
    ///
    /// # Errors
    ///
    /// Any error of `recv(2)`.
    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Like [`poll_read`](StreamSocket::poll_read), into several buffers in order (`readv(2)`).
    ///
    /// # Errors
    ///
    /// The same errors as [`poll_read`](StreamSocket::poll_read).
    fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Writes, perhaps only a part.
    ///
    /// # Errors
    ///
    /// Any error of `send(2)`; `BrokenPipe` once the peer has closed, without a `SIGPIPE`.
    fn poll_write(&self, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>>;

    /// Like [`poll_write`](StreamSocket::poll_write), from several buffers in order (`sendmsg(2)`).
    ///
    /// # Errors
    ///
    /// The same errors as [`poll_write`](StreamSocket::poll_write).
    fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Ends one direction or both (`shutdown(2)`), for all duplicates of the socket. Wakes every
    /// waiter for that direction here or at the other end.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the connection is gone already.
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;
}

/// Closes the stream of bytes: ends the writing direction. A connection that is gone has no such
/// direction, which is no error.
pub(crate) fn close_writing(stream: &impl StreamSocket) -> io::Result<()> {
    match stream.shutdown(Shutdown::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        outcome => outcome,
    }
}

/// Implements `futures-io` for a type through the methods of the [`StreamSocket`] that an
/// expression finds in it.
macro_rules! futures_io {
    ([$($generics:tt)*] $type:ty, read |$reader:ident| $stream:expr) => {
        impl<$($generics)*> futures_io::AsyncRead for $type {
            #[inline]
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffer: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $reader = &*self;
                $crate::net::StreamSocket::poll_read($stream, cx, buffer)
            }
            fn poll_read_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $reader = &*self;
                $crate::net::StreamSocket::poll_read_vectored($stream, cx, buffers)
            }
        }
    };
    ([$($generics:tt)*] $type:ty, write |$writer:ident| $stream:expr) => {
        impl<$($generics)*> futures_io::AsyncWrite for $type {
            #[inline]
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffer: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $writer = &*self;
                $crate::net::StreamSocket::poll_write($stream, cx, buffer)
            }
            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffers: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let $writer = &*self;
                $crate::net::StreamSocket::poll_write_vectored($stream, cx, buffers)
            }
            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }
            fn poll_close(
                self: std::pin::Pin<&mut Self>,
                _cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let $writer = &*self;
                std::task::Poll::Ready($crate::net::stream::close_writing($stream))
            }
        }
    };
}

/// Implements for a stream socket with a field `fd` everything that does not depend on its domain.
macro_rules! stream_socket {
    ($stream:ident, $inner:ty) => {
        impl $stream {
            /// Adopts an existing connected socket and makes it non-blocking.
            ///
            /// # Errors
            ///
            /// Any error of `fcntl(2)`.
            pub fn from_std(stream: $inner) -> std::io::Result<$stream> {
                $crate::sys::descriptor::set_nonblocking(&stream)?;
                Ok($stream::nonblocking(stream))
            }

            /// Waits until there is probably something to read, or the end of the stream: use
            /// [`try_read`](Self::try_read), which may still return `WouldBlock`.
            ///
            /// Cancel safe: it holds nothing.
            ///
            /// # Errors
            ///
            /// Without a runtime on this thread, or if the socket cannot be watched.
            pub async fn readable(&self) -> std::io::Result<()> {
                self.fd.readable().await.map(drop)
            }

            /// Waits until there is probably room to write: use [`try_write`](Self::try_write),
            /// which may still return `WouldBlock`.
            ///
            /// Cancel safe: it holds nothing.
            ///
            /// # Errors
            ///
            /// The same errors as [`readable`](Self::readable).
            pub async fn writable(&self) -> std::io::Result<()> {
                self.fd.writable().await.map(drop)
            }

            /// Borrows the two directions of the stream.
            pub fn split(
                &mut self,
            ) -> ($crate::net::ReadHalf<'_, $stream>, $crate::net::WriteHalf<'_, $stream>) {
                $crate::net::split::borrowed(self)
            }

            /// Splits the stream into its two directions, for two tasks of this engine (see
            /// [`split`](crate::net::split)). Dropping the writing half ends the writing direction.
            pub fn into_split(
                self,
            ) -> ($crate::net::OwnedReadHalf<$stream>, $crate::net::OwnedWriteHalf<$stream>) {
                $crate::net::split::owned(self)
            }

            pub(crate) fn async_fd(&self) -> &$crate::async_fd::AsyncFd<$inner> {
                &self.fd
            }
        }

        impl $crate::io_ref::AsIoRef for $stream {
            fn as_io_ref(&self) -> $crate::io_ref::IoRef<'_> {
                self.async_fd().as_io_ref()
            }
        }

        impl $crate::net::stream::sealed::Sealed for $stream {}

        $crate::net::stream::futures_io!([] $stream, read |stream| stream);
        $crate::net::stream::futures_io!([] $stream, write |stream| stream);
        $crate::net::stream::futures_io!(['a] &'a $stream, read |stream| *stream);
        $crate::net::stream::futures_io!(['a] &'a $stream, write |stream| *stream);

        $crate::net::descriptor::descriptor!($stream: fd, plain);
    };
}

pub(crate) use {futures_io, stream_socket};
