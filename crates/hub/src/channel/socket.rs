//! Subscribing by WebSocket (RFC 6455).

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use data_encoding::BASE64;
use futures_io::{AsyncRead, AsyncWrite};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use superpoll_http::body::Body;
use superpoll_http::exchange::Exchange;
use superpoll_http::grant::Grant;
use superpoll_http::http2_stream::{Http2Stream, Resting};
use superpoll_http::log::Entry;
use superpoll_http::parked_stream::{ParkedStream, is_later};
use superpoll_http::parking_lot::ParkedConnection;
use superpoll_http::peer::Peer;
use superpoll_http::reply;
use superpoll_http::transport::Transport;
use superpoll_rt::spawn;
use superpoll_rt::time::{self, Sleep, sleep, timeout};
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::frame::coding::CloseCode;

use super::cursor::SubscribeRequest;
use super::form::Form;
use super::frames::PING;
use super::grip::app_socket::{AppSocket, Step};
use super::hub::PublishTurn;
use super::joined::{Invitation, JoinedChannels, Start, limit_unsent};
use super::json_frame;
use super::local_subscribers::{LocalSubscribers, SubscriberState, Subscription};
use super::mailbox::{EndReason, Taken};
use super::moment::Moment;
use super::parked::{Backlog, CLOSE, MOMENT, Next, ROUNDS, linger};
use super::presence::User;
use super::resting::{LastSign, RestingSubscriber};
use super::send_queue::SendQueue;
use super::session::{Session, SessionState};

/// The most bytes that are made ready to be written before the rest is left with the messages that
/// wait.
const OUTPUT: usize = 64 << 10;

/// Tells a client that its channel began again.
const REPLACED: &str = "messages of this channel are lost; connect again";

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

/// Answers a handshake, and continues the connection as a subscriber of the channels. Returns the
/// fields of the response that agrees to it.
pub(super) fn accept(
    asked_headers: &HeaderMap,
    exchange: &Exchange,
    invitations: Vec<Invitation>,
) -> Result<HeaderMap, Box<Response<Body>>> {
    let fields = handshake(asked_headers)?;
    let form = if speaks_json(asked_headers) { Form::Json } else { Form::WebSocket };
    let (peer, entry) = (exchange.peer().clone(), exchange.entry.clone());
    limit_unsent(exchange, &invitations);
    exchange.take_over(move |transport, read| {
        Box::pin(async move {
            SocketSession::join(invitations, form, peer, entry, read).run(transport).await;
        })
    });
    Ok(fields)
}

impl LocalSubscribers {
    /// Answers the handshake, and continues the connection as a subscriber.
    pub(super) fn accept(
        self: Rc<LocalSubscribers>,
        asked_headers: &HeaderMap,
        asked: &SubscribeRequest,
        exchange: &Exchange,
        grant: Grant,
        user: Option<User>,
    ) -> Response<Body> {
        if self.is_retired() {
            return reply::status(StatusCode::SERVICE_UNAVAILABLE);
        }
        let start = Start::before(&self.hub.since(asked.after));
        let invitation = Invitation { subscribers: self.clone(), grant, user, start };
        let fields = match accept(asked_headers, exchange, vec![invitation]) {
            Ok(fields) => fields,
            Err(response) => return *response,
        };
        // Plain frames have no ids. A client that needs them counts from here.
        let mut response = self.empty_response(StatusCode::SWITCHING_PROTOCOLS, start.id);
        let headers = response.headers_mut();
        headers.extend(fields);
        if start.missed {
            // The messages that are kept are sent; this says that there were others.
            headers.insert(MISSED, HeaderValue::from_static("true"));
        }
        response
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
        let mut session = self.session(index, form, &parked.peer);
        session.read(bytes);
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
        let mut session = self.session(index, form, &parked.peer);
        session.send_raw(&backlog.rest);
        self.spawn_session(index, parked, form, backlog, session);
    }

    /// Returns the session of a WebSocket in which nothing is under way.
    fn session(&self, index: usize, form: Form, peer: &Rc<Peer>) -> Session {
        let target = self.target(self.grant(index), peer);
        let session = Session::new(form, target, Vec::new());
        match self.reader(index).as_ref().and_then(|reader| reader.held()) {
            None => session,
            Some(held) => session.with_app(AppSocket::new(held, peer)),
        }
    }

    fn spawn_session(
        self: &Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        form: Form,
        backlog: Backlog,
        session: Session,
    ) {
        let (mailbox, peer) = (backlog.mailbox, parked.peer);
        let subscription = Subscription::new(self, index);
        let Ok(transport) = parked.stream.resume() else { return };
        self.set(index, SubscriberState::Task(mailbox.clone()));
        let sign = LastSign::now(false);
        let resting = RestingSubscriber { subscription, mailbox, form, peer, sign };
        resting.spawn(session, transport);
    }
}

