//! Subscribing by WebSocket (RFC 6455).

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use data_encoding::BASE64;
use futures_io::{AsyncRead, AsyncWrite};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use superpoll_rt::spawn;
use superpoll_rt::time::{Sleep, sleep, timeout};
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::frame::coding::CloseCode;

use super::counters;
use super::cursor::SubscribeRequest;
use super::form::Form;
use super::frames::PING;
use super::hub::PublishTurn;
use super::json_frame;
use super::local_subscribers::{Delivery, LocalSubscribers, Subscription};
use super::mailbox::{EndReason, Mailbox, Taken};
use super::parked::{Backlog, CLOSE, MOMENT, Next, ROUNDS, linger};
use super::rights::Grant;
use super::send_queue::SendQueue;
use super::session::{Session, SessionState};
use crate::body::Body;
use crate::config::Slow;
use crate::exchange::Exchange;
use crate::log::Entry;
use crate::parked_stream::{ParkedStream, is_later};
use crate::parking_lot::ParkedConnection;
use crate::peer::Peer;
use crate::reply;
use crate::transport::Transport;

/// The most bytes that are made ready to be written before the rest is left with the messages that
/// wait.
pub(super) const OUTPUT: usize = 64 << 10;

/// Tells a client that its channel began anew.
pub(super) const REPLACED: &str = "messages of this channel are lost; connect again";

/// The field that says that some messages that were asked for are not kept any more.
const MISSED: HeaderName = HeaderName::from_static("channel-missed");

/// Whether a field has a token, in lower case or not.
fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let fields = headers.get_all(name).into_iter();
    let mut tokens = fields.flat_map(|field| field.to_str().unwrap_or("").split(','));
    tokens.any(|said| said.trim().eq_ignore_ascii_case(token))
}

/// Whether a client asks for WebSocket.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    has_token(headers, UPGRADE, "websocket") && has_token(headers, CONNECTION, "upgrade")
}

/// Returns the key with which a client proves that it speaks WebSocket.
fn key(headers: &HeaderMap) -> Option<&[u8]> {
    let mut keys = headers.get_all(SEC_WEBSOCKET_KEY).into_iter();
    let key = keys.next().filter(|_| keys.next().is_none())?.as_bytes();
    let bytes = BASE64.decode(key).ok()?;
    (bytes.len() == 16).then_some(key)
}

/// Whether a client offers the subprotocol `superpoll.v1`.
pub(super) fn speaks_json(headers: &HeaderMap) -> bool {
    has_token(headers, SEC_WEBSOCKET_PROTOCOL, json_frame::PROTOCOL)
}

