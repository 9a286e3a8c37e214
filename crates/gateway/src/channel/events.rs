//! Subscribing by server-sent events, as the HTML standard specifies them (section 9.2).

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use data_encoding::BASE64;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Frame;
use superpoll_rt::time::{Sleep, sleep};

use super::cursor::{Cursor, SubscribeRequest};
use super::local_subscribers::{Delivery, LocalSubscribers, Subscription};
use super::mailbox::Mailbox;
use super::message::Message;
use super::unread::Unread;
use crate::accept;
use crate::body::Body;
use crate::reply;

/// The milliseconds after which clients come back.
const RETRY: u32 = 2000;

/// The bytes that are written in one piece, give or take a message.
const PIECE: usize = 16 << 10;

/// The bytes of an event of one line in addition to its message.
const LINES: usize = 64;

/// The field that keeps reverse proxies from collecting events.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Whether a client accepts a stream of events.
pub(super) fn are_asked_for(headers: &HeaderMap) -> bool {
    accept::weight_of(headers, "text/event-stream").is_some_and(|weight| weight > 0)
}

impl LocalSubscribers {
    /// Answers with messages as long as there are any.
    pub(super) fn stream(
        self: &Rc<LocalSubscribers>,
        asked: &SubscribeRequest,
        unread: Unread,
    ) -> Response<Body> {
        if self.is_retired() {
            return reply::status(StatusCode::SERVICE_UNAVAILABLE);
        }
        let since = self.hub.join(self.queue_id, asked.after);
        let start = since.messages.first().map_or(since.last, |message| message.id - 1);
        let (missed_some, last) = (since.missed, since.last);
        let mailbox = Rc::new(Mailbox::new(since, &self.hub.options()));
        let subscription = self.add(last, Delivery::Task(mailbox.clone()));
        // A client that loses the connection before the first message knows its place from this
        // event.
        let cursor = self.cursor(start);
        let mut text = format!("retry: {RETRY}\nid: {cursor}\n\n");
        if missed_some {
            missed(&mut text, cursor);
        }
        let silence = self.hub.silence();
        let timer = sleep(silence);
        let events = Events { subscription, mailbox, unread, text, last: start, silence, timer };
        let mut response = Response::new(Body::stream(events));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(BUFFERING, HeaderValue::from_static("no"));
        response
    }
}

/// A subscriber's stream.
struct Events {
    subscription: Subscription,
    mailbox: Rc<Mailbox>,
    unread: Unread,
    /// The text to be written before the messages.
    text: String,
    /// The last message that was written, or the place before the first.
    last: u64,
    /// The length of a silence after which a comment shows that the connection lives.
    silence: Duration,
    timer: Sleep,
}

/// Writes that messages were left out.
fn missed(text: &mut String, cursor: Cursor) {
    *text += &format!("event: missed\nid: {cursor}\ndata: true\n\n");
}

/// Writes a message.
fn event(text: &mut String, message: &Message, cursor: Cursor) {
    *text += &format!("id: {cursor}\n");
    match std::str::from_utf8(&message.data) {
        Ok(data) if message.is_text => {
            // Each of the three ends a line there, and reads as \n.
            for line in data.replace("\r\n", "\n").split(['\n', '\r']) {
                text.push_str("data: ");
                text.push_str(line);
                text.push('\n');
            }
        }
        _ => {
            text.push_str("event: base64\ndata: ");
            BASE64.encode_append(&message.data, text);
            text.push('\n');
        }
    }
    text.push('\n');
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        this.mailbox.remember(cx);
        if let Poll::Ready(error) = this.unread.poll_failed(cx) {
            return Poll::Ready(Some(Err(error.into())));
        }
        let mut text = std::mem::take(&mut this.text);
        while text.len() < PIECE
            && let Some(message) = this.mailbox.take(&this.subscription.local_subscribers.hub)
        {
            let local_subscribers = &this.subscription.local_subscribers;
            if message.id > this.last + 1 {
                missed(&mut text, local_subscribers.cursor(message.id - 1));
            }
            this.last = message.id;
            // Growing step by step would leave the text with twice the memory that it needs.
            text.reserve_exact(message.data.len() + LINES);
            event(&mut text, &message, local_subscribers.cursor(message.id));
        }
        if text.is_empty() && this.mailbox.ended().is_some() {
            return Poll::Ready(None);
        }
        if text.is_empty() {
            if Pin::new(&mut this.timer).poll(cx).is_pending() {
                return Poll::Pending;
            }
            text.push_str(":\n\n");
        }
        this.timer.reset(Instant::now() + this.silence);
        Poll::Ready(Some(Ok(Frame::data(text.into()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_line_endings_are_recognised() {
        let cursor = Cursor { id: 3, epoch: Some(10) };
        let mut text = String::new();
        let message = Message { id: 3, data: "a\r\nb\rc\n\n d".into(), is_text: true };
        event(&mut text, &message, cursor);
        assert_eq!(text, "id: 3-a\ndata: a\ndata: b\ndata: c\ndata: \ndata:  d\n\n");
        text.clear();
        event(&mut text, &Message { data: "".into(), ..message.clone() }, cursor);
        assert_eq!(text, "id: 3-a\ndata: \n\n");
        text.clear();
        event(&mut text, &Message { data: "\u{1}".into(), is_text: false, id: 3 }, cursor);
        assert_eq!(text, "id: 3-a\nevent: base64\ndata: AQ==\n\n");
    }

    #[test]
    fn event_streams_are_found_in_a_list_of_media_types() {
        let asked = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::ACCEPT, HeaderValue::from_static(accept));
            are_asked_for(&headers)
        };
        assert!(asked("text/event-stream"));
        assert!(asked("text/html, Text/Event-Stream;q=0.5"));
        assert!(!asked("text/event-streams, */*"));
        assert!(!asked("text/event-stream;q=0, */*"));
        assert!(!are_asked_for(&HeaderMap::new()));
    }
}