impl RestingSubscriber {
    /// Gives a WebSocket a task.
    fn spawn(self, session: Session, transport: Transport) {
        let RestingSubscriber { subscription, mailbox, form, peer, sign } = self;
        let counted = subscription.local_subscribers.parking_lot.task();
        let channels = JoinedChannels::one(subscription, mailbox);
        let mut session_task = SocketSession::new(channels, session, peer, form);
        session_task.quiet_until = time::now() + sign.left(session_task.channels.silence());
        session_task.heard = !sign.is_unanswered;
        let goes_on = async move {
            session_task.run(transport).await;
            drop(counted);
        };
        spawn(goes_on).detach();
    }
}

/// A WebSocket on a stream of HTTP/2.
impl Resting for RestingSubscriber {
    fn has_news(&self, waker: &Waker) -> bool {
        let Subscription { local_subscribers, index, .. } = &self.subscription;
        self.mailbox.remember(&Context::from_waker(waker));
        let is_over = local_subscribers.grant(*index).is_over()
            || local_subscribers.held_due(*index).is_some_and(|due| due.is_zero())
            || self.sign.left(local_subscribers.hub.silence()).is_zero();
        is_over || !self.mailbox.is_empty() || self.mailbox.ended().is_some()
    }

    fn resume(self: Box<RestingSubscriber>, stream: Http2Stream) {
        let Subscription { local_subscribers, index, .. } = &self.subscription;
        let session = local_subscribers.session(*index, self.form, &self.peer);
        self.spawn(session, Transport::Stream(Box::new(stream)));
    }

    fn end(self: Box<RestingSubscriber>) {
        let Subscription { local_subscribers, index, .. } = &self.subscription;
        local_subscribers.note(*index, Entry::gone);
    }
}

/// A WebSocket with a task.
pub(super) struct SocketSession {
    channels: JoinedChannels,
    session: Session,
    peer: Rc<Peer>,
    form: Form,
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
    /// Joins the channels, and tells a client of `superpoll.v1` where it begins in each.
    fn join(
        invitations: Vec<Invitation>,
        form: Form,
        peer: Rc<Peer>,
        entry: Option<Rc<Entry>>,
        read: Bytes,
    ) -> SocketSession {
        let starts: Vec<_> = invitations.iter().map(|invitation| invitation.start).collect();
        let channels = JoinedChannels::join(invitations);
        let first = channels.first();
        if let Some(entry) = &entry {
            entry.received(read.len() as u64);
        }
        first.subscribers().keep_entry(first.subscription.index, entry);
        let mut targets = channels.targets(&peer);
        let own = targets.next().expect("a connection has a channel");
        let mut session = Session::new(form, own, targets.collect());
        if form == Form::Json {
            for (hub, start) in channels.hubs().zip(starts) {
                session.send_place(start.id, start.missed, hub.source());
            }
        }
        // The grant may have ended since the handshake.
        channels.check_grants();
        if channels.ended().is_some_and(EndReason::takes_rights) {
            session.end_publishing();
        }
        if !read.is_empty() {
            session.read(read);
        }
        SocketSession::new(channels, session, peer, form)
    }

    /// Begins with what the application has answered to the handshake.
    pub(super) fn begin_held(
        channels: JoinedChannels,
        app: AppSocket,
        steps: Vec<Step>,
        peer: Rc<Peer>,
        entry: Option<Rc<Entry>>,
        read: Bytes,
    ) -> SocketSession {
        let first = channels.first();
        if let Some(entry) = &entry {
            entry.received(read.len() as u64);
        }
        first.subscribers().keep_entry(first.subscription.index, entry);
        let target = first.subscribers().target(first.grant, &peer);
        let mut session = Session::new(Form::HeldSocket, target, Vec::new()).with_app(app);
        steps.into_iter().for_each(|step| session.step(step));
        if !read.is_empty() {
            session.read(read);
        }
        SocketSession::new(channels, session, peer, Form::HeldSocket)
    }

    fn new(
        channels: JoinedChannels,
        session: Session,
        peer: Rc<Peer>,
        form: Form,
    ) -> SocketSession {
        let silent_until = time::now() + channels.silence();
        SocketSession {
            channels,
            session,
            peer,
            form,
            heard: true,
            sends: SendQueue::default(),
            quiet_until: silent_until,
            has_waited: false,
            has_written: false,
            ends: false,
            turn: None,
            pause: None,
        }
    }

