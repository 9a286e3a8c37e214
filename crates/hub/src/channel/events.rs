//! Subscribing by server-sent events, as the HTML standard specifies them (section 9.2).
//!
//! Over HTTP/1.1 a stream of events leaves its task before its response begins: the head of the
//! response and everything after it is written here, by an [`EventsSession`], and the stream is
//! parked when there is nothing to write. A stream over HTTP/1.0 or HTTP/2, or with a body of
//! the request that has not arrived yet, is a usual body ([`EventsBody`]).

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Frame;
use superpoll_http::accept;
use superpoll_http::body::{Body, PollFrame, RestingBody};
use superpoll_http::exchange::Exchange;
use superpoll_http::grant::Grant;
use superpoll_http::mercure::reader_record::ReaderRecord;
use superpoll_http::message::last_chunked_head;
use superpoll_http::parking_lot::WaitingRequest;
use superpoll_http::peer::Peer;
use superpoll_http::plain_stream::limit_unsent;
use superpoll_http::reply;
use superpoll_http::trace::RequestTrace;
use superpoll_http1::chunk;
use superpoll_rt::time::{self, Sleep, sleep};

use super::cursor::Cursor;
use super::event_text::{self, COMMENT};
use super::events_session::EventsSession;
use super::foreign_page::ForeignPage;
use super::form::Form;
use super::grip::stream::HeldStream;
use super::joined::{self, Invitation, JoinedChannels};
use super::json_frame;
use super::local_subscribers::{LocalSubscribers, SubscriberState, Subscription};
use super::mailbox::{EndReason, Mailbox, Taken};
use super::mercure::{EARLIEST, update};
use super::moment::Moment;
use super::parked::Backlog;
use super::presence::User;
use super::reader::Reader;
use super::resting::{LastSign, RestingSubscriber};
use super::unread::Unread;

/// The bytes that are written in one piece, give or take a message.
const PIECE: usize = 16 << 10;

/// The field that keeps reverse proxies from collecting events.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The id of the last event that a client has, or the one before the first that it gets.
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

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

/// A stream of events that a client asks for.
pub(super) struct StreamRequest {
    /// The place to begin after; without it, the messages from now on.
    pub after: Option<Cursor>,
    pub grant: Grant,
    /// The client's user, if it has a name.
    pub user: Option<User>,
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
        let Beginning { subscription, backlog, form, fields } =
            self.subscribe_to_events(asked, false);
        let channels = JoinedChannels::one(subscription, backlog.mailbox);
        let writer = EventWriter::new(channels, form, false);
        let mut response =
            Response::new(Body::resting(EventsBody::new(writer, unread, backlog.rest.into())));
        *response.headers_mut() = fields;
        response
    }

    /// Begins a stream without a task of HTTP.
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

    /// Returns the head of a response that is written here, perhaps to the page of another
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
        // No request follows on the connection: requests that the client has sent already are
        // dropped.
        last_chunked_head(StatusCode::OK, &fields)
    }

    /// Enters a subscriber, and returns the messages that it has missed, after the lines that tell
    /// it where it begins.
    fn subscribe_to_events(
        self: &Rc<LocalSubscribers>,
        asked: StreamRequest,
        is_chunked: bool,
    ) -> Beginning {
        let (since, name) = self.enter(asked.after, asked.user);
        let start = since.messages.first().map_or(since.last, |message| message.id - 1);
        let (missed, last) = (since.missed, since.last);
        let mailbox = Rc::new(Mailbox::new(since, &self.hub.options()));
        let subscription = self.add(last, asked.grant, SubscriberState::Task(mailbox.clone()));
        subscription.is_of(name);
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
        chunk(text, write);
    } else {
        write(text);
    }
}

/// Answers with the messages of several channels as long as there are any.
pub(super) fn stream_of_several(
    exchange: &Exchange,
    invitations: Vec<Invitation>,
    unread: Unread,
) -> Response<Body> {
    exchange.end_with_client();
    joined::limit_unsent(exchange, &invitations);
    let body = EventsBody::of_several(invitations, unread);
    let mut response = Response::new(Body::resting(body));
    *response.headers_mut() = fields();
    response
}

/// Makes events of the messages that wait for a subscriber with a task.
pub(super) struct EventWriter {
    pub channels: JoinedChannels,
    /// The form of the messages of one channel. Those of several have the JSON of `superpoll.v1`,
    /// which names the channel, and each event has the position in all channels as its id.
    pub form: Form,
    /// Whether each event is a chunk.
    is_chunked: bool,
    /// The reader that it is, unless it gets all messages.
    reader: Option<Rc<Reader>>,
    /// The stream that an application holds, if it is one.
    held: Option<Box<HeldStream>>,
}