/// Checks a handshake, and returns the fields of the response that agrees to it.
pub(super) fn handshake(headers: &HeaderMap) -> Result<HeaderMap, Box<Response<Body>>> {
    let version = headers.get(SEC_WEBSOCKET_VERSION);
    if version.is_none_or(|version| version.as_bytes() != b"13") {
        let text = "only version 13 of WebSocket is supported\n";
        let mut response = reply::text(StatusCode::UPGRADE_REQUIRED, text);
        let headers = response.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Err(Box::new(response));
    }
    let Some(accept) =
        key(headers).and_then(|key| HeaderValue::from_str(&derive_accept_key(key)).ok())
    else {
        let text = "Sec-WebSocket-Key has to be 16 bytes in base64\n";
        return Err(Box::new(reply::text(StatusCode::BAD_REQUEST, text)));
    };
    let mut fields = HeaderMap::new();
    fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
    fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    fields.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if speaks_json(headers) {
        let protocol = HeaderValue::from_static(json_frame::PROTOCOL);
        fields.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(fields)
}

/// Writes as much of a session's output as there is room for, and returns how many bytes that was.
pub(super) fn write_out(
    session: &mut Session,
    cx: &mut Context<'_>,
    transport: &mut Transport,
) -> io::Result<usize> {
    let mut all = 0;
    while session.left() > 0 {
        let written =
            session.write(|parts| match Pin::new(&mut *transport).poll_write_vectored(cx, parts) {
                Poll::Ready(Ok(0)) => Err(Some(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => Ok(count),
                Poll::Ready(Err(error)) => Err(Some(error)),
                Poll::Pending => Err(None),
            });
        match written {
            Ok(count) => all += count,
            Err(Some(error)) => return Err(error),
            Err(None) => return Ok(all),
        }
    }
    // Encrypted bytes may still wait for room; they are written when there is some.
    match Pin::new(transport).poll_flush(cx) {
        Poll::Ready(Err(error)) => Err(error),
        _ => Ok(all),
    }
}

impl LocalSubscribers {
    /// Answers the handshake, and continues the connection as a subscriber.
    pub(super) fn accept(
        self: Rc<LocalSubscribers>,
        asked_headers: &HeaderMap,
        asked: &SubscribeRequest,
        exchange: &Exchange,
        grant: Grant,
        sub: Option<Box<str>>,
    ) -> Response<Body> {
        if self.is_retired() {
            return reply::status(StatusCode::SERVICE_UNAVAILABLE);
        }
        let fields = match handshake(asked_headers) {
            Ok(fields) => fields,
            Err(response) => return *response,
        };
        let since = self.hub.since(asked.after);
        let start = since.messages.first().map_or(since.last, |message| message.id - 1);
        // Plain frames have no ids. A client that needs them counts from here.
        let mut response = self.empty_response(StatusCode::SWITCHING_PROTOCOLS, start);
        let headers = response.headers_mut();
        headers.extend(fields);
        if since.missed {
            headers.insert(MISSED, HeaderValue::from_static("true"));
        }
        let form = if speaks_json(asked_headers) { Form::Json } else { Form::WebSocket };
        let peer = exchange.peer().clone();
        // What is kept of them is sent; the handshake has told that there were others.
        let missed = since.missed;
        let entry = exchange.entry.clone();
        exchange.limit_unsent(self.hub.options().unsent_bytes);
        exchange.take_over(move |transport, read| {
            let client = (peer, sub, entry);
            Box::pin(self.begin(transport, client, read, (form, start, missed), grant))
        });
        response
    }

    /// Begins to send the messages after a given one.
    async fn begin(
        self: Rc<LocalSubscribers>,
        transport: Transport,
        (peer, sub, entry): (Rc<Peer>, Option<Box<str>>, Option<Rc<Entry>>),
        read: Bytes,
        (form, start, missed_some): (Form, u64, bool),
        grant: Grant,
    ) {
        let options = self.hub.options();
        let (since, present) = self.enter(Some(self.cursor(start)), sub);
        let (missed, last) = (since.missed, since.last);
        let mailbox = Rc::new(Mailbox::new(since, &options));
        let subscription = self.add(last, grant, Delivery::Task(mailbox.clone()));
        subscription.is_told(present);
        if let Some(entry) = &entry {
            entry.received(read.len() as u64);
        }
        self.keep_entry(subscription.index, entry);
        if missed {
            mailbox.note_gap();
        }
        if missed && options.slow == Slow::Disconnect {
            counters::count(&self.hub.counters().disconnected, 1);
            mailbox.end(EndReason::Slow);
        }
        if self.is_retired() {
            mailbox.end(EndReason::Retired);
        }
        let session = Session::new(options.message_bytes, form, grant.may_publish);
        let mut session = session.limited(self.publisher(&peer));
        if form == Form::Json {
            session.send_place(start, missed_some, self.hub.source());
        }
        if !read.is_empty() {
            session.read(read, &self.hub);
        }
        SocketSession::new(subscription, mailbox, session, peer, form).run(transport).await;
    }

    /// Reads from a parked WebSocket, and parks it again if that was all.
    pub(super) fn read_parked(
        self: Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        form: Form,
    ) {
        if parked.stream.is_encrypted() {
            // A record may take several reads, and may have to be answered.
            let backlog = Backlog { rest: Bytes::new(), mailbox: Rc::default() };
            return self.continue_socket(index, parked, form, backlog);
        }
        let mut room = self.engine.read_buffer.borrow_mut();
        let bytes = match parked.stream.read_raw(&mut room) {
            Err(error) if is_later(&error) => {
                drop(room);
                return self.park_subscriber(index, parked, form, None);
            }
            Ok(0) | Err(_) => return self.lost(index),
            Ok(count) => Bytes::copy_from_slice(&room[..count]),
        };
        drop(room);
        self.note(index, |entry| entry.received(bytes.len() as u64));
        let may_publish = self.grant(index).may_publish;
        let session = Session::new(self.hub.options().message_bytes, form, may_publish);
        let mut session = session.limited(self.publisher(&parked.peer));
        session.read(bytes, &self.hub);
        if session.left() > 0 {
            match session.write(|parts| parked.stream.write_raw(&parts[0])) {
                Ok(count) => self.wrote(index, form, count),
                Err(_) => return self.lost(index),
            }
        }
        if session.is_idle() {
            self.park_subscriber(index, parked, form, None);
        } else {
            let backlog = Backlog { rest: Bytes::new(), mailbox: Rc::default() };
            self.spawn_session(index, parked, form, backlog, session);
        }
    }

    /// Continues a parked WebSocket in a task.
    pub(super) fn continue_socket(
        self: &Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        form: Form,
        backlog: Backlog,
    ) {
        let may_publish = self.grant(index).may_publish;
        let session = Session::new(self.hub.options().message_bytes, form, may_publish);
        let mut session = session.limited(self.publisher(&parked.peer));
        session.send_raw(&backlog.rest);
        self.spawn_session(index, parked, form, backlog, session);
    }

    fn spawn_session(
        self: &Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        form: Form,
        backlog: Backlog,
        session: Session,
    ) {
        let mailbox = backlog.mailbox;
        let subscription = Subscription::of(self, index);
        let Ok(transport) = parked.stream.resume() else { return };
        self.set(index, Delivery::Task(mailbox.clone()));
        let counted = self.parking_lot.task();
        let session_task = SocketSession::new(subscription, mailbox, session, parked.peer, form);
        let goes_on = async move {
            session_task.run(transport).await;
            drop(counted);
        };
        spawn(goes_on).detach();
    }
}

/// A WebSocket with a task.
struct SocketSession {
    subscription: Subscription,
    mailbox: Rc<Mailbox>,
    session: Session,
    peer: Rc<Peer>,
    form: Form,
    grant: Grant,
    /// Bytes were read since the last ping.
    heard: bool,
    /// The bytes that waited in the socket at the last ping.
    sends: SendQueue,
    /// The time at which the silence is too long.
    quiet_until: Instant,
    /// Output had to wait at the last ping, and some of it was written since. A stream of HTTP/2
    /// has no queue of its own that could be looked at.
    has_waited: bool,
    has_written: bool,
    /// The timer limits the end of the connection.
    ends: bool,
    /// Its place among the publishers that wait.
    turn: Option<PublishTurn>,
    /// The rest of the time that its next message waits, as it publishes too fast.
    pause: Option<Box<Sleep>>,
}

impl SocketSession {
    fn new(
        subscription: Subscription,
        mailbox: Rc<Mailbox>,
        session: Session,
        peer: Rc<Peer>,
        form: Form,
    ) -> SocketSession {
        let grant = subscription.local_subscribers.grant(subscription.index);
        SocketSession {
            subscription,
            mailbox,
            session,
            peer,
            form,
            grant,
            heard: true,
            sends: SendQueue::default(),
            quiet_until: Instant::now(),
            has_waited: false,
            has_written: false,
            ends: false,
            turn: None,
            pause: None,
        }
    }

    fn is_idle(&self) -> bool {
        self.session.is_idle() && self.mailbox.is_empty() && self.mailbox.ended().is_none()
    }

    async fn run(mut self, mut transport: Transport) {
        let silence = self.subscription.local_subscribers.hub.silence();
        self.quiet_until = Instant::now() + silence;
        let mut timer = pin!(sleep(self.grant.limit(silence)));
        // What has made an encrypted connection readable is still to be read.
        let mut is_read = matches!(transport, Transport::Plain(_));
        loop {
            if is_read && self.is_idle() && transport.is_quiet() {
                match transport.park() {
                    Ok(stream) => return self.park(stream),
                    Err(busy) => transport = busy,
                }
            }
            is_read = true;
            let next = poll_fn(|cx| self.poll(cx, &mut transport, timer.as_mut(), silence)).await;
            match next {
                Next::Idle => {}
                Next::Gone => {
                    let Subscription { local_subscribers, index, .. } = &self.subscription;
                    return local_subscribers.note(*index, Entry::gone);
                }
                Next::Over => break,
            }
        }
        if self.session.has_vanished() {
            let Subscription { local_subscribers, index, .. } = &self.subscription;
            local_subscribers.note(*index, Entry::gone);
        }
        // From here on it is not a subscriber.
        drop(self.subscription);
        let _ = timeout(CLOSE, linger(transport)).await;
    }

    fn park(self, stream: ParkedStream) {
        let (local_subscribers, index) =
            (self.subscription.local_subscribers.clone(), self.subscription.index);
        self.subscription.detach();
        let parked = ParkedConnection { stream, peer: self.peer, token: 0, pending: None };
        local_subscribers.park_subscriber(index, parked, self.form, None);
    }

    /// Makes frames of messages, as many as there is room for, and of the end.
    fn fill(&mut self) {
        while self.session.state() == SessionState::Open && self.session.left() < OUTPUT {
            match (
                self.mailbox.take(&self.subscription.local_subscribers.hub),
                self.mailbox.ended(),
            ) {
                (Some(taken), _) => self.send(&taken),
                (None, None) => return,
                (None, Some(EndReason::Slow)) => {
                    self.session.close(CloseCode::Again, "too many messages wait for you");
                }
                (None, Some(EndReason::Retired)) => self.session.close(CloseCode::Away, ""),
                (None, Some(EndReason::Expired)) => {
                    self.session.close(CloseCode::Policy, "the token has expired");
                }
                (None, Some(EndReason::Changed)) => {
                    let reason = "the rights of this channel have changed; connect again";
                    self.session.close(CloseCode::Restart, reason);
                }
                (None, Some(EndReason::Replaced)) => {
                    self.session.close(CloseCode::Restart, REPLACED);
                }
            }
        }
    }

    /// Sends a message, and that messages before it were left out, if the form has a way to say it.
    fn send(&mut self, taken: &Taken) {
        let hub = &self.subscription.local_subscribers.hub;
        let message = &taken.message;
        if taken.is_after_gap {
            if hub.is_gathering() {
                // A successor counts on each message, see `parked.rs`.
                return self.mailbox.end(EndReason::Slow);
            }
            if self.form == Form::Json {
                self.session.send_place(message.id - 1, true, hub.source());
            }
        }
        if hub.may_send(message) {
            self.session.send(message, hub.source());
        }
    }

    fn write(&mut self, cx: &mut Context<'_>, transport: &mut Transport) -> io::Result<bool> {
        let count = write_out(&mut self.session, cx, transport)?;
        self.sends.wrote(count);
        let Subscription { local_subscribers, index, .. } = &self.subscription;
        local_subscribers.wrote(*index, self.form, count);
        self.has_written |= count > 0;
        Ok(count > 0)
    }

    /// Continues with messages that had to wait, if it is their turn; returns whether it was.
    fn publish_on(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.session.is_held_up() || self.session.state() == SessionState::Over {
            (self.turn, self.pause) = (None, None);
            return false;
        }
        if self.session.is_publishing() {
            if self.session.poll_publishing(cx).is_pending() {
                return false;
            }
            self.session.go_on(&self.subscription.local_subscribers.hub, false);
            return true;
        }
        if let Some(wait) = self.session.pause() {
            let pause = self.pause.get_or_insert_with(|| Box::new(sleep(wait)));
            if Pin::new(&mut **pause).poll(cx).is_pending() {
                return false;
            }
            self.pause = None;
            self.session.go_on(&self.subscription.local_subscribers.hub, false);
            return true;
        }
        let hub = &self.subscription.local_subscribers.hub;
        // The memory that it holds is bounded like that of any connection.
        let turn = self.turn.get_or_insert_with(|| PublishTurn::new(hub));
        if turn.poll(0, cx).is_pending() {
            return false;
        }
        self.turn = None;
        self.session.go_on(&self.subscription.local_subscribers.hub, true);
        true
    }

    /// Reads once; `false` if no bytes have come.
    fn read(&mut self, cx: &mut Context<'_>, transport: &mut Transport) -> io::Result<bool> {
        let local_subscribers = &self.subscription.local_subscribers;
        let mut room = local_subscribers.engine.read_buffer.borrow_mut();
        match Pin::new(transport).poll_read(cx, &mut room) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(count)) => {
                let bytes = Bytes::copy_from_slice(&room[..count]);
                drop(room);
                let index = self.subscription.index;
                local_subscribers.note(index, |entry| entry.received(count as u64));
                self.heard = true;
                self.session.read(bytes, &local_subscribers.hub);
                Ok(true)
            }
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        mut timer: Pin<&mut Sleep>,
        silence: Duration,
    ) -> Poll<Next> {
        self.mailbox.remember(cx);
        for round in 0.. {
            if self.grant.is_over() {
                self.mailbox.end(EndReason::Expired);
            }
            if matches!(self.mailbox.ended(), Some(EndReason::Expired | EndReason::Changed)) {
                self.session.end_publishing();
            }
            self.fill();
            let Ok(wrote) = self.write(cx, transport) else { return Poll::Ready(Next::Gone) };
            if self.session.state() == SessionState::Over && self.session.left() == 0 {
                return Poll::Ready(Next::Over);
            }
            let went_on = self.publish_on(cx);
            // The task reads nothing from a client that does not read, nor from a client that
            // publishes more than the channel can deliver.
            let reads = self.session.state() != SessionState::Over
                && self.session.left() < OUTPUT
                && !self.session.is_held_up();
            let came = match reads.then(|| self.read(cx, transport)) {
                Some(Err(_)) => return Poll::Ready(Next::Gone),
                Some(Ok(came)) => came,
                None => false,
            };
            if !came && !wrote && !went_on {
                break;
            }
            if round == ROUNDS {
                cx.waker().wake_by_ref();
                break;
            }
        }
        if self.is_idle() && transport.is_quiet() {
            return Poll::Ready(Next::Idle);
        }
        if self.session.state() != SessionState::Open && !self.ends {
            self.ends = true;
            timer.as_mut().get_mut().reset(Instant::now() + CLOSE);
        }
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if !self.ends && self.grant.is_over() {
                // Its output is full: the client may not even read why.
                self.ends = true;
                timer.as_mut().get_mut().reset(now + CLOSE);
                continue;
            }
            if !self.ends && now < self.quiet_until {
                let rest = self.grant.limit(self.quiet_until - now).max(MOMENT);
                timer.as_mut().get_mut().reset(now + rest);
                continue;
            }
            // A client whose output waits is not read, and its pong waits behind that output.
            let lives = self.heard || self.session.is_held_up();
            let takes = match transport.plain() {
                Some(plain) => self.sends.has_moved(plain),
                None => self.has_waited && self.has_written,
            };
            if self.ends || !(lives || takes) {
                return Poll::Ready(Next::Gone);
            }
            self.sends = transport.plain().map_or_else(SendQueue::default, SendQueue::of);
            (self.has_waited, self.has_written) = (self.session.left() > 0, false);
            if !self.subscription.local_subscribers.hub.is_gathering() {
                self.heard = false;
                self.session.send_raw(PING);
            }
            self.quiet_until = now + silence;
            timer.as_mut().get_mut().reset(now + self.grant.limit(silence));
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