    /// Whether the connection can be parked. One with several channels never is: a successor could
    /// not tell which of its bytes are of which channel.
    fn is_idle(&self) -> bool {
        self.channels.is_one()
            && time::now() < self.quiet_until
            && self.session.is_idle()
            && !self.channels.first().is_due()
            && self.channels.is_empty()
            && self.channels.ended().is_none()
    }

    pub(super) async fn run(mut self, mut transport: Transport) {
        let silence = self.channels.silence();
        let left = self.quiet_until.saturating_duration_since(time::now());
        let mut timer = pin!(sleep(self.channels.limit(left)));
        // What has made an encrypted connection readable is still to be read.
        let mut is_read = matches!(transport, Transport::Plain(_));
        loop {
            if is_read && self.is_idle() && transport.is_quiet() {
                match transport.park() {
                    Ok(stream) => return self.park(stream),
                    Err(Transport::Stream(stream)) => return self.rest(*stream),
                    Err(busy) => transport = busy,
                }
            }
            is_read = true;
            let next = poll_fn(|cx| self.poll(cx, &mut transport, timer.as_mut(), silence)).await;
            match next {
                Next::Idle => {}
                Next::Gone => {
                    self.tell_app();
                    return self.channels.first().note(Entry::gone);
                }
                Next::Over => break,
            }
        }
        if self.session.has_vanished() {
            self.channels.first().note(Entry::gone);
        }
        self.tell_app();
        // From here on it is not a subscriber.
        drop(self.channels);
        let _ = timeout(CLOSE, linger(transport)).await;
    }

    /// Tells the application of the end.
    fn tell_app(&mut self) {
        if let Some(app) = self.session.take_app() {
            app.finish(&self.channels.first().subscription);
        }
    }

    fn park(self, stream: ParkedStream) {
        let subscription = self.channels.into_subscription();
        let (local_subscribers, index) =
            (subscription.local_subscribers.clone(), subscription.index);
        subscription.detach();
        let parked = ParkedConnection { stream, peer: self.peer, token: 0, pending: None };
        local_subscribers.park_subscriber(index, parked, self.form, None);
    }

    /// Leaves a stream of HTTP/2 to its connection until there is news.
    fn rest(self, stream: Http2Stream) {
        let SocketSession { channels, form, peer, .. } = self;
        let mailbox = channels.first().mailbox.clone();
        let silence = channels.silence();
        let at = Moment::at(self.quiet_until.checked_sub(silence).unwrap_or_else(time::now));
        let sign = LastSign { at, is_unanswered: !self.heard };
        let subscription = channels.into_subscription();
        stream.rest(Box::new(RestingSubscriber { subscription, mailbox, form, peer, sign }));
    }

    /// Makes frames of messages, as many as there is room for, and of the end.
    fn fill(&mut self) {
        while self.session.state() == SessionState::Open && self.session.left() < OUTPUT {
            let by = self.channels.first().subscribers().clone();
            if let Some(why) = self.channels.ended() {
                self.close(why);
            } else if self.session.app().is_some_and(|app| app.waits(&by)) {
                return;
            } else if let Some((index, taken)) = self.channels.take() {
                self.send(index, &taken);
            } else if self.channels.ended().is_none() {
                return;
            }
        }
    }

    fn close(&mut self, why: EndReason) {
        let (code, reason) = match why {
            EndReason::Slow => (CloseCode::Again, "too many messages wait for you"),
            EndReason::Retired => (CloseCode::Away, ""),
            EndReason::Expired => (CloseCode::Policy, "the token has expired"),
            EndReason::Disconnected => (CloseCode::Policy, "the server ends this subscription"),
            EndReason::Changed => {
                (CloseCode::Restart, "the rights of a channel have changed; connect again")
            }
            EndReason::Replaced => (CloseCode::Restart, REPLACED),
        };
        self.session.close(code, reason);
    }

    /// Sends a message, and that messages before it were left out, if the form has a way to say it.
    fn send(&mut self, index: usize, taken: &Taken) {
        let message = &taken.message;
        if let Some(app) = self.session.app() {
            if taken.is_after_gap {
                // Nothing tells the client, or its application.
                return self.channels.end(index, EndReason::Slow);
            }
            if let Some(step) = app.take(message) {
                self.session.step(step);
            }
            return;
        }
        if taken.is_after_gap && self.channels.is_gathering() {
            // A successor counts on each message, see `parked.rs`.
            return self.channels.end(index, EndReason::Slow);
        }
        let hub = self.channels.hub(index);
        if taken.is_after_gap && self.form == Form::Json {
            self.session.send_place(message.id - 1, true, hub.source());
        }
        if hub.may_send(message) {
            self.session.send(message, hub.source());
        }
    }