impl EventWriter {
    pub(super) fn new(channels: JoinedChannels, form: Form, is_chunked: bool) -> EventWriter {
        let first = channels.first();
        let reader = first.subscribers().reader(first.subscription.index);
        let held = reader.as_ref().and_then(|reader| reader.held());
        let held = held.map(|record| Box::new(HeldStream::new(record)));
        EventWriter { channels, form, is_chunked, reader, held }
    }

    /// Returns the subscription, which keeps the state that the application has given it.
    pub(super) fn into_subscription(self) -> Subscription {
        let subscription = self.channels.into_subscription();
        if let Some(held) = &self.held
            && self
                .reader
                .as_ref()
                .and_then(|reader| reader.held())
                .is_none_or(|known| *known != *held.record())
        {
            let by = &subscription.local_subscribers;
            by.read_as(subscription.index, held.record().clone(), false);
        }
        subscription
    }

    /// Makes items up to these positions in the log no news to a stream that an application holds,
    /// by channel.
    pub(super) fn begin_after(&mut self, floors: Vec<u64>) {
        self.held.iter_mut().for_each(|held| held.begin_after(floors.clone()));
    }

    /// Whether nothing is under way apart from messages.
    pub(super) fn is_quiet(&self) -> bool {
        self.held.as_ref().is_none_or(|held| !held.is_stopped())
    }

    /// Whether nothing follows.
    pub(super) fn is_over(&self) -> bool {
        self.channels.ended().is_some() || self.held.as_ref().is_some_and(|held| held.is_over())
    }

    /// Whether an application says what is sent in silence.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// The same as [`fill`](EventWriter::fill), with what an application adds to the messages.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>, text: &mut Vec<u8>) {
        self.fill(text);
        while text.len() < PIECE
            && self.channels.ended().is_none()
            && let Some(held) = &mut self.held
            && let Poll::Ready(content) = held.poll(cx, &self.channels.first().subscription)
        {
            if let Some(content) = content.filter(|content| !content.is_empty()) {
                put(text, self.is_chunked, |text| text.extend_from_slice(&content));
            }
            self.fill(text);
        }
        self.note_end();
    }

    /// Writes the content of items, until one of them is more than content.
    fn fill_held(&mut self, text: &mut Vec<u8>) {
        while text.len() < PIECE
            && self.channels.ended().is_none()
            && let Some(held) = &mut self.held
            && !held.is_stopped()
            && !held.waits(self.channels.first().subscribers())
            && let Some((index, Taken { message, is_after_gap })) = self.channels.take()
        {
            if is_after_gap {
                // Nothing tells the client, or its application.
                return self.channels.end(index, EndReason::Slow);
            }
            self.channels.wrote(index, message.id);
            if let Some(content) = held.take(&message).filter(|content| !content.is_empty()) {
                let Subscription { local_subscribers, index, .. } =
                    &self.channels.first().subscription;
                local_subscribers.note_held(*index, |times| times.news = Moment::now());
                put(text, self.is_chunked, |text| text.extend_from_slice(&content));
            }
        }
        self.note_end();
    }

    /// Keeps the state of a stream that its application has ended: it is not told that its client
    /// has gone.
    fn note_end(&mut self) {
        if let Some(record) = self.held.as_mut().and_then(|held| held.ended()) {
            let Subscription { local_subscribers, index, .. } = &self.channels.first().subscription;
            local_subscribers.read_as(*index, record, false);
        }
    }

    /// Writes a piece of text, or less if no more messages wait.
    pub(super) fn fill(&mut self, text: &mut Vec<u8>) {
        if self.held.is_some() {
            return self.fill_held(text);
        }
        while text.len() < PIECE
            && self.channels.ended().is_none()
            && let Some((index, Taken { message, is_after_gap })) = self.channels.take()
        {
            if is_after_gap {
                if self.is_chunked && self.channels.is_gathering() {
                    // A successor counts on each message, see `parked.rs`.
                    return self.channels.end(index, EndReason::Slow);
                }
                self.write_missed(index, message.id - 1, text);
            }
            self.channels.wrote(index, message.id);
            let hub = self.channels.hub(index);
            let is_wanted = self.reader.as_ref().is_none_or(|reader| reader.gets(&message));
            if !is_wanted || !hub.may_send(&message) {
                continue;
            }
            if self.form == Form::Json {
                let json = json_frame::message_json(&message, hub.source());
                event_text::json(text, &json, self.channels.position());
            } else {
                let (form, epoch) = (self.form, hub.epoch());
                put(text, self.is_chunked, |text| form.write_event(&message, epoch, text));
            }
        }
    }

    /// Writes that messages of a channel up to a position were left out, if the form has a way to
    /// say it.
    fn write_missed(&self, index: usize, id: u64, text: &mut Vec<u8>) {
        let hub = self.channels.hub(index);
        if self.form == Form::Json {
            let json = json_frame::place_json(id, true, hub.source());
            event_text::json(text, &json, self.channels.position());
        } else if self.form == Form::Events {
            let cursor = Cursor { id, epoch: Some(hub.epoch()) };
            put(text, self.is_chunked, |text| event_text::missed(text, cursor));
        }
    }
}

