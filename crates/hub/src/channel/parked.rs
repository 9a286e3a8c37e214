//! Subscribers that are parked: WebSockets, and streams of events over plain HTTP/1.1.
//!
//! A parked subscriber has a socket in the parking lot and an entry in the table. Messages are
//! written to its socket while it stays there (`LocalSubscribers::deliver_to`). It gets a task, the
//! session of its form, when its socket has no room, and is parked again when everything is
//! written.
//!
//! In silence it is sent a sign of life: a ping, or a comment. That is no message, so a successor
//! must never count its bytes as one. The subscriber is therefore taken out of the parking lot
//! before that, and its state is left again when the sign of life is written. While a keeper may
//! still have an older state of it ([`Hub::is_gathering`]) no sign of life is sent at all. The same
//! holds for the event `missed`, which only a session writes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_io::{AsyncRead, AsyncWrite};
use superpoll_config::Slow;
use superpoll_http::connection_state::{Activity, LeftConnection, SubscriberRecord};
use superpoll_http::grant::Grant;
use superpoll_http::log::Entry;
use superpoll_http::parked_stream::Written;
use superpoll_http::parking_lot::{ParkedConnection, ResumeReason};
use superpoll_http::plain_stream::limit_unsent;
use superpoll_http::tls::Cut;
use superpoll_http::transport::Transport;

use super::counters;
use super::form::{Encoded, Form};
use super::history::Since;
use super::local_subscribers::{LocalSubscribers, SubscriberState};
use super::mailbox::{EndReason, Mailbox};
use super::mercure::subscriptions;
use super::message::Message;
use super::reader::Selection;
use super::send_queue::SendQueue;

/// How long the end of a connection may take.
pub(super) const CLOSE: Duration = Duration::from_secs(2);

/// The most bytes that are read of a connection that ends, so that the reason for its end is not
/// lost with a reset.
const LINGER_BYTES: usize = 1 << 20;

/// The time between two looks at a clock that is behind the timer.
pub(super) const MOMENT: Duration = Duration::from_millis(10);

/// How often a session reads and writes before other tasks have their turn.
pub(super) const ROUNDS: usize = 16;

/// The next step of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Nothing is under way.
    Idle,
    /// The session is over; all was written.
    Over,
    /// The session is over, and the client has gone.
    Gone,
}

/// The bytes and messages that a subscriber with a task is still to be sent.
pub(super) struct Backlog {
    /// The rest of a message, or other bytes that come before the next message.
    pub rest: Bytes,
    pub mailbox: Rc<Mailbox>,
}

impl Backlog {
    /// Returns the backlog of a subscriber that gets no more messages.
    fn ended(why: EndReason) -> Backlog {
        let mailbox = Rc::new(Mailbox::default());
        mailbox.end(why);
        Backlog { rest: Bytes::new(), mailbox }
    }
}

/// A subscriber as another server has left it.
pub struct LeftSubscriber {
    /// The form in which it gets messages.
    pub form: Form,
    /// The last message that it was given.
    pub last: u64,
    /// Where the messages after that one begin, in the bytes of its form, if that is known.
    pub offset: Option<u64>,
    /// Whether a sign of life was sent that it has not answered.
    pub pinged: bool,
    /// Its rights.
    pub grant: Grant,
    /// The messages that it gets, if these are not all.
    pub reader: Option<Selection>,
    /// The name of its user, if the channel counts it.
    pub user: Option<Box<str>>,
}

impl LeftSubscriber {
    /// Returns a subscriber of what was left of it, and the number of its channel's records; `None`
    /// if it is none.
    #[must_use]
    pub fn of(activity: Activity) -> Option<(u64, LeftSubscriber)> {
        let (activity, user) = activity.unnamed();
        let (form, of, reader) = match activity {
            Activity::Socket(of) => (Form::WebSocket, of, None),
            Activity::JsonSocket(of) => (Form::Json, of, None),
            Activity::Events(of) => (Form::Events, of, None),
            Activity::Mercure { space, last, grant, pinged, reader } => {
                let of = SubscriberRecord { space, last, offset: None, grant, pinged };
                (Form::Mercure, of, Some(reader.into()))
            }
            Activity::Held { subscriber, held } => {
                let form = Form::of_held(&held);
                (form, subscriber, Some(Selection::from(*held)))
            }
            _ => return None,
        };
        let SubscriberRecord { space, last, offset, grant, pinged } = of;
        Some((space, LeftSubscriber { form, last, offset, pinged, grant, reader, user }))
    }
}