    /// Writes as much of the output as there is room for; returns whether that was any.
    fn write(&mut self, cx: &mut Context<'_>, transport: &mut Transport) -> io::Result<bool> {
        let mut all = 0;
        while self.session.left() > 0 {
            let written = self.session.write(|parts| {
                match Pin::new(&mut *transport).poll_write_vectored(cx, parts) {
                    Poll::Ready(Ok(0)) => Err(Some(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(count)) => Ok(count),
                    Poll::Ready(Err(error)) => Err(Some(error)),
                    Poll::Pending => Err(None),
                }
            });
            match written {
                Ok(count) => all += count,
                Err(Some(error)) => return Err(error),
                Err(None) => break,
            }
        }
        // Encrypted bytes may still wait for room; they are written when there is some.
        if self.session.left() == 0
            && let Poll::Ready(Err(error)) = Pin::new(transport).poll_flush(cx)
        {
            return Err(error);
        }
        self.sends.wrote(all);
        let first = self.channels.first();
        first.subscribers().wrote(first.subscription.index, self.form, all);
        if all > 0 {
            self.has_written = true;
            first.subscribers().parking_lot.note_active(&self.peer);
        }
        Ok(all > 0)
    }

    /// Continues with messages that had to wait, if it is their turn; returns whether it was.
    fn publish_on(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(app) = self.session.app() {
            let Poll::Ready(steps) = app.poll(cx, &self.channels.first().subscription) else {
                return false;
            };
            steps.into_iter().for_each(|step| self.session.step(step));
            self.session.go_on(false);
            return true;
        }
        if !self.session.is_held_up() || self.session.state() == SessionState::Over {
            (self.turn, self.pause) = (None, None);
            return false;
        }
        if self.session.is_publishing() {
            if self.session.poll_publishing(cx).is_pending() {
                return false;
            }
            self.session.go_on(false);
            return true;
        }
        if let Some(wait) = self.session.pause() {
            let pause = self.pause.get_or_insert_with(|| Box::new(sleep(wait)));
            if Pin::new(&mut **pause).poll(cx).is_pending() {
                return false;
            }
            self.pause = None;
            self.session.go_on(false);
            return true;
        }
        // The memory that it holds is bounded like that of any connection.
        let turn = self.turn.get_or_insert_with(|| PublishTurn::new(self.session.next_hub()));
        if turn.poll(0, cx).is_pending() {
            return false;
        }
        self.turn = None;
        self.session.go_on(true);
        true
    }

    /// Reads once; `false` if no bytes have arrived.
    fn read(&mut self, cx: &mut Context<'_>, transport: &mut Transport) -> io::Result<bool> {
        let first = self.channels.first();
        let mut room = first.subscribers().engine.read_buffer.borrow_mut();
        match Pin::new(transport).poll_read(cx, &mut room) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(count)) => {
                let bytes = Bytes::copy_from_slice(&room[..count]);
                drop(room);
                first.note(|entry| entry.received(count as u64));
                first.subscribers().parking_lot.note_active(&self.peer);
                self.heard = true;
                self.session.read(bytes);
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
        self.channels.remember(cx);
        for round in 0.. {
            self.channels.check_grants();
            if self.channels.ended().is_some_and(EndReason::takes_rights) {
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
            timer.as_mut().get_mut().reset(time::now() + CLOSE);
        }
        while timer.as_mut().poll(cx).is_ready() {
            let now = time::now();
            if !self.ends && self.channels.limit(CLOSE).is_zero() {
                // Its output is full: the client may not even read why.
                self.ends = true;
                timer.as_mut().get_mut().reset(now + CLOSE);
                continue;
            }
            if !self.ends && now < self.quiet_until {
                let rest = self.channels.limit(self.quiet_until - now).max(MOMENT);
                timer.as_mut().get_mut().reset(now + rest);
                continue;
            }
            // A client whose output waits is not read, and its pong waits behind that output.
            let lives = self.heard || self.session.is_held_up();
            let (has_waited, has_written) = (self.has_waited, self.has_written);
            let takes = match transport.plain() {
                Some(plain) => self.sends.is_read(plain, has_waited, has_written),
                None => has_waited && has_written,
            };
            if self.ends || !(lives || takes) {
                return Poll::Ready(Next::Gone);
            }
            self.sends = transport.plain().map_or_else(SendQueue::default, SendQueue::measure);
            (self.has_waited, self.has_written) = (self.session.left() > 0, false);
            if !self.channels.is_gathering() {
                self.heard = false;
                self.session.send_raw(PING);
            }
            self.quiet_until = now + silence;
            timer.as_mut().get_mut().reset(now + self.channels.limit(silence));
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
