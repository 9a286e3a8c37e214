//! A connection to a server: TCP or Unix, encrypted or not.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};
use futures_rustls::client::TlsStream;
use hyper::rt::{Read, ReadBufCursor, Write};
use superpoll_rt::hyper::FuturesIo;

use crate::transport::Plain;

pub(super) enum Stream {
    Plain(Plain),
    Tls(Box<FuturesIo<TlsStream<Plain>>>),
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Read::poll_read(Pin::new(stream), cx, room),
            Stream::Tls(stream) => Read::poll_read(Pin::new(&mut **stream), cx, room),
        }
    }
}

/// Calls a method of whichever stream it is.
macro_rules! of {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Stream::Tls(stream) => Pin::new(stream.get_mut()).$method($($argument),*),
        }
    };
}

impl Write for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        of!(self.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of!(self.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        // Encryption copies in any case.
        matches!(self, Stream::Plain(_))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of!(self.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of!(self.poll_close(cx))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => AsyncRead::poll_read(Pin::new(stream), cx, room),
            Stream::Tls(stream) => AsyncRead::poll_read(Pin::new(stream.get_mut()), cx, room),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        of!(self.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of!(self.poll_flush(cx))
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of!(self.poll_close(cx))
    }
}
