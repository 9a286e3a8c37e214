//! Subscribing by WebSocket (RFC 6455).

use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use data_encoding::BASE64;
use futures_io::{AsyncRead, AsyncWrite};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use superpoll_rt::spawn;
use superpoll_rt::time::{Sleep, sleep, timeout};
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::frame::coding::CloseCode;

use super::cursor::SubscribeRequest;
use super::frames::{Frames, PING};
use super::history::Since;
use super::hub;
use super::local_subscribers::{Delivery, LocalSubscribers, Subscription, is_later};
use super::mailbox::{EndReason, Mailbox};
use super::publisher_queue::PublishTurn;
use super::send_queue::SendQueue;
use super::session::{Session, SessionState};
use crate::body::Body;
use crate::config::Slow;
use crate::exchange::Exchange;
use crate::parking_lot::{ParkedConnection, ResumeReason, WakeOn};
use crate::peer::Peer;
use crate::reply;
use crate::succession::state::Activity;
use crate::transport::{Plain, Socket, Transport};

/// The most bytes that are made ready to be written before the rest is left with the messages that
/// wait.
const OUTPUT: usize = 64 << 10;

/// How often a task reads before other tasks have their turn.
const ROUNDS: usize = 16;

/// How long the end of a connection may take.
const CLOSE: Duration = Duration::from_secs(2);

/// The most bytes that are read of a connection that ends, so that the reason for its end is not
/// lost with a reset.
const LINGER_BYTES: usize = 1 << 20;

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

/// Writes as many bytes as there is room for now.
pub(super) fn write(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    // std makes the kernel return an error, and not a signal, if the other end is closed.
    let outcome = match socket {
        Socket::Tcp(stream) => (&*stream).write(bytes),
        Socket::Unix(stream) => (&*stream).write(bytes),
    };
    match outcome {
        Err(error) if is_later(&error) => Ok(0),
        outcome => outcome,
    }
}

/// Reads the bytes that are available now.
fn read(socket: &Socket, room: &mut [u8]) -> io::Result<usize> {
    match socket {
        Socket::Tcp(stream) => (&*stream).read(room),
        Socket::Unix(stream) => (&*stream).read(room),
    }
}

impl LocalSubscribers {
    /// Answers the handshake, and continues the connection as a subscriber.
    pub(super) fn accept(
        self: Rc<LocalSubscribers>,
        headers: &HeaderMap,
        asked: &SubscribeRequest,
        exchange: &Exchange,
    ) -> Response<Body> {
        if self.is_retired() {
            return reply::status(StatusCode::SERVICE_UNAVAILABLE);
        }
        let version = headers.get(SEC_WEBSOCKET_VERSION);
        if version.is_none_or(|version| version.as_bytes() != b"13") {
            let text = "only version 13 of WebSocket is supported\n";
            let mut response = reply::text(StatusCode::UPGRADE_REQUIRED, text);
            let headers = response.headers_mut();
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            return response;
        }
        let Some(accept) =
            key(headers).and_then(|key| HeaderValue::from_str(&derive_accept_key(key)).ok())
        else {
            let text = "Sec-WebSocket-Key has to be 16 bytes in base64\n";
            return reply::text(StatusCode::BAD_REQUEST, text);
        };
        let since = self.hub.since(asked.after);
        let start = since.messages.first().map_or(since.last, |message| message.id - 1);
        // Frames have no ids. A client that needs them counts from here.
        let mut response = self.empty_response(StatusCode::SWITCHING_PROTOCOLS, start);
        let headers = response.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        if since.missed {
            headers.insert(MISSED, HeaderValue::from_static("true"));
        }
        let peer = exchange.peer().clone();
        exchange
            .take_over(move |transport, read| Box::pin(self.begin(transport, peer, read, start)));
        response
    }