impl LocalSubscribers {
    /// Returns the form of a parked subscriber, and its send queue at the last sign of life that
    /// was not answered.
    fn parked_state(&self, index: usize) -> Option<(Form, Option<SendQueue>)> {
        match self.subscribers.borrow().get(index)?.delivery {
            SubscriberState::Parked { form, pinged, .. } => Some((form, pinged)),
            _ => None,
        }
    }

    /// Returns the last message that a subscriber was given.
    pub(super) fn last_given(&self, index: usize) -> u64 {
        let subscribers = self.subscribers.borrow();
        subscribers.get(index).map_or(0, |subscriber| subscriber.last.max(self.delivered.get()))
    }

    /// Takes a parked subscriber back after an event.
    pub(super) fn resume_parked(
        self: Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        why: ResumeReason,
    ) {
        let Some((form, pinged)) = self.parked_state(index) else { return self.remove(index) };
        let is_over = self.grant(index).is_over();
        match (why, form) {
            (ResumeReason::Ready | ResumeReason::TimedOut, _) if is_over => {
                self.end_subscriber(index, parked, form, EndReason::Expired);
            }
            (ResumeReason::Ready, Form::WebSocket | Form::Json | Form::HeldSocket) => {
                self.read_parked(index, parked, form);
            }
            (ResumeReason::Ready, Form::Events | Form::Mercure | Form::Held)
                if parked.stream.is_encrypted() && !parked.stream.socket().has_ended() =>
            {
                let backlog = Backlog { rest: Bytes::new(), mailbox: Rc::default() };
                self.continue_events(index, parked, form, backlog);
            }
            // It also comes back like this if it cannot be left to another server.
            (ResumeReason::Ready, Form::Events | Form::Mercure | Form::Held)
                if !parked.stream.socket().has_ended() =>
            {
                self.park_subscriber(index, parked, form, pinged);
            }
            (ResumeReason::Ready, Form::Events | Form::Mercure | Form::Held) => self.remove(index),
            (ResumeReason::TimedOut, _) => self.show_life(index, parked, form, pinged),
            (ResumeReason::Draining | ResumeReason::Refused, _) => {
                self.end_subscriber(index, parked, form, EndReason::Retired);
            }
        }
    }

    /// Ends a subscriber that has nothing under way.
    pub(super) fn end_subscriber(
        self: &Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        form: Form,
        why: EndReason,
    ) {
        self.continue_in_task(index, parked, form, Backlog::ended(why));
    }

    /// Sends a sign of life, or ends a subscriber that has gone.
    fn show_life(
        self: Rc<LocalSubscribers>,
        index: usize,
        mut parked: ParkedConnection,
        form: Form,
        pinged: Option<SendQueue>,
    ) {
        if pinged.is_some_and(|queue| form.has_gone(queue, parked.stream.socket())) {
            return self.lost(index);
        }
        if self.hub.is_gathering() {
            return self.park_subscriber(index, parked, form, None);
        }
        if form.is_held() && self.held_due(index).is_some_and(|due| due.is_zero()) {
            let backlog = Backlog { rest: Bytes::new(), mailbox: Rc::default() };
            return self.continue_in_task(index, parked, form, backlog);
        }
        if form == Form::Held {
            return self.park_subscriber(index, parked, form, pinged);
        }
        let bytes = form.sign_of_life();
        let mut queue = SendQueue::measure(&parked.stream);
        let Ok(written) = parked.stream.write(bytes) else { return self.lost(index) };
        let count = match written {
            Written::Some(count) => count,
            Written::Held => bytes.len(),
        };
        self.wrote(index, form, count);
        if written == Written::Some(bytes.len()) {
            queue.wrote(count);
            return self.park_subscriber(index, parked, form, Some(queue));
        }
        let rest = Bytes::from_static(&bytes[count..]);
        self.continue_in_task(index, parked, form, Backlog { rest, mailbox: Rc::default() });
    }

