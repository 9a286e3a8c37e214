//! Subscribing by server-sent events, as the HTML standard specifies them (section 9.2).
//!
//! Over HTTP/1.1 a stream of events leaves hyper before its response begins: the head of the
//! response and everything behind it is written here, by an [`EventsSession`], and the stream is
//! parked when there is nothing to write. A stream over HTTP/1.0 or HTTP/2, or with a body of
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

use super::cursor::Cursor;
use super::event_text::{self, COMMENT};
use super::events_session::EventsSession;
use super::foreign_page::ForeignPage;
use super::form::Form;
use super::local_subscribers::{Delivery, LocalSubscribers, Subscription};
use super::mailbox::{EndReason, Mailbox, Taken};
use super::mercure::reader::{Reader, ReaderRecord};
use super::mercure::{EARLIEST, update};
use super::parked::Backlog;
use super::rights::Grant;
use super::unread::Unread;
use crate::accept;
use crate::body::Body;
use crate::exchange::Exchange;
use crate::parking_lot::WaitingRequest;
use crate::plain_stream::limit_unsent;
use crate::reply;
use crate::trace::RequestTrace;

/// The bytes that are written in one piece, give or take a message.
pub(super) const PIECE: usize = 16 << 10;

/// The field that keeps reverse proxies from collecting events.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The id of the last event that a client has, or the one before the first that it gets.
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Whether a client accepts a stream of events.
pub(super) fn are_asked_for(headers: &HeaderMap) -> bool {
    accept::weight_of(headers, "text/event-stream").is_some_and(|weight| weight > 0)
}

/// Returns the fields of a stream's response.
pub(super) fn fields() -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert(BUFFERING, HeaderValue::from_static("no"));
    fields
}

/// A stream of events that a client asks for.
pub(super) struct StreamRequest {
    /// The place to begin after; without it, the messages from now on.
    pub after: Option<Cursor>,
    pub grant: Grant,
    /// The subject of the client's token, if the channel is told of it.
    pub sub: Option<Box<str>>,
    /// The page of another site that asks for it.
    pub page: Option<ForeignPage>,
    /// The rest of the question, if it is one of Mercure.
    pub mercure: Option<MercureRequest>,
}

/// The part of a request that only a client of Mercure sends.
pub(super) struct MercureRequest {
    pub reader: ReaderRecord,
    /// The id of the last event that it has, as it was asked for.
    pub last_event_id: Option<String>,
}

/// The beginning of a stream of events.
struct Beginning {
    subscription: Subscription,
    backlog: Backlog,
    form: Form,
    /// The fields of the response.
    fields: HeaderMap,
}

impl LocalSubscribers {
    /// Answers with messages as long as there are any, perhaps the page of another site.
    pub(super) async fn stream(
        self: Rc<LocalSubscribers>,
        asked: StreamRequest,
        exchange: &Exchange,
        unread: Unread,
    ) -> Response<Body> {
        if self.is_retired() {
            return reply::status(StatusCode::SERVICE_UNAVAILABLE);
        }
        if exchange.can_wait() && exchange.can_take_over() {
            let trace = exchange.trace.clone();
            exchange.wait(move |waiting| self.begin_events(waiting, asked, trace));
            return pending().await;
        }
        exchange.end_with_client();
        exchange.limit_unsent(self.hub.options().unsent_bytes);
        let grant = asked.grant;
        let Beginning { subscription, backlog, form, fields } =
            self.subscribe_to_events(asked, false);
        let Backlog { rest, mailbox } = backlog;
        let silence = self.hub.silence();
        let body = EventsBody {
            writer: EventWriter::new(subscription, mailbox, form, false),
            unread,
            text: rest,
            silence,
            timer: sleep(grant.limit(silence)),
            grant,
        };
        let mut response = Response::new(Body::stream(body));
        *response.headers_mut() = fields;
        response
    }

