//! Several channels as one stream of server-sent events, which hyper sends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use superpoll_rt::time::{Sleep, sleep};

use super::super::event_text::{self, COMMENT};
use super::super::events::{PIECE, fields};
use super::super::json_frame;
use super::super::mailbox::Taken;
use super::super::unread::Unread;
use super::{Invitation, Several, limit_unsent};
use crate::body::Body;
use crate::exchange::Exchange;

/// Answers with the messages of all channels as long as there are any.
pub(super) fn stream(
    exchange: &Exchange,
    invitations: Vec<Invitation>,
    unread: Unread,
) -> Response<Body> {
    exchange.end_with_client();
    limit_unsent(exchange, &invitations);
    let mut response = Response::new(Body::stream(SeveralEvents::new(invitations, unread)));
    *response.headers_mut() = fields();
    response
}

/// Writes that messages of a channel up to a position were left out.
fn write_missed(several: &Several, index: usize, id: u64, text: &mut Vec<u8>) {
    let json = json_frame::place_json(id, true, several.members[index].hub().source());
    event_text::json(text, &json, several.position());
}

/// A stream that hyper sends.
pub(super) struct SeveralEvents {
    several: Several,
    unread: Unread,
    /// The text to be written before the messages.
    text: Vec<u8>,
    /// The length of a silence after which a comment shows that the connection lives.
    silence: Duration,
    /// For the end of that time, or of the first grant.
    timer: Sleep,
}

impl SeveralEvents {
    /// Joins the channels, and tells the client where it begins.
    pub(super) fn new(invitations: Vec<Invitation>, unread: Unread) -> SeveralEvents {
        let starts: Vec<_> = invitations.iter().map(|invitation| invitation.start).collect();
        let several = Several::join(invitations);
        let mut text = Vec::new();
        event_text::begin(&mut text, several.position());
        for (index, start) in starts.into_iter().enumerate().filter(|(_, start)| start.missed) {
            write_missed(&several, index, start.id, &mut text);
        }
        let silence = several.silence();
        let timer = sleep(several.limit(silence));
        SeveralEvents { several, unread, text, silence, timer }
    }

    /// Writes a piece of text, or less if no more messages wait.
    fn fill(&mut self, text: &mut Vec<u8>) {
        while text.len() < PIECE
            && self.several.ended().is_none()
            && let Some((index, Taken { message, is_after_gap })) = self.several.take()
        {
            if is_after_gap {
                write_missed(&self.several, index, message.id - 1, text);
            }
            self.several.wrote(index, &message);
            let hub = self.several.members[index].hub();
            if hub.may_send(&message) {
                let json = json_frame::message_json(&message, hub.source());
                event_text::json(text, &json, self.several.position());
            }
        }
    }
}

impl http_body::Body for SeveralEvents {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        this.several.remember(cx);
        if let Poll::Ready(error) = this.unread.poll_failed(cx) {
            return Poll::Ready(Some(Err(error.into())));
        }
        this.several.check_grants();
        let mut text = std::mem::take(&mut this.text);
        this.fill(&mut text);
        if text.is_empty() && this.several.ended().is_some() {
            return Poll::Ready(None);
        }
        if text.is_empty() {
            if Pin::new(&mut this.timer).poll(cx).is_pending() {
                return Poll::Pending;
            }
            text.extend_from_slice(COMMENT);
        }
        this.timer.reset(Instant::now() + this.several.limit(this.silence));
        Poll::Ready(Some(Ok(Frame::data(text.into()))))
    }
}