    /// Begins to send the messages after a given one.
    async fn begin(
        self: Rc<LocalSubscribers>,
        transport: Transport,
        peer: Rc<Peer>,
        read: Bytes,
        start: u64,
    ) {
        let options = self.hub.options();
        let since = self.hub.join(self.queue_id, Some(self.cursor(start)));
        let (missed, last) = (since.missed, since.last);
        let mailbox = Rc::new(Mailbox::new(since, &options));
        let subscription = self.add(last, Delivery::Task(mailbox.clone()));
        if missed && options.slow == Slow::Disconnect {
            hub::count(&self.hub.counters().disconnected, 1);
            mailbox.end(EndReason::Slow);
        }
        if self.is_retired() {
            mailbox.end(EndReason::Retired);
        }
        let mut session = Session::new(options.message_bytes);
        if !read.is_empty() {
            session.read(read, &self.hub);
        }
        SocketSession::new(subscription, mailbox, session, peer).run(transport).await;
    }

    /// Takes a parked WebSocket back after an event.
    pub(super) fn resume_socket(
        self: Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        why: ResumeReason,
    ) {
        match why {
            ResumeReason::Ready => self.read_parked(index, parked),
            ResumeReason::TimedOut => {
                let pinged = match self
                    .subscribers
                    .borrow()
                    .get(index)
                    .map(|subscriber| &subscriber.delivery)
                {
                    Some(Delivery::Socket(_, pinged)) => *pinged,
                    _ => None,
                };
                if pinged.is_some_and(|queue| !queue.has_moved(&parked.socket)) {
                    // A client that neither answers nor reads has gone.
                    return self.remove(index);
                }
                if self.hub.is_gathering() {
                    return self.park_socket(index, parked, None);
                }
                let mut queue = SendQueue::of(&parked.socket);
                match write(&parked.socket, PING) {
                    Err(_) => self.remove(index),
                    Ok(count) if count == PING.len() => {
                        queue.wrote(count);
                        self.park_socket(index, parked, Some(queue));
                    }
                    Ok(count) => {
                        self.continue_in_task(index, parked, Rc::default(), &PING[count..])
                    }
                }
            }
            ResumeReason::Draining => {
                let mailbox = Rc::new(Mailbox::default());
                mailbox.end(EndReason::Retired);
                self.continue_in_task(index, parked, mailbox, &[]);
            }
        }
    }

    /// Reads from a parked WebSocket, and parks it again if that was all.
    fn read_parked(self: Rc<LocalSubscribers>, index: usize, parked: ParkedConnection) {
        let mut room = self.engine.read_buffer.borrow_mut();
        let bytes = match read(&parked.socket, &mut room) {
            Err(error) if is_later(&error) => {
                drop(room);
                return self.park_socket(index, parked, None);
            }
            Ok(0) | Err(_) => return self.remove(index),
            Ok(count) => Bytes::copy_from_slice(&room[..count]),
        };
        drop(room);
        let mut session = Session::new(self.hub.options().message_bytes);
        session.read(bytes, &self.hub);
        if session.left() > 0 && session.write(|parts| write(&parked.socket, &parts[0])).is_err() {
            return self.remove(index);
        }
        if session.is_idle() {
            self.park_socket(index, parked, None);
        } else {
            self.spawn_session(index, parked, Rc::default(), session);
        }
    }

    /// Parks a WebSocket that has nothing under way.
    fn park_socket(
        self: Rc<LocalSubscribers>,
        index: usize,
        mut parked: ParkedConnection,
        pinged: Option<SendQueue>,
    ) {
        parked.token = index as u64;
        let silence = self.hub.silence();
        let activity = || {
            let last = self.subscribers.borrow().get(index).map_or(0, |subscriber| subscriber.last);
            Some(Activity::Socket { space: self.hub.space()?, last, pinged: pinged.is_some() })
        };
        match self.parking_lot.park(parked, self.clone(), WakeOn::Readable, Some(silence), activity)
        {
            Ok(key) => self.set(index, Delivery::Socket(key, pinged)),
            Err((parked, _)) => {
                let mailbox = Rc::new(Mailbox::default());
                mailbox.end(EndReason::Retired);
                self.continue_in_task(index, parked, mailbox, &[]);
            }
        }
    }

