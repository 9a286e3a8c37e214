//! A stream of a server of HTTP/2 that has left HTTP (RFC 8441): bytes in both directions.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_io::{AsyncRead, AsyncWrite};
use h2::{Reason, RecvStream, SendStream};

use super::Awaited;

/// A stream with a server that has agreed to another protocol.
pub(in crate::upstream) struct Tunnel {
    sent: SendStream<Bytes>,
    received: RecvStream,
    /// Bytes of the server that were not read.
    data: Bytes,
    is_closed: bool,
    awaited: Awaited,
}

impl Tunnel {
    pub(super) fn new(sent: SendStream<Bytes>, received: RecvStream, awaited: Awaited) -> Tunnel {
        Tunnel { sent, received, data: Bytes::new(), is_closed: false, awaited }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        while this.data.is_empty() {
            match ready!(this.received.poll_data(cx)) {
                None => return Poll::Ready(Ok(0)),
                Some(Ok(data)) => this.data = data,
                // The server needs no more of either direction.
                Some(Err(error))
                    if matches!(error.reason(), Some(Reason::NO_ERROR | Reason::CANCEL)) =>
                {
                    return Poll::Ready(Ok(0));
                }
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
            this.awaited.has_heard();
        }
        let count = this.data.len().min(room.len());
        room[..count].copy_from_slice(&this.data[..count]);
        this.data.advance(count);
        let _ = this.received.flow_control().release_capacity(count);
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let sent = &mut self.get_mut().sent;
        sent.reserve_capacity(bytes.len());
        while sent.capacity() == 0 {
            match ready!(sent.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let count = bytes.len().min(sent.capacity());
        sent.reserve_capacity(count);
        let outcome = sent.send_data(Bytes::copy_from_slice(&bytes[..count]), false);
        Poll::Ready(outcome.map(|()| count).map_err(io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.is_closed, true) {
            this.sent.reserve_capacity(0);
            // A stream that has ended is closed.
            let _ = this.sent.send_data(Bytes::new(), true);
        }
        Poll::Ready(Ok(()))
    }
}