    /// Begins a stream without hyper.
    fn begin_events(
        self: Rc<LocalSubscribers>,
        waiting: WaitingRequest,
        mut asked: StreamRequest,
        trace: Option<Rc<RequestTrace>>,
    ) {
        let page = asked.page.take();
        if self.is_retired() {
            let mut response = reply::status(StatusCode::SERVICE_UNAVAILABLE);
            add_fields(response.headers_mut(), page);
            return self.answer_waiting(waiting, response);
        }
        let mut parked = waiting.parked;
        limit_unsent(&parked.stream, self.hub.options().unsent_bytes);
        let pending = parked.pending.as_ref();
        let may_have_hsts = pending.is_some_and(|pending| pending.form.may_have_hsts);
        let Beginning { subscription, backlog, form, fields } =
            self.subscribe_to_events(asked, true);
        if let Some(pending) = parked.pending.take() {
            let entry = pending.note.and_then(|note| note.entry);
            pending.by.begin_response(entry.as_deref());
            self.keep_entry(subscription.index, entry);
        }
        let session = EventsSession::new(subscription, parked.peer, form, backlog);
        let head = self.head(fields, page, may_have_hsts, trace.as_deref());
        session.with_head(head).start(parked.stream);
    }

    /// Returns the head of a response that hyper does not write, perhaps to the page of another
    /// site.
    fn head(
        &self,
        mut fields: HeaderMap,
        page: Option<ForeignPage>,
        may_have_hsts: bool,
        trace: Option<&RequestTrace>,
    ) -> Vec<u8> {
        add_fields(&mut fields, page);
        self.change_fields(&mut fields, may_have_hsts);
        if let Some(trace) = trace {
            trace.mark(&mut fields);
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
        // No request follows on the connection: requests that the client has sent already are
        // dropped.
        head.extend_from_slice(b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n");
        head
    }

    /// Enters a subscriber, and returns the messages that it has missed, after the lines that tell
    /// it where it begins.
    fn subscribe_to_events(
        self: &Rc<LocalSubscribers>,
        asked: StreamRequest,
        is_chunked: bool,
    ) -> Beginning {
        let (since, present) = self.enter(asked.after, asked.sub);
        let start = since.messages.first().map_or(since.last, |message| message.id - 1);
        let (missed, last) = (since.missed, since.last);
        let mailbox = Rc::new(Mailbox::new(since, &self.hub.options()));
        let subscription = self.add(last, asked.grant, Delivery::Task(mailbox.clone()));
        subscription.is_told(present);
        let cursor = self.cursor(start);
        let (mut text, mut fields) = (Vec::new(), fields());
        let form = match asked.mercure {
            None => {
                put(&mut text, is_chunked, |text| {
                    event_text::begin(text, cursor);
                    if missed {
                        event_text::missed(text, cursor);
                    }
                });
                // For clients that have no line of the stream before its first event is complete.
                if let Ok(place) = HeaderValue::try_from(cursor.to_string()) {
                    fields.insert(LAST_EVENT_ID, place);
                }
                Form::Events
            }
            Some(MercureRequest { reader, last_event_id }) => {
                self.read_as(subscription.index, reader, true);
                put(&mut text, is_chunked, |text| event_text::begin(text, update::place(cursor)));
                // The event before the first one that is sent: the one that was asked for, or none
                // that is known.
                let before = last_event_id.map(|id| if missed { EARLIEST.to_owned() } else { id });
                if let Some(before) = before.and_then(|id| HeaderValue::try_from(id).ok()) {
                    fields.insert(LAST_EVENT_ID, before);
                }
                Form::Mercure
            }
        };
        let backlog = Backlog { rest: text.into(), mailbox };
        Beginning { subscription, backlog, form, fields }
    }
}

/// Adds the fields that all answers of a channel have, perhaps to the page of another site.
fn add_fields(fields: &mut HeaderMap, page: Option<ForeignPage>) {
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(page) = page {
        page.allow(fields);
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
    pub form: Form,
    /// Whether each event is a chunk.
    is_chunked: bool,
    /// The reader that it is, unless it gets all messages.
    reader: Option<Rc<Reader>>,
}

impl EventWriter {
    pub(super) fn new(
        subscription: Subscription,
        mailbox: Rc<Mailbox>,
        form: Form,
        is_chunked: bool,
    ) -> EventWriter {
        let reader = subscription.local_subscribers.reader(subscription.index);
        EventWriter { subscription, mailbox, form, is_chunked, reader }
    }

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
                if self.form == Form::Events {
                    let cursor = local_subscribers.cursor(message.id - 1);
                    put(text, self.is_chunked, |text| event_text::missed(text, cursor));
                }
            }
            let is_wanted = self.reader.as_ref().is_none_or(|reader| reader.gets(&message));
            if !is_wanted || !hub.may_send(&message) {
                continue;
            }
            let (form, epoch) = (self.form, hub.epoch());
            put(text, self.is_chunked, |text| form.write_event(&message, epoch, text));
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
