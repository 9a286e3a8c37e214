//! Subscribing by server-sent events, as the HTML standard specifies them (section 9.2).
//!
//! Over plain HTTP/1.1 a stream of events leaves hyper before its response begins: the head of the
//! response and everything behind it is written here, by an [`EventsSession`], and the stream is
//! parked when there is nothing to write. A stream over HTTP/1.0, HTTP/2 or TLS, or with a body of
//! the request that has not come yet, is a body that hyper sends ([`EventsBody`]).

use std::future::pending;
use std::io::{self, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Frame;
use superpoll_rt::time::{Sleep, sleep};

use super::cursor::SubscribeRequest;
use super::event_text::{self, COMMENT};
use super::events_session::EventsSession;
use super::local_subscribers::{Delivery, LocalSubscribers, Subscription};
use super::mailbox::{EndReason, Mailbox, Taken};
use super::parked::Backlog;
use super::request::ForeignPage;
use super::rights::Grant;
use super::unread::Unread;
use crate::accept;
use crate::body::Body;
use crate::exchange::Exchange;
use crate::parking_lot::WaitingRequest;
use crate::reply;

/// The bytes that are written in one piece, give or take a message.
const PIECE: usize = 16 << 10;

/// The field that keeps reverse proxies from collecting events.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Whether a client accepts a stream of events.
pub(super) fn are_asked_for(headers: &HeaderMap) -> bool {
    accept::weight_of(headers, "text/event-stream").is_some_and(|weight| weight > 0)
}

/// Returns the fields of a stream's response.
fn fields() -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert(BUFFERING, HeaderValue::from_static("no"));
    fields
}