/// A stream that is the body of a response.
pub(super) struct EventsBody {
    writer: EventWriter,
    unread: Unread,
    /// The text to be written before the messages.
    text: Vec<u8>,
    /// The length of a silence after which a comment shows that the connection lives.
    silence: Duration,
    /// For the end of that time, or of the first grant.
    timer: Sleep,
    sign: LastSign,
}

impl EventsBody {
    /// Continues with a stream that was parked.
    pub(super) fn again(resting: RestingSubscriber) -> EventsBody {
        let RestingSubscriber { subscription, mailbox, form, sign, .. } = resting;
        let writer = EventWriter::new(JoinedChannels::one(subscription, mailbox), form, false);
        let mut body = EventsBody::new(writer, Unread::default(), Vec::new());
        body.timer = sleep(body.writer.channels.limit(sign.left(body.silence)));
        EventsBody { sign, ..body }
    }

    /// Returns the subscriber of a body that rests.
    pub(super) fn into_parts(self, peer: Rc<Peer>) -> RestingSubscriber {
        let (form, sign) = (self.writer.form, self.sign);
        let mailbox = self.writer.channels.first().mailbox.clone();
        let subscription = self.writer.into_subscription();
        RestingSubscriber { subscription, mailbox, form, peer, sign }
    }

    /// Begins a stream that an application holds.
    pub(super) fn of_held(writer: EventWriter, unread: Unread, text: Vec<u8>) -> EventsBody {
        EventsBody::new(writer, unread, text)
    }

    fn new(writer: EventWriter, unread: Unread, text: Vec<u8>) -> EventsBody {
        let silence = writer.channels.silence();
        let timer = sleep(writer.channels.limit(silence));
        EventsBody { writer, unread, text, silence, timer, sign: LastSign::now(false) }
    }

    /// Joins several channels, and tells the client where it begins.
    pub(super) fn of_several(invitations: Vec<Invitation>, unread: Unread) -> EventsBody {
        let starts: Vec<_> = invitations.iter().map(|invitation| invitation.start).collect();
        let writer = EventWriter::new(JoinedChannels::join(invitations), Form::Json, false);
        let mut text = Vec::new();
        event_text::begin(&mut text, writer.channels.position());
        for (index, start) in starts.into_iter().enumerate().filter(|(_, start)| start.missed) {
            writer.write_missed(index, start.id, &mut text);
        }
        EventsBody::new(writer, unread, text)
    }
}

impl RestingBody for EventsBody {
    /// One with several channels never rests: a successor could not tell which of its bytes are of
    /// which channel.
    fn can_rest(&self) -> bool {
        let channels = &self.writer.channels;
        self.text.is_empty()
            && self.unread.is_over()
            && channels.is_one()
            && self.writer.form != Form::Json
            && self.writer.is_quiet()
            && channels.is_empty()
            && channels.first().mailbox.ended().is_none()
    }
}

impl http_body::Body for EventsBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollFrame {
        let this = self.get_mut();
        this.writer.channels.remember(cx);
        if let Poll::Ready(error) = this.unread.poll_failed(cx) {
            return Poll::Ready(Some(Err(error.into())));
        }
        this.writer.channels.check_grants();
        let mut text = std::mem::take(&mut this.text);
        this.writer.poll_fill(cx, &mut text);
        if text.is_empty() && this.writer.is_over() {
            return Poll::Ready(None);
        }
        if text.is_empty() && this.writer.is_held() {
            return Poll::Pending;
        }
        if text.is_empty() {
            if Pin::new(&mut this.timer).poll(cx).is_pending() {
                return Poll::Pending;
            }
            text.extend_from_slice(COMMENT);
        }
        this.timer.reset(time::now() + this.writer.channels.limit(this.silence));
        this.sign = LastSign::now(false);
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
