//! The body of a server's response, on its way to the client.
//!
//! Most responses are short and have arrived whole when their head is there. Such a body is taken
//! at once: its connection goes back to the pool before the response is sent, and the response is a
//! piece of memory. Longer bodies are passed on piece by piece, each when the client has taken the
//! piece before, so that no more than a buffer is held of them.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::body::PollFrame;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use superpoll_rt::time::{self, Sleep, sleep};

use super::http1::is_interrupted;
use super::http2::Http2Body;
use super::pool::Lease;
use crate::body::Body;

/// The place of a response's body.
pub(super) enum Incoming {
    /// In the connection of the request's lease.
    Http1,
    Http2(Http2Body),
}

/// A body that is passed on.
pub(super) struct Relayed {
    incoming: Incoming,
    /// `None` when the last piece has arrived.
    lease: Option<Lease>,
    /// Pieces that have arrived and were not asked for yet.
    ahead: VecDeque<Frame<Bytes>>,
    timeout: Duration,
    timer: Option<Sleep>,
    is_waiting: bool,
    /// The bytes of the request, or the frames of its body by HTTP/2, that were sent when this was
    /// last looked at.
    sent: Option<u64>,
}

impl Relayed {
    pub(super) fn new(incoming: Incoming, lease: Lease, timeout: Duration) -> Relayed {
        Relayed {
            incoming,
            lease: Some(lease),
            ahead: VecDeque::new(),
            timeout,
            timer: None,
            is_waiting: false,
            sent: None,
        }
    }

    /// Returns the body to be sent: in memory, if it is all there.
    pub(super) fn into_body(mut self, cx: &mut Context<'_>) -> io::Result<Body> {
        if self.has_all() {
            self.end();
            return Ok(Body::empty());
        }
        // The second piece is the end of a body without a known length.
        for _ in 0..2 {
            match self.poll_more(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(frame)) => self.ahead.push_back(frame?),
                Poll::Ready(None) => {}
            }
            if self.lease.is_none() {
                match self.ahead.pop_front().map(Frame::into_data) {
                    None => return Ok(Body::empty()),
                    Some(Ok(data)) if self.ahead.is_empty() => return Ok(Body::from(data)),
                    Some(Ok(data)) => self.ahead.push_front(Frame::data(data)),
                    Some(Err(other)) => self.ahead.push_front(other),
                }
                break;
            }
        }
        Ok(Body::stream(self))
    }

    /// Whether nothing of the body is still to be read.
    fn has_all(&self) -> bool {
        match (&self.incoming, &self.lease) {
            (Incoming::Http2(incoming), _) => incoming.is_end_stream(),
            (Incoming::Http1, Some(Lease { connection: Some(connection), .. })) => {
                connection.has_read_all()
            }
            (Incoming::Http1, _) => true,
        }
    }

    fn end(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.end();
        }
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Relayed { incoming, lease: Some(lease), .. } = self else { return Poll::Ready(None) };
        let frame = match (incoming, &mut lease.connection) {
            (Incoming::Http2(incoming), _) => ready!(incoming.poll_frame(cx)),
            (Incoming::Http1, Some(connection)) => ready!(connection.poll_body(cx)),
            (Incoming::Http1, None) => None,
        };
        match frame {
            Some(Ok(frame)) => {
                if self.has_all() {
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                // The server has nothing to do with an upload that breaks off.
                if let Some(lease) = self.lease.take().filter(|_| !is_interrupted(&error)) {
                    lease.cut_off(io::Error::new(error.kind(), error.to_string()));
                }
                Poll::Ready(Some(Err(error)))
            }
            None => {
                self.end();
                Poll::Ready(None)
            }
        }
    }

    /// Whether no bytes have arrived for too long while the client waited for them. The server is
    /// not to blame as long as it gets more of the request.
    fn has_waited(&mut self, cx: &mut Context<'_>) -> bool {
        let connection = self.lease.as_ref().and_then(|lease| lease.connection.as_ref());
        let sent = match (&self.incoming, connection) {
            (Incoming::Http2(incoming), _) => Some(incoming.sent_frames()),
            (Incoming::Http1, Some(connection)) => connection.sent_bytes(),
            (Incoming::Http1, None) => Some(0),
        };
        self.is_waiting &= sent.is_some() && sent == std::mem::replace(&mut self.sent, sent);
        let due = time::now() + self.timeout;
        let timer = self.timer.get_or_insert_with(|| sleep(self.timeout));
        if !std::mem::replace(&mut self.is_waiting, true) {
            timer.reset(due);
        }
        Pin::new(timer).poll(cx).is_ready()
    }
}

impl http_body::Body for Relayed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollFrame {
        let this = self.get_mut();
        if let Some(frame) = this.ahead.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let frame = this.poll_more(cx);
        if frame.is_ready() {
            this.is_waiting = false;
        } else if this.has_waited(cx) {
            if let Some(lease) = this.lease.take() {
                lease.cut_off(io::ErrorKind::TimedOut.into());
            }
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.lease.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead.iter().filter_map(Frame::data_ref).map(Bytes::len).sum::<usize>();
        let rest = match (&self.incoming, &self.lease) {
            (Incoming::Http2(incoming), _) => incoming.size_hint().exact(),
            (Incoming::Http1, Some(Lease { connection: Some(connection), .. })) => {
                connection.body_left()
            }
            // Fields come after chunks only.
            (Incoming::Http1, _) if self.ahead.iter().any(Frame::is_trailers) => None,
            (Incoming::Http1, _) => Some(0),
        };
        match rest {
            Some(rest) => SizeHint::with_exact(rest + ahead as u64),
            None => SizeHint::default(),
        }
    }
}
