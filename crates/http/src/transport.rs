//! The stream below HTTP: TCP or Unix, encrypted or not.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};
use futures_rustls::client;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use superpoll_rt::tokio::Compat;
use tokio::io::ReadBuf;

use crate::http2_stream::Http2Stream;
use crate::parked_stream::ParkedStream;
pub use crate::plain_stream::{Plain, Socket};
use crate::sys;
use crate::tls::TlsStream;

/// A stream as it comes, or encrypted by `T`.
#[derive(Debug)]
pub enum Layered<T> {
    /// As it comes.
    Plain(Plain),
    /// Encrypted.
    Tls(Box<Compat<T>>),
    /// One of the streams of a connection of HTTP/2.
    Stream(Box<Http2Stream>),
}

/// A stream with a client.
pub type Transport = Layered<TlsStream>;

impl From<TlsStream> for Transport {
    fn from(stream: TlsStream) -> Transport {
        Layered::Tls(Box::new(Compat::new(stream)))
    }
}

/// A stream with a server that requests are forwarded to.
pub type Upstream = Layered<client::TlsStream<Plain>>;

impl From<client::TlsStream<Plain>> for Upstream {
    fn from(stream: client::TlsStream<Plain>) -> Upstream {
        Layered::Tls(Box::new(Compat::new(stream)))
    }
}

/// Calls a method of the stream, of either kind.
macro_rules! layer {
    ($self:ident.$trait:ident::$method:ident($($argument:expr),*)) => {
        match $self.get_mut() {
            Layered::Plain(stream) => $trait::$method(Pin::new(stream), $($argument),*),
            Layered::Tls(stream) => $trait::$method(Pin::new(stream.get_mut()), $($argument),*),
            Layered::Stream(stream) => $trait::$method(Pin::new(&mut **stream), $($argument),*),
        }
    };
}

impl<T: AsyncRead + Unpin> tokio::io::AsyncRead for Layered<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        use tokio::io::AsyncRead;
        match self.get_mut() {
            Layered::Plain(stream) => AsyncRead::poll_read(Pin::new(stream), cx, room),
            Layered::Tls(stream) => AsyncRead::poll_read(Pin::new(&mut **stream), cx, room),
            // It is one already.
            Layered::Stream(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }
}

impl<T: AsyncWrite + Unpin> tokio::io::AsyncWrite for Layered<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(self, cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write_vectored(self, cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        // Encryption copies in any case.
        matches!(self, Layered::Plain(_))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_close(self, cx)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Layered<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        layer!(self.AsyncRead::poll_read(cx, room))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Layered<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        layer!(self.AsyncWrite::poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        layer!(self.AsyncWrite::poll_write_vectored(cx, parts))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        layer!(self.AsyncWrite::poll_flush(cx))
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        layer!(self.AsyncWrite::poll_close(cx))
    }
}

/// Writes all bytes after the position `at`, which it moves, and flushes them.
pub fn poll_write_all(
    stream: &mut (impl tokio::io::AsyncWrite + Unpin),
    cx: &mut Context<'_>,
    bytes: &[u8],
    at: &mut usize,
) -> Poll<io::Result<()>> {
    while *at < bytes.len() {
        match ready!(Pin::new(&mut *stream).poll_write(cx, &bytes[*at..]))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            count => *at += count,
        }
    }
    Pin::new(stream).poll_flush(cx)
}

impl Transport {
    /// Whether it can be parked as such.
    pub fn can_park(&self) -> bool {
        match self {
            Layered::Plain(_) | Layered::Tls(_) => true,
            Layered::Stream(_) => false,
        }
    }

    /// Whether it can be parked now: no byte of a record was read and not used, or sealed and not
    /// written. A stream of HTTP/2 can be left to its connection then, which has asked for that.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        match self {
            Layered::Plain(_) => true,
            Layered::Tls(stream) => stream.get_ref().is_quiet(),
            Layered::Stream(stream) => stream.is_quiet(),
        }
    }

    /// Whether some of a record has arrived, and not the rest.
    #[inline]
    pub fn has_part(&self) -> bool {
        match self {
            Layered::Tls(stream) => stream.get_ref().has_part(),
            Layered::Plain(_) | Layered::Stream(_) => false,
        }
    }

    /// Takes the stream from its engine.
    ///
    /// # Errors
    ///
    /// The stream, if it is not quiet after all.
    pub fn park(self) -> Result<ParkedStream, Transport> {
        match self {
            Layered::Plain(plain) => Ok(plain.into_socket().into()),
            Layered::Tls(stream) => match stream.into_inner().park() {
                Ok((socket, keys)) => Ok(ParkedStream::new(socket, Some(keys))),
                Err(stream) => Err((*stream).into()),
            },
            stream @ Layered::Stream(_) => Err(stream),
        }
    }

    /// Returns the socket below, unless it has other streams as well.
    pub fn plain(&self) -> Option<&Plain> {
        match self {
            Layered::Plain(plain) => Some(plain),
            Layered::Tls(stream) => Some(stream.get_ref().plain()),
            Layered::Stream(_) => None,
        }
    }

    /// Returns how many bytes the kernel has still to send, where it reports them.
    #[inline]
    pub fn unsent(&self) -> Option<u64> {
        sys::unsent(self.plain()?).ok()
    }

    /// Whether the peer is gone. A client that has only ended its own half is still there.
    pub fn is_gone(&self) -> bool {
        // A hang-up and an error are reported without being asked for.
        let Some(plain) = self.plain() else { return false };
        let mut polled = [PollFd::new(plain, PollFlags::empty())];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
    }
}
