//! Several channels on one WebSocket with the subprotocol `superpoll.v1`.
//!
//! A client publishes to the first channel of the URL, or to the one that its frame names. A
//! message waits if its channel has no room, and the WebSocket is not read meanwhile.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_io::AsyncRead;
use http::{HeaderMap, Response, StatusCode};
use superpoll_rt::time::{Sleep, sleep, timeout};
use tungstenite::Message;
use tungstenite::protocol::frame::coding::CloseCode;

use super::super::form::Form;
use super::super::frames::PING;
use super::super::hub::PublishTurn;
use super::super::json_frame::{self, Publication};
use super::super::mailbox::{EndReason, Taken};
use super::super::message::Draft;
use super::super::parked::{CLOSE, MOMENT, ROUNDS, linger};
use super::super::publication;
use super::super::publish_limits;
use super::super::send_queue::SendQueue;
use super::super::session::{NO_PUBLISHER, Session, SessionState};
use super::super::socket::{OUTPUT, REPLACED, handshake, write_out};
use super::{Invitation, Several, limit_unsent};
use crate::body::Body;
use crate::exchange::Exchange;
use crate::log::Entry;
use crate::peer::Peer;
use crate::transport::Transport;

/// Answers the handshake, and continues the connection as a subscriber of all channels.
pub(super) fn accept(
    asked_headers: &HeaderMap,
    exchange: &Exchange,
    invitations: Vec<Invitation>,
) -> Response<Body> {
    let fields = match handshake(asked_headers) {
        Ok(fields) => fields,
        Err(response) => return *response,
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().extend(fields);
    let (peer, entry) = (exchange.peer().clone(), exchange.entry.clone());
    limit_unsent(exchange, &invitations);
    exchange.take_over(move |transport, read| {
        Box::pin(async move {
            SeveralSocket::new(invitations, (peer, entry), read).run(transport).await;
        })
    });
    response
}

/// A WebSocket with several channels.
struct SeveralSocket {
    several: Several,
    session: Session,
    peer: Rc<Peer>,
    /// Whether a right of the client has ended.
    has_expired: bool,
    /// A message that waits until its channel has room, and its place among the publishers there.
    waiting: Option<(usize, Draft)>,
    turn: Option<PublishTurn>,
    /// Bytes were read since the last ping.
    heard: bool,
    /// The bytes that waited in the socket at the last ping.
    sends: SendQueue,
    /// Output had to wait at the last ping, and some of it was written since.
    has_waited: bool,
    has_written: bool,
    /// The time at which the silence is too long.
    quiet_until: Instant,
    /// The timer limits the end of the connection.
    ends: bool,
    /// Its line of the access log, if there is a log.
    entry: Option<Rc<Entry>>,
}

/// The end of a connection.
enum End {
    /// All was written.
    Over,
    /// The client has gone.
    Gone,
}

impl SeveralSocket {
    /// Joins the channels, and tells the client where it begins in each.
    fn new(
        invitations: Vec<Invitation>,
        (peer, entry): (Rc<Peer>, Option<Rc<Entry>>),
        read: Bytes,
    ) -> SeveralSocket {
        if let Some(entry) = &entry {
            entry.received(read.len() as u64);
        }
        let starts: Vec<_> = invitations.iter().map(|invitation| invitation.start).collect();
        let several = Several::join(invitations);
        let sizes = several.members.iter().map(|member| member.hub().options().message_bytes);
        let mut session = Session::new(sizes.max().unwrap_or(0), Form::Json, true);
        for (member, start) in several.members.iter().zip(starts) {
            session.send_place(start.id, start.missed, member.hub().source());
        }
        if !read.is_empty() {
            session.take_in(read);
        }
        SeveralSocket {
            several,
            session,
            peer,
            has_expired: false,
            waiting: None,
            turn: None,
            heard: true,
            sends: SendQueue::default(),
            has_waited: false,
            has_written: false,
            quiet_until: Instant::now(),
            ends: false,
            entry,
        }
    }

    async fn run(mut self, mut transport: Transport) {
        let silence = self.several.silence();
        self.quiet_until = Instant::now() + silence;
        let mut timer = pin!(sleep(self.several.limit(silence)));
        let end = poll_fn(|cx| self.poll(cx, &mut transport, timer.as_mut(), silence)).await;
        let is_gone = matches!(end, End::Gone) || self.session.has_vanished();
        if let Some(entry) = self.entry.as_ref().filter(|_| is_gone) {
            entry.gone();
        }
        // From here on it is not a subscriber.
        drop(self);
        if let End::Over = end {
            let _ = timeout(CLOSE, linger(transport)).await;
        }
    }

    /// Makes frames of messages, as many as there is room for, and of the end.
    fn fill(&mut self) {
        while self.session.state() == SessionState::Open && self.session.left() < OUTPUT {
            if let Some(why) = self.several.ended() {
                return self.close(why);
            }
            let Some((index, Taken { message, is_after_gap })) = self.several.take() else {
                return;
            };
            let hub = self.several.members[index].hub();
            if is_after_gap {
                self.session.send_place(message.id - 1, true, hub.source());
            }
            if hub.may_send(&message) {
                self.session.send(&message, hub.source());
            }
        }
    }

    fn close(&mut self, why: EndReason) {
        let (code, reason) = match why {
            EndReason::Slow => (CloseCode::Again, "too many messages wait for you"),
            EndReason::Retired => (CloseCode::Away, ""),
            EndReason::Expired => (CloseCode::Policy, "the token has expired"),
            EndReason::Changed => {
                (CloseCode::Restart, "the rights of a channel have changed; connect again")
            }
            EndReason::Replaced => (CloseCode::Restart, REPLACED),
        };
        self.session.close(code, reason);
    }

    fn write(&mut self, cx: &mut Context<'_>, transport: &mut Transport) -> io::Result<bool> {
        let count = write_out(&mut self.session, cx, transport)?;
        if let Some(entry) = &self.entry {
            entry.sent(count as u64);
        }
        self.sends.wrote(count);
        self.has_written |= count > 0;
        Ok(count > 0)
    }

    /// Returns the next message that the client may publish, and its channel. The rest is refused.
    fn next_draft(&mut self) -> Option<(usize, Draft)> {
        while let Some(message) = self.session.next() {
            match self.draft(message) {
                Ok(draft) => return Some(draft),
                Err(what) => self.session.refuse(&what),
            }
        }
        None
    }

    /// Reads a message of the client.
    fn draft(&self, message: Message) -> Result<(usize, Draft), String> {
        let limit = |index: usize| self.several.members[index].hub().options().message_bytes;
        let (index, draft) = match message {
            Message::Text(text) => {
                let read = Publication::read(text.as_str())?;
                let index = match &read.channel {
                    None => 0,
                    Some(name) => {
                        let is_it = |member: &super::JoinedChannel| **member.hub().name() == **name;
                        let found = self.several.members.iter().position(is_it);
                        found.ok_or_else(|| json_frame::elsewhere(name))?
                    }
                };
                (index, read.draft(limit(index))?)
            }
            other => {
                let data = other.into_data();
                if data.len() as u64 > limit(0) {
                    return Err(publication::too_large(limit(0)));
                }
                (0, Draft { data, is_text: false, meta: None })
            }
        };
        let member = &self.several.members[index];
        if self.has_expired || !member.grant.may_publish {
            return Err(NO_PUBLISHER.to_owned());
        }
        if let Some(publisher) = member.subscription.local_subscribers.publisher(&self.peer)
            && let Err(error) = publisher.admit(member.hub().name())
        {
            publisher.count_refused(Some(member.hub()));
            return Err(publish_limits::reason(error));
        }
        Ok((index, draft))
    }

    /// Publishes the messages that the client has sent, as far as their channels have room.
    /// Returns whether there were any.
    fn publish(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_published = false;
        if self.session.is_publishing() {
            if self.session.poll_publishing(cx).is_pending() {
                return false;
            }
            has_published = true;
        }
        while !self.session.is_publishing()
            && let Some((index, draft)) = self.waiting.take().or_else(|| self.next_draft())
        {
            let hub = self.several.members[index].hub().clone();
            if self.turn.is_some() || !hub.has_room() {
                // The memory that it holds is bounded like that of any connection.
                let turn = self.turn.get_or_insert_with(|| PublishTurn::new(&hub));
                if turn.poll(0, cx).is_pending() {
                    self.waiting = Some((index, draft));
                    return has_published;
                }
                self.turn = None;
            }
            if self.has_expired {
                self.session.refuse(NO_PUBLISHER);
            } else {
                self.session.publish(&hub, draft);
            }
            has_published = true;
        }
        has_published
    }

    /// Reads once; `false` if no bytes have come.
    fn read(&mut self, cx: &mut Context<'_>, transport: &mut Transport) -> io::Result<bool> {
        let first = &self.several.members[0].subscription.local_subscribers;
        let mut room = first.engine.read_buffer.borrow_mut();
        match Pin::new(transport).poll_read(cx, &mut room) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(count)) => {
                if let Some(entry) = &self.entry {
                    entry.received(count as u64);
                }
                self.session.take_in(Bytes::copy_from_slice(&room[..count]));
                drop(room);
                self.heard = true;
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
    ) -> Poll<End> {
        self.several.remember(cx);
        for round in 0.. {
            self.several.check_grants();
            self.has_expired |=
                matches!(self.several.ended(), Some(EndReason::Expired | EndReason::Changed));
            // Refusals and answers are written with the messages behind them.
            let published = self.publish(cx);
            self.fill();
            let Ok(wrote) = self.write(cx, transport) else { return Poll::Ready(End::Gone) };
            if self.session.state() == SessionState::Over && self.session.left() == 0 {
                return Poll::Ready(End::Over);
            }
            let reads = self.session.state() != SessionState::Over
                && self.session.left() < OUTPUT
                && self.waiting.is_none()
                && !self.session.is_publishing();
            let came = match reads.then(|| self.read(cx, transport)) {
                Some(Err(_)) => return Poll::Ready(End::Gone),
                Some(Ok(came)) => came,
                None => false,
            };
            if !came && !wrote && !published {
                break;
            }
            if round == ROUNDS {
                cx.waker().wake_by_ref();
                break;
            }
        }
        if self.session.state() != SessionState::Open && !self.ends {
            self.ends = true;
            timer.as_mut().get_mut().reset(Instant::now() + CLOSE);
        }
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if self.ends {
                return Poll::Ready(End::Gone);
            }
            if self.several.limit(CLOSE).is_zero() {
                // Its output is full: the client may not even read why.
                self.ends = true;
                timer.as_mut().get_mut().reset(now + CLOSE);
            } else if now < self.quiet_until {
                let rest = self.several.limit(self.quiet_until - now).max(MOMENT);
                timer.as_mut().get_mut().reset(now + rest);
            } else if !self.lives(transport) {
                return Poll::Ready(End::Gone);
            } else {
                self.ping(transport);
                self.quiet_until = now + silence;
                timer.as_mut().get_mut().reset(now + self.several.limit(silence));
            }
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Whether the client has answered the last ping, waits for its turn to publish, or reads.
    fn lives(&self, transport: &Transport) -> bool {
        let takes = match transport.plain() {
            Some(plain) => self.sends.has_moved(plain),
            None => self.has_waited && self.has_written,
        };
        let publishes = self.waiting.is_some() || self.session.is_publishing();
        self.heard || publishes || takes
    }

    fn ping(&mut self, transport: &Transport) {
        self.sends = transport.plain().map_or_else(SendQueue::default, SendQueue::of);
        (self.has_waited, self.has_written) = (self.session.left() > 0, false);
        self.heard = false;
        self.session.send_raw(PING);
    }
}