    /// Continues a WebSocket that another server has left after a given message, and to which that
    /// server has written this many bytes since. Those are whole frames, and the beginning of at
    /// most one more, of the messages that follow. Otherwise its position is unknown, and the
    /// client has to come again.
    pub(crate) fn adopt_socket(
        self: &Rc<LocalSubscribers>,
        parked: ParkedConnection,
        last: u64,
        pinged: bool,
        sent: u64,
    ) {
        let options = self.hub.options();
        let since = self.hub.join(self.queue_id, Some(self.cursor(last)));
        let sent = usize::try_from(sent).unwrap_or(usize::MAX);
        let frames = Frames::new(&since.messages);
        let (begun, rest) = match sent {
            0 => (0, Bytes::new()),
            // The messages that it was sent are not kept.
            _ if since.missed => return self.hub.leave(self.queue_id),
            sent if sent <= frames.len() => frames.sent(0, sent),
            _ => return self.hub.leave(self.queue_id),
        };
        let Since { messages, missed, last } = since;
        let messages = messages[begun..].to_vec();
        let mailbox = Rc::new(Mailbox::new(Since { messages, missed, last }, &options));
        let subscription = self.add(last, Delivery::Task(mailbox.clone()));
        if missed && options.slow == Slow::Disconnect {
            hub::count(&self.hub.counters().disconnected, 1);
            mailbox.end(EndReason::Slow);
        }
        let index = subscription.index;
        subscription.detach();
        if rest.is_empty() && mailbox.is_empty() && mailbox.ended().is_none() {
            let pinged = pinged.then(|| SendQueue::of(&parked.socket));
            self.clone().park_socket(index, parked, pinged);
        } else {
            self.continue_in_task(index, parked, mailbox, &rest);
        }
    }

    /// Continues a parked WebSocket in a task, beginning with the rest of a frame.
    pub(super) fn continue_in_task(
        self: &Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        mailbox: Rc<Mailbox>,
        rest: &[u8],
    ) {
        let mut session = Session::new(self.hub.options().message_bytes);
        session.send_raw(rest);
        self.spawn_session(index, parked, mailbox, session);
    }

    fn spawn_session(
        self: &Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        mailbox: Rc<Mailbox>,
        session: Session,
    ) {
        let subscription = Subscription::of(self, index);
        let Ok(plain) = Plain::new(parked.socket) else { return };
        self.set(index, Delivery::Task(mailbox.clone()));
        let counted = self.parking_lot.task();
        let session_task = SocketSession::new(subscription, mailbox, session, parked.peer);
        let goes_on = async move {
            session_task.run(Transport::Plain(plain)).await;
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
    /// Bytes were read since the last ping.
    heard: bool,
    /// The bytes that waited in the socket at the last ping.
    sends: SendQueue,
    /// The timer limits the end of the connection.
    ends: bool,
    /// Its place among the publishers that wait.
    turn: Option<PublishTurn>,
}

/// The next step of the task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Nothing is under way.
    Idle,
    /// The WebSocket is over; all was written.
    Over,
    /// The WebSocket is over, and the client has gone.
    Gone,
}

impl SocketSession {
    fn new(
        subscription: Subscription,
        mailbox: Rc<Mailbox>,
        session: Session,
        peer: Rc<Peer>,
    ) -> SocketSession {
        SocketSession {
            subscription,
            mailbox,
            session,
            peer,
            heard: true,
            sends: SendQueue::default(),
            ends: false,
            turn: None,
        }
    }

    fn is_idle(&self) -> bool {
        self.session.is_idle() && self.mailbox.is_empty() && self.mailbox.ended().is_none()
    }

