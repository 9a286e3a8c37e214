//! A stream of an HTTP/2 connection that has left HTTP (RFC 8441): bytes in both directions.
//!
//! hyper passes each write on to a task of its own, which waits for the windows of the stream and
//! of the connection, and takes the next write when h2 has taken the last. A write is therefore a
//! copy, and its size is limited here: hyper and h2 hold three of them at most. In the other
//! direction the window of the stream is the bound.

use std::any::Any;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};
use hyper::upgrade::Upgraded;
use superpoll_rt::hyper::FuturesIo;

/// The most bytes of a write.
const WRITE: usize = 16 << 10;

/// A stream that has left HTTP.
pub struct Http2Stream {
    io: FuturesIo<Upgraded>,
    /// Counts the stream for as long as it is used.
    _guard: Box<dyn Any>,
}

impl Http2Stream {
    /// Returns the stream of an upgraded request. The guard is dropped with it.
    pub fn new(io: Upgraded, guard: Box<dyn Any>) -> Http2Stream {
        Http2Stream { io: FuturesIo::new(io), _guard: guard }
    }
}

impl AsyncRead for Http2Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_read(cx, room)
    }
}

impl AsyncWrite for Http2Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, &bytes[..bytes.len().min(WRITE)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_close(cx)
    }
}

superpoll::debug_fields!(Http2Stream);