/// Returns the head of a response that hyper does not write, perhaps to the page of another site.
fn head(page: Option<ForeignPage>) -> Vec<u8> {
    let mut fields = fields();
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(page) = page {
        page.allow(&mut fields);
    }
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    for (name, value) in &fields {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    // Writing to memory cannot fail.
    let _ = write!(head, "date: {}\r\n", httpdate::fmt_http_date(SystemTime::now()));
    // No request follows on the connection: requests that the client has sent already are dropped.
    head.extend_from_slice(b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n");
    head
}

impl LocalSubscribers {
    /// Answers with messages as long as there are any, perhaps the page of another site.
    pub(super) async fn stream(
        self: Rc<LocalSubscribers>,
        asked: SubscribeRequest,
        exchange: &Exchange,
        unread: Unread,
        page: Option<ForeignPage>,
        grant: Grant,
    ) -> Response<Body> {
        if self.is_retired() {
            return reply::status(StatusCode::SERVICE_UNAVAILABLE);
        }
        if exchange.can_wait() && exchange.can_take_over() {
            exchange.wait(move |waiting| self.begin_events(waiting, asked, page, grant));
            return pending().await;
        }
        exchange.end_with_client();
        let (subscription, backlog) = self.subscribe_to_events(asked, grant, false);
        let Backlog { rest, mailbox } = backlog;
        let silence = self.hub.silence();
        let body = EventsBody {
            writer: EventWriter { subscription, mailbox, is_chunked: false },
            unread,
            text: rest,
            silence,
            timer: sleep(grant.limit(silence)),
            grant,
        };
        let mut response = Response::new(Body::stream(body));
        *response.headers_mut() = fields();
        response
    }

    /// Begins a stream without hyper.
    fn begin_events(
        self: Rc<LocalSubscribers>,
        waiting: WaitingRequest,
        asked: SubscribeRequest,
        page: Option<ForeignPage>,
        grant: Grant,
    ) {
        if self.is_retired() {
            return waiting.answer(reply::status(StatusCode::SERVICE_UNAVAILABLE));
        }
        let mut parked = waiting.parked;
        let (subscription, backlog) = self.subscribe_to_events(asked, grant, true);
        if let Some(pending) = parked.pending.take()
            && let Some(entry) = pending.by.begin_response(pending.note)
        {
            self.entries.borrow_mut().insert(subscription.index, entry);
        }
        let session = EventsSession::new(subscription, parked.peer, backlog);
        session.with_head(head(page)).start(parked.socket);
    }

    /// Enters a subscriber, and returns the messages that it has missed, behind the event that
    /// tells it where it begins.
    fn subscribe_to_events(
        self: &Rc<LocalSubscribers>,
        asked: SubscribeRequest,
        grant: Grant,
        is_chunked: bool,
    ) -> (Subscription, Backlog) {
        let since = self.hub.join(self.queue_id, asked.after);
        let start = since.messages.first().map_or(since.last, |message| message.id - 1);
        let (missed, last) = (since.missed, since.last);
        let mailbox = Rc::new(Mailbox::new(since, &self.hub.options()));
        let subscription = self.add(last, grant, Delivery::Task(mailbox.clone()));
        let cursor = self.cursor(start);
        let mut text = Vec::new();
        put(&mut text, is_chunked, |text| {
            event_text::begin(text, cursor);
            if missed {
                event_text::missed(text, cursor);
            }
        });
        (subscription, Backlog { rest: text.into(), mailbox })
    }
}

/// Writes events, as a chunk or as they are.
fn put(text: &mut Vec<u8>, is_chunked: bool, write: impl FnOnce(&mut Vec<u8>)) {
    if is_chunked {
        event_text::chunk(text, write);
    } else {
        write(text);
    }
}

/// Makes events of the messages that wait for a subscriber with a task.
pub(super) struct EventWriter {
    pub subscription: Subscription,
    pub mailbox: Rc<Mailbox>,
    /// Whether each event is a chunk.
    pub is_chunked: bool,
}

impl EventWriter {
    /// Writes a piece of text, or less if no more messages wait.
    pub(super) fn fill(&mut self, text: &mut Vec<u8>) {
        let local_subscribers = &self.subscription.local_subscribers;
        let hub = &local_subscribers.hub;
        while text.len() < PIECE
            && let Some(Taken { message, is_after_gap }) = self.mailbox.take(hub)
        {
            if is_after_gap {
                if self.is_chunked && hub.is_gathering() {
                    // A successor counts on each message, see `parked.rs`.
                    self.mailbox.end(EndReason::Slow);
                    return;
                }
                let cursor = local_subscribers.cursor(message.id - 1);
                put(text, self.is_chunked, |text| event_text::missed(text, cursor));
            }
            if !hub.may_send(&message) {
                continue;
            }
            let cursor = local_subscribers.cursor(message.id);
            put(text, self.is_chunked, |text| event_text::message(text, &message, cursor));
        }
    }
}

/// A stream that hyper sends.
struct EventsBody {
    writer: EventWriter,
    unread: Unread,
    /// The text to be written before the messages.
    text: Bytes,
    /// The length of a silence after which a comment shows that the connection lives.
    silence: Duration,
    /// For the end of that time, or of the grant.
    timer: Sleep,
    grant: Grant,
}

impl http_body::Body for EventsBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        this.writer.mailbox.remember(cx);
        if let Poll::Ready(error) = this.unread.poll_failed(cx) {
            return Poll::Ready(Some(Err(error.into())));
        }
        if this.grant.is_over() {
            this.writer.mailbox.end(EndReason::Expired);
        }
        let mut text = Vec::from(std::mem::take(&mut this.text));
        this.writer.fill(&mut text);
        if text.is_empty() && this.writer.mailbox.ended().is_some() {
            return Poll::Ready(None);
        }
        if text.is_empty() {
            if Pin::new(&mut this.timer).poll(cx).is_pending() {
                return Poll::Pending;
            }
            text.extend_from_slice(COMMENT);
        }
        this.timer.reset(Instant::now() + this.grant.limit(this.silence));
        Poll::Ready(Some(Ok(Frame::data(text.into()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
