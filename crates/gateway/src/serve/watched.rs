//! A transport that remembers what hyper has done with it, which tells whether hyper has anything in its hands.
//!
//! hyper can be asked to give a connection back at any time, and what it holds is then lost. It holds nothing when no
//! request is under way, no byte has come since the last one began, all that was written was flushed, and it waits
//! for more. What it may still have is the beginning of a next request that came together with the last one, and that
//! it does give back.
//!
//! While a request is answered hyper does not read, so it does not see a client that goes. With each turn it flushes,
//! though, and that is where the transport looks for a hang-up when somebody has doubts. The end of what the client
//! sends is none: it may well wait for its answer.
//!
//! A request that may take indefinitely is given up with that end all the same, if its service says so
//! ([`Exchange::end_with_client`](crate::exchange::Exchange::end_with_client)): for such a request the transport is read
//! with each flush. What comes is kept for hyper, and nothing more is read then.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures_io::AsyncRead;
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::tally::Tally;
use crate::transport::Transport;

/// A transport, what was read of it before, and what happens on it.
#[derive(Debug)]
pub(super) struct Watched {
    pub transport: Transport,
    pub before: Bytes,
    pub tally: std::rc::Rc<Tally>,
}

/// How much is read at most in search of the end.
const PROBE: usize = 1024;

impl Watched {
    /// Whether the client has ended its side, and has sent nothing before that.
    fn has_ended(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.before.is_empty() {
            return false;
        }
        let mut room = [0; PROBE];
        match AsyncRead::poll_read(Pin::new(&mut self.transport), cx, &mut room) {
            Poll::Pending => false,
            Poll::Ready(Ok(0) | Err(_)) => true,
            Poll::Ready(Ok(count)) => {
                self.before = Bytes::copy_from_slice(&room[..count]);
                self.tally.unused.set(true);
                self.tally.count();
                false
            }
        }
    }
}

impl Read for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut room: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = room.remaining();
        if !this.before.is_empty() {
            let count = this.before.len().min(before);
            room.put_slice(&this.before[..count]);
            this.before.advance(count);
            this.tally.unused.set(true);
            this.tally.waits.set(false);
            return Poll::Ready(Ok(()));
        }
        let outcome = Read::poll_read(Pin::new(&mut this.transport), cx, room);
        this.tally.waits.set(outcome.is_pending());
        if matches!(outcome, Poll::Ready(Ok(()))) {
            // An end counts as well: it is no longer idle.
            this.tally.unused.set(true);
            this.tally.count();
        }
        outcome
    }
}

impl Write for Watched {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.transport).poll_write(cx, bytes);
        this.tally.wrote(&outcome);
        outcome
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.transport).poll_write_vectored(cx, parts);
        this.tally.wrote(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.tally.doubted.take() && this.transport.is_gone() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if this.tally.watches() && this.has_ended(cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let outcome = Pin::new(&mut this.transport).poll_flush(cx);
        this.tally.flushed(&outcome);
        outcome
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_shutdown(cx)
    }
}