    async fn run(mut self, mut transport: Transport) {
        let silence = self.subscription.local_subscribers.hub.silence();
        let mut timer = pin!(sleep(silence));
        loop {
            match transport {
                Transport::Plain(plain) if self.is_idle() => {
                    let (socket, ahead) = plain.into_parts();
                    if ahead.is_empty() {
                        return self.park(socket);
                    }
                    self.session.read(ahead.into(), &self.subscription.local_subscribers.hub);
                    let Ok(plain) = Plain::new(socket) else { return };
                    transport = Transport::Plain(plain);
                }
                other => transport = other,
            }
            let next = poll_fn(|cx| self.poll(cx, &mut transport, timer.as_mut(), silence)).await;
            match next {
                Next::Idle => {}
                Next::Gone => return,
                Next::Over => break,
            }
        }
        // From here on it is not a subscriber.
        drop(self.subscription);
        let _ = timeout(CLOSE, linger(transport)).await;
    }

    fn park(self, socket: Socket) {
        let (local_subscribers, index) =
            (self.subscription.local_subscribers.clone(), self.subscription.index);
        self.subscription.detach();
        local_subscribers.park_socket(
            index,
            ParkedConnection { socket, peer: self.peer, token: 0, pending: None },
            None,
        );
    }

    /// Makes frames of messages, as many as there is room for, and of the end.
    fn fill(&mut self) {
        while self.session.state() == SessionState::Open && self.session.left() < OUTPUT {
            match (
                self.mailbox.take(&self.subscription.local_subscribers.hub),
                self.mailbox.ended(),
            ) {
                (Some(message), _) => self.session.send(&message),
                (None, None) => return,
                (None, Some(EndReason::Slow)) => {
                    self.session.close(CloseCode::Again, "too many messages wait for you");
                }
                (None, Some(EndReason::Retired)) => self.session.close(CloseCode::Away, ""),
            }
        }
    }

    fn write(&mut self, cx: &mut Context<'_>, transport: &mut Transport) -> io::Result<bool> {
        let mut wrote = false;
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
                Ok(count) => {
                    self.sends.wrote(count);
                    wrote = true;
                }
                Err(Some(error)) => return Err(error),
                Err(None) => return Ok(wrote),
            }
        }
        // Encrypted bytes may still wait for room; they are written when there is some.
        match Pin::new(transport).poll_flush(cx) {
            Poll::Ready(Err(error)) => Err(error),
            _ => Ok(wrote),
        }
    }

    /// Continues with messages that had to wait, if it is their turn; returns whether it was.
    fn publish_on(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.session.is_held_up() || self.session.state() == SessionState::Over {
            self.turn = None;
            return false;
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
        if matches!(transport, Transport::Plain(_)) && self.is_idle() {
            return Poll::Ready(Next::Idle);
        }
        if self.session.state() != SessionState::Open && !self.ends {
            self.ends = true;
            timer.as_mut().get_mut().reset(Instant::now() + CLOSE);
        }
        while timer.as_mut().poll(cx).is_ready() {
            // A client whose output waits is not read, and its pong waits behind that output.
            let lives = self.heard || self.session.is_held_up();
            if self.ends || !(lives || self.sends.has_moved(transport.plain())) {
                return Poll::Ready(Next::Gone);
            }
            self.sends = SendQueue::of(transport.plain());
            if !self.subscription.local_subscribers.hub.is_gathering() {
                self.heard = false;
                self.session.send_raw(PING);
            }
            timer.as_mut().get_mut().reset(Instant::now() + silence);
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Ends a connection so that the bytes that were written last arrive.
async fn linger(mut transport: Transport) -> io::Result<()> {
    poll_fn(|cx| Pin::new(&mut transport).poll_close(cx)).await?;
    let mut room = [0; 4096];
    let mut left = LINGER_BYTES;
    while left > 0 {
        match poll_fn(|cx| Pin::new(&mut transport).poll_read(cx, &mut room)).await? {
            0 => break,
            count => left = left.saturating_sub(count),
        }
    }
    Ok(())
}
