//! tokio's I/O traits (feature `tokio`), without tokio's runtime.
//!
//! Streams of this crate implement [`tokio::io::AsyncRead`] and [`tokio::io::AsyncWrite`].
//! [`Compat`] does it for everything else that is read and written through futures-io, and the
//! reverse for streams that have tokio's traits only. Code that a library builds on the traits
//! alone works then: codecs, framed protocols, `tokio::io::copy`. Code that asks for tokio's
//! reactor, timer or `tokio::spawn` needs the feature `tokio-context` as well, and
//! `Runtime::builder().tokio(true)`.
//!
//! ```
//! use superpoll_rt::{AsyncFd, Runtime};
//! use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (one, other) = std::os::unix::net::UnixStream::pair()?;
//! Runtime::new()?.block_on(async {
//!     AsyncFd::new(one)?.write_all(b"first\nsecond\n").await?;
//!     let mut lines = BufReader::new(AsyncFd::new(other)?).lines();
//!     assert_eq!(lines.next_line().await?.as_deref(), Some("first"));
//!     assert_eq!(lines.next_line().await?.as_deref(), Some("second"));
//!     assert_eq!(lines.next_line().await?, None);
//!     Ok(())
//! })
//! # }
//! ```

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::async_fd::AsyncFd;
use crate::io_registration::IoRegistration;
use crate::net;
use crate::short_reads::IoState;
use crate::sources::Direction;
use crate::sys;

/// The largest number of bytes to ask a wrapped reader for at a time, because they are cleared
/// first.
const CLEARED: usize = 32 * 1024;

pin_project! {
    /// Implements tokio's I/O traits for a stream that has those of futures-io, and the reverse.
    #[derive(Clone, Copy, Debug)]
    pub struct Compat<T> {
        #[pin]
        io: T,
        vectored: bool,
    }
}

impl<T> Compat<T> {
    /// Wraps a stream.
    pub const fn new(io: T) -> Compat<T> {
        Compat { io, vectored: true }
    }

    /// Tells writers that vectored writes do not pay: the stream has none of its own.
    #[must_use]
    pub fn without_vectored_writes(mut self) -> Compat<T> {
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

impl<T: futures_io::AsyncRead> AsyncRead for Compat<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled_to(buffer.remaining().min(CLEARED));
        let done = ready!(self.project().io.poll_read(cx, room))?;
        buffer.advance(done);
        Poll::Ready(Ok(()))
    }
}

impl<T: futures_io::AsyncWrite> AsyncWrite for Compat<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.project().io.poll_write(cx, buffer)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_close(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.vectored
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().io.poll_write_vectored(cx, buffers)
    }
}

impl<T: AsyncRead> futures_io::AsyncRead for Compat<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(self.project().io.poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }
}

impl<T: AsyncWrite> futures_io::AsyncWrite for Compat<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.project().io.poll_write(cx, buffer)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().io.poll_write_vectored(cx, buffers)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_shutdown(cx)
    }
}

macro_rules! read_straight {
    ($($type:ty: |$stream:ident| $fd:expr),* $(,)?) => {$(
        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let $stream = &*self;
                let requested = buffer.remaining();
                if requested == 0 {
                    return IoRegistration::poll_empty(cx, || Ok(0)).map_ok(drop);
                }
                $fd.poll_with(cx, Direction::Read, |io| {
                    let done = sys::buffer::read_to_buf(io.as_fd(), buffer)?;
                    Ok(((), IoState::after(done, requested)))
                })
            }
        }
    )*};
}

macro_rules! read_cleared {
    ($($type:ty),* $(,)?) => {$(
        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let room = buffer.initialize_unfilled_to(buffer.remaining().min(CLEARED));
                let done = ready!(futures_io::AsyncRead::poll_read(self, cx, room))?;
                buffer.advance(done);
                Poll::Ready(Ok(()))
            }
        }
    )*};
}

macro_rules! write_through {
    ($($type:ty),* $(,)?) => {$(
        impl AsyncWrite for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &[u8],
            ) -> Poll<io::Result<usize>> {
                futures_io::AsyncWrite::poll_write(self, cx, buffer)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                futures_io::AsyncWrite::poll_flush(self, cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                futures_io::AsyncWrite::poll_close(self, cx)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffers: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                futures_io::AsyncWrite::poll_write_vectored(self, cx, buffers)
            }
        }
    )*};
}

read_straight! {
    net::TcpStream: |stream| stream.async_fd(),
    AsyncFd<TcpStream>: |stream| stream,
}

// Only these streams' own reading can interpret a short read: descriptors may come along.
read_cleared!(net::unix::UnixStream, AsyncFd<UnixStream>);

write_through!(net::TcpStream, net::unix::UnixStream, AsyncFd<TcpStream>, AsyncFd<UnixStream>);