    /// Parks a subscriber that has nothing under way.
    pub(super) fn park_subscriber(
        self: Rc<LocalSubscribers>,
        index: usize,
        mut parked: ParkedConnection,
        form: Form,
        pinged: Option<SendQueue>,
    ) {
        let grant = self.grant(index);
        if grant.is_over() {
            return self.end_subscriber(index, parked, form, EndReason::Expired);
        }
        parked.token = u32::try_from(index).unwrap_or(u32::MAX);
        let limit = self.silence_of(index, form).map_or(grant.left(), |it| Some(grant.limit(it)));
        let activity = || self.activity(index, form, pinged.is_some());
        self.note(index, Entry::parked);
        match self.parking_lot.park(parked, self.clone(), form.wakes_on(), limit, activity) {
            Ok(key) => {
                self.set(index, SubscriberState::Parked { key, form, pinged });
                self.left_held(index);
            }
            Err((parked, _)) => self.end_subscriber(index, parked, form, EndReason::Retired),
        }
    }

    /// Returns the state of a parked subscriber for a successor.
    pub(super) fn activity(&self, index: usize, form: Form, pinged: bool) -> Option<Activity> {
        let (last, grant) = (self.last_given(index), self.grant(index));
        let reader = self.reader(index);
        let selection = reader.as_ref().map(|reader| &reader.selection);
        let (space, offset) = (self.hub.space()?, self.hub.offset(last, form));
        let subscriber = SubscriberRecord { space, last, offset, grant, pinged };
        let activity = form.activity(subscriber, selection);
        Some(activity.with_user(self.presence.name(index).as_deref()))
    }

    /// Continues a subscriber that another server has left after a given message, and to which that
    /// server has written this many bytes since. Those are whole messages, and the beginning of at
    /// most one more, in its form, of those that its reader gets. The first of them need not be
    /// kept any more if `offset` says where they began. Otherwise its position is unknown, and the
    /// client has to come again: the answer is `None`.
    pub fn adopt(
        self: &Rc<LocalSubscribers>,
        left: LeftConnection,
        subscriber: LeftSubscriber,
    ) -> Option<()> {
        let LeftSubscriber { form, last, offset, pinged, grant, reader, user } = subscriber;
        let options = self.hub.options();
        let (sent, overhead) = (left.sent, left.overhead());
        // The other server may have sent messages that nobody knows any more. Those of this server
        // have their numbers, and must not be taken for them.
        let inherited = self.hub.inherited().filter(|&inherited| last <= inherited);
        let mut since = self.hub.join(self.queue_id, Some(self.cursor(last)));
        if let Some(selection) = &reader {
            since.messages.retain(|message| selection.has(message));
        }
        // The number of messages that are not kept, and the bytes that were written for them, if
        // the subscriber was sent all of them.
        let before = offset.filter(|_| since.missed).and_then(|offset| {
            let first = since.messages.first()?.id;
            let bytes = self.hub.offset(first - 1, form)?.checked_sub(offset)?;
            let count = (first - 1).checked_sub(last)?;
            let written = bytes.checked_add(count.checked_mul(overhead)?)?;
            (written <= sent).then_some((count, written))
        });
        since.missed &= before.is_none();
        if form.is_held() && sent == 0 {
            // It was left after all that it had got: what the log has forgotten was for others.
            since.missed = false;
        }
        let (before, written) = before.unwrap_or_default();
        let sent = usize::try_from(sent - written).unwrap_or(usize::MAX);
        let is_known = |message: &Message| inherited.is_some_and(|last| message.id <= last);
        let known = &since.messages[..since.messages.partition_point(is_known)];
        let encoded = Encoded::covering(form, self.hub.source(), known, sent);
        // If some are missing, the messages that it was sent are not kept.
        let is_known = inherited.is_some() && (sent == 0 || !since.missed);
        let place = is_known.then(|| encoded.go_on(left, before, sent)).flatten();
        let Some((mut parked, begun, mut rest)) = place else {
            self.hub.leave(self.queue_id);
            if let Some(record) = reader.as_ref().and_then(Selection::mercure) {
                subscriptions::report(&self.hub, record, false);
            }
            return None;
        };
        // The option belongs to the socket, but the other server may have had another limit.
        limit_unsent(&parked.stream, options.unsent_bytes);
        let Since { mut messages, missed, last: newest } = since;
        messages.drain(..begun);
        let last = messages.first().map_or(newest, |message| message.id - 1);
        let mailbox = Rc::new(Mailbox::new(Since { messages, missed, last: newest }, &options));
        if grant.is_over() {
            mailbox.end(EndReason::Expired);
        } else if !self.have_given(grant) {
            mailbox.end(EndReason::Changed);
        } else if missed && options.slow == Slow::Disconnect {
            counters::count(&self.hub.counters().disconnected, 1);
            mailbox.end(EndReason::Slow);
        } else if missed {
            rest = form.missed(last, self.hub.source()).into();
        }
        let subscription = self.add(newest, grant, SubscriberState::Task(mailbox.clone()));
        subscription.continues_of(user);
        let index = subscription.index;
        subscription.detach();
        if let Some(selection) = reader {
            self.read_as(index, selection, false);
        }
        let is_quiet = rest.is_empty() && !parked.stream.has_unsent();
        if is_quiet && mailbox.is_empty() && mailbox.ended().is_none() {
            let pinged = pinged.then(|| SendQueue::measure(&parked.stream));
            self.clone().park_subscriber(index, parked, form, pinged);
        } else {
            self.continue_in_task(index, parked, form, Backlog { rest, mailbox });
        }
        Some(())
    }

