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
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::adapt::{CLEARED, our_writers, poll_read_to, wrapper, write_through};
use crate::async_fd::AsyncFd;
use crate::net;
use crate::sys;

pin_project! {
    /// Implements tokio's I/O traits for a stream that has those of futures-io, and the reverse.
    #[derive(Clone, Copy, Debug)]
    pub struct Compat<T> {
        #[pin]
        io: T,
        vectored: bool,
    }
}

wrapper!(Compat);

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

write_through!(
    [T: futures_io::AsyncWrite] Compat<T>: futures_io::AsyncWrite, poll_close => AsyncWrite, poll_shutdown,
    |wrapper| wrapper.project().io, vectored |wrapper| wrapper.vectored
);

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

write_through!(
    [T: AsyncWrite] Compat<T>: AsyncWrite, poll_shutdown => futures_io::AsyncWrite, poll_close,
    |wrapper| wrapper.project().io
);

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
                poll_read_to($fd, cx, requested, |io| sys::buffer::read_to_buf(io, buffer))
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

read_straight! {
    net::TcpStream: |stream| stream.async_fd(),
    AsyncFd<TcpStream>: |stream| stream,
}

// Only these streams' own reading can interpret a short read: descriptors may come along.
read_cleared!(net::unix::UnixStream, AsyncFd<UnixStream>);

our_writers! {
    AsyncWrite, poll_shutdown:
    net::TcpStream, net::unix::UnixStream, AsyncFd<TcpStream>, AsyncFd<UnixStream>,
}
