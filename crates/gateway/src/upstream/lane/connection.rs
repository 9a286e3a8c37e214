//! A connection to a server on which HTTP/1.1 is spoken without hyper.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::AsyncWrite;

use super::buffer::ReadBuffer;
use crate::transport::Upstream;

/// A connection to a server.
pub(crate) struct RawConnection {
    stream: Upstream,
    /// Bytes of the response that were read and not used.
    pub(super) read: ReadBuffer,
}

impl RawConnection {
    pub(crate) fn new(stream: Upstream) -> RawConnection {
        RawConnection { stream, read: ReadBuffer::default() }
    }

    /// Returns the stream, and the bytes that were read of it.
    pub(crate) fn into_parts(self) -> (Upstream, ReadBuffer) {
        (self.stream, self.read)
    }

    /// Whether another request can be sent, as far as is known: the server has sent nothing that was
    /// not asked for, nor its end.
    pub(crate) fn is_reusable(&mut self, cx: &mut Context<'_>) -> bool {
        self.read.is_empty() && self.poll_read(cx).is_pending()
    }

    /// Reads some bytes behind those that were read.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.read.poll_read(cx, &mut self.stream)
    }

    /// Sends bytes.
    pub(super) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        poll_fn(|cx| {
            while !bytes.is_empty() {
                match ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    count => bytes = &bytes[count..],
                }
            }
            Pin::new(&mut self.stream).poll_flush(cx)
        })
        .await
    }
}