    /// Continues a parked subscriber in a task.
    pub(super) fn continue_in_task(
        self: &Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        form: Form,
        backlog: Backlog,
    ) {
        match form {
            Form::WebSocket | Form::Json | Form::HeldSocket => {
                self.continue_socket(index, parked, form, backlog);
            }
            Form::Events | Form::Mercure | Form::Held => {
                self.continue_events(index, parked, form, backlog);
            }
        }
    }
}

impl Encoded {
    /// Continues with a connection to which so many messages were sent that are not kept, and so
    /// many bytes of these. Returns how many of these have begun, and the rest of the last one.
    /// `None` if there are not as many.
    pub(super) fn go_on(
        &self,
        left: LeftConnection,
        before: u64,
        sent: usize,
    ) -> Option<(ParkedConnection, usize, Bytes)> {
        if !left.is_encrypted() {
            if sent > self.len() {
                return None;
            }
            let (begun, rest) = self.sent(0, sent);
            // The rest of one message must not hold the others.
            let rest = if rest.is_empty() { rest } else { Bytes::copy_from_slice(&rest) };
            return Some((left.go_on(0, None)?, begun, rest));
        }
        let overhead = usize::try_from(left.overhead()).ok()?;
        let (begun, cut) = self.sent_in_records(sent, overhead)?;
        let whole = before + (begun - usize::from(cut.is_some())) as u64;
        let message = cut.map(|sent| (self.bytes_of(begun - 1..begun), sent));
        let cut = message.as_ref().map(|(message, sent)| Cut { message, sent: *sent });
        // The rest of a record is written by the stream, before anything else. A subscriber whose
        // key is still to be changed would be taken from the keeper by its first message.
        let mut parked = left.go_on(whole, cut)?;
        parked.stream.change_key().ok()?;
        Some((parked, begun, Bytes::new()))
    }
}

/// Ends a connection so that the bytes that were written last arrive.
pub(super) async fn linger(mut transport: Transport) -> io::Result<()> {
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

#[cfg(test)]
mod tests;
