//! The channel itself, which all engines share.

mod presence;

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use superpoll_config::{Channel, Slow};
use superpoll_rt::time;

use super::counters::{self, Counters};
use super::cursor::{Cursor, Question};
use super::form::{Form, Offsets};
use super::history::{History, Since};
use super::inbox::Inbox;
use super::json_frame::Source;
use super::mercure::{EARLIEST, update};
use super::message::{Draft, Message, NameKind, cost};
use super::moment::Moment;
use super::presence::{Listed, Presence, Unsettle, is_reserved};
use super::publisher_queue::{PublisherQueue, QUEUE_FACTOR, QueueFull};
use super::route_parts::RouteParts;
use super::shared::SharedChannel;
use crate::broker::Unpublished;
use crate::succession::records::{MemberRecords, RecordStore};

/// The least time between two signs of life, whatever the configuration says.
const SHORTEST: Duration = Duration::from_millis(10);

/// The reason for which a message was not published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NotPublished {
    /// Another server continues with the channel: the message has to be published there.
    HandedOver,
    /// The channels of the route keep as many bytes as they may.
    Full,
    /// Another message was published with the same key.
    OtherWithKey,
    /// The type of the event is one of those that tell who is there.
    Reserved,
    /// The broker has not taken it, or that is not known.
    Unshared(Unpublished),
}

/// A message that is published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Published {
    pub id: u64,
    /// The epoch that the id belongs to.
    pub epoch: u64,
    /// It had been published before, with the same key.
    pub is_repeated: bool,
}

/// The messages on their way to one engine's subscribers.
struct EngineQueue {
    /// A number that no other queue of this process has: an engine whose queue was closed takes no
    /// messages from another queue.
    id: u64,
    inbox: Arc<Inbox>,
    /// Whether the engine knows that it must look here.
    is_listed: bool,
    subscribers: usize,
    /// The messages that the engine has not taken yet; empty if there are no subscribers.
    messages: Vec<Message>,
    /// The cost of the messages in the queue, and of those that the engine has taken and not
    /// delivered yet.
    bytes: u64,
}

/// Messages of the history, for a subscriber that gets them bit by bit.
pub(super) struct Kept {
    /// The messages, in order; empty if all that were asked for are gone.
    pub messages: Vec<Message>,
    /// The treatment of a subscriber for which some are gone.
    pub slow: Slow,
}

struct HubState {
    options: Arc<Channel>,
    /// When a publisher or a subscriber last used the channel.
    used: Moment,
    history: History,
    queues: Vec<EngineQueue>,
    /// Publishers that wait.
    publisher_queue: PublisherQueue,
    /// Whether another server continues with the channel.
    is_closed: bool,
    /// Whether another channel is in its place, as the log of the messages is another one.
    is_replaced: bool,
    /// The members, if there have been any.
    presence: Option<Box<Presence>>,
    /// The parts that it has in common with the other channels of its route, except its budget.
    parts: Arc<RouteParts>,
}

/// A channel: its last messages, and the subscribers of the next.
pub struct Hub {
    name: Arc<str>,
    epoch: u64,
    state: Mutex<HubState>,
    counters: Counters,
    /// The log of its messages, if other servers have it as well.
    shared: OnceLock<Arc<SharedChannel>>,
}

impl Unsettle for Hub {
    fn end_graces(self: Arc<Hub>, now: Instant) {
        Hub::end_graces(&self, now);
    }
}

impl Hub {
    /// Creates a channel without messages.
    #[must_use]
    pub fn new(options: impl Into<Arc<Channel>>) -> Arc<Hub> {
        let parts = RouteParts::new(String::new(), u64::MAX);
        Hub::in_route("".into(), options.into(), parts)
    }

    /// Creates a channel of a route, whose bytes count there.
    pub(super) fn in_route(
        name: Arc<str>,
        options: Arc<Channel>,
        parts: Arc<RouteParts>,
    ) -> Arc<Hub> {
        // The epoch differs from that of any hub before a restart, which takes longer than a
        // microsecond, and from that of a channel of the same name before.
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let epoch = u64::try_from(epoch.as_micros()).unwrap_or(u64::MAX);
        let history = History::new((name.clone(), epoch), Vec::new(), false, parts.budget.clone());
        Hub::with(name, options, epoch, history, parts)
    }

    /// Returns the channel that another server had, with the last of its messages, in order and
    /// without gaps. Its subscribers are still to come: it drops no message until they are all here
    /// ([`finish_gathering`](Hub::finish_gathering)).
    pub(crate) fn restore(name: Arc<str>, epoch: u64, messages: Vec<Message>) -> Arc<Hub> {
        let parts = RouteParts::new(String::new(), u64::MAX);
        let history = History::new((name.clone(), epoch), messages, true, parts.budget.clone());
        Hub::with(name, Arc::default(), epoch, history, parts)
    }

    /// The same, with the offsets before the first message.
    pub(crate) fn restore_at(
        name: Arc<str>,
        epoch: u64,
        messages: Vec<Message>,
        offsets: Offsets,
    ) -> Arc<Hub> {
        let hub = Hub::restore(name, epoch, messages);
        hub.state().history.count_from(offsets);
        hub
    }

    /// Takes the members that another server had, by their records.
    pub(crate) fn restore_members(&self, members: MemberRecords, is_shared: bool) {
        let mut state = self.state();
        let messages = match is_shared {
            // They tell of users of all servers.
            true => Vec::new(),
            false => state.history.some(0, u64::MAX, u64::MAX),
        };
        state.presence = Presence::restore(&messages, members);
    }

    fn with(
        name: Arc<str>,
        options: Arc<Channel>,
        epoch: u64,
        history: History,
        parts: Arc<RouteParts>,
    ) -> Arc<Hub> {
        let state = HubState {
            options,
            used: Moment::now(),
            history,
            queues: Vec::new(),
            publisher_queue: PublisherQueue::default(),
            is_closed: false,
            is_replaced: false,
            presence: None,
            parts,
        };
        let (state, counters) = (Mutex::new(state), Counters::default());
        Arc::new(Hub { name, epoch, state, counters, shared: OnceLock::new() })
    }

    /// Returns the name of the channel, which is its path.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the channel as messages name it.
    pub(super) fn source(&self) -> Source<'_> {
        Source { epoch: self.epoch, name: &self.name }
    }

    /// Describes the channel as its clients may ask, together with users if it counts any.
    pub(super) fn describe(&self, question: &Question, users: Option<Listed>) -> serde_json::Value {
        let mut info = self.info(self.last(), self.subscribers());
        if let Some(Listed { last, users, members, has_more }) = users {
            info["users"] = users.into();
            if question.lists_members {
                info["last"] = last.into();
                if has_more {
                    info["after_user"] = members.last().map(|last| last["user"].clone()).into();
                }
                info["members"] = members.into();
            }
        }
        info
    }

    /// Describes the channel in JSON.
    pub(super) fn info(&self, last: u64, subscribers: usize) -> serde_json::Value {
        let epoch = format!("{:x}", self.epoch);
        let mut info = serde_json::json!({
            "channel": *self.name, "subscribers": subscribers, "last": last, "epoch": epoch,
        });
        if let Some(users) = self.users() {
            info["users"] = users.into();
        }
        info
    }

    /// Returns when a publisher or a subscriber last used the channel.
    pub(super) fn used_at(&self) -> Moment {
        self.state().used
    }

    /// Makes the channel one of a route, where the bytes of its messages count.
    pub(super) fn belong_to(&self, parts: &Arc<RouteParts>) {
        let mut state = self.state();
        state.history.count_in(&parts.budget);
        state.parts = parts.clone();
    }

    /// Tells the application of the last message again: the server before may have ended before it
    /// had done so.
    pub(super) fn tell_last_again(&self) {
        let state = self.state();
        if let Some(last) = state.history.last_kept() {
            state.tell_application(last);
        }
    }

    /// Takes no more messages: another server continues with the channel.
    pub(crate) fn hand_over(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let wakers = state.publisher_queue.all();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, HubState> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the epoch, which distinguishes this channel from one that the server had under its
    /// name before a restart.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the channel's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns how many subscribers there are.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        self.state().queues.iter().map(|queue| queue.subscribers).sum()
    }

    /// Returns the last message's id; zero before the first.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.state().history.last()
    }

    /// Returns how many messages are kept, and their bytes.
    pub(super) fn kept_in_all(&self) -> (u64, u64) {
        self.state().history.size()
    }

    /// Returns the channel's configuration.
    #[must_use]
    pub fn options(&self) -> Arc<Channel> {
        self.state().options.clone()
    }

    /// Returns how long a subscriber goes without a message before it is sent a sign of life.
    pub(super) fn silence(&self) -> Duration {
        (self.state().options.poll / 2).max(SHORTEST)
    }

    /// Changes the channel's configuration from now on.
    pub fn change(&self, options: impl Into<Arc<Channel>>) {
        let options = options.into();
        let mut state = self.state();
        state.history.change(options.history);
        if !options.presence
            && let Some(mut presence) = state.presence.take()
        {
            presence.forget_all();
        }
        state.options = options;
        let next = state.next_publisher();
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }

    /// Notes that all subscribers of the server before are here: from now on the log is as long as
    /// the configuration says.
    pub(crate) fn finish_gathering(self: &Arc<Hub>) {
        let mut state = self.state();
        let length = state.options.history;
        state.history.finish_gathering(length);
        state.finish_awaiting();
        self.settle_and_wake(state, time::now());
    }

    /// Whether the keeper may still have subscribers of the server before, with the state that
    /// they had then. A successor takes the bytes that were written to them since for messages, so
    /// nothing but messages is written unasked.
    pub(crate) fn is_gathering(&self) -> bool {
        self.state().history.is_gathering()
    }

    /// Whether a message may still be given to a subscriber that was not there when it was
    /// published. While the keeper may have subscribers of the server before, every message is: a
    /// successor counts on the bytes of all of them.
    pub(super) fn may_send(&self, message: &Message) -> bool {
        !message.is_expired() || self.is_gathering()
    }

    /// Publishes a message, which is text if it is UTF-8, and returns its id. `None` if another
    /// server continues with the channel: the message then has to be published there. `None` as
    /// well if the channels of a route with parameters keep as many bytes as they may.
    ///
    /// It neither waits nor refuses otherwise. A program that may publish more than its subscribers
    /// take awaits [`room`](Hub::room) before each message.
    pub fn publish(&self, data: impl Into<Bytes>) -> Option<u64> {
        self.publish_as(Draft::new(data.into())).ok().map(|published| published.id)
    }

    /// Publishes a message, unless it repeats one that is kept: one with the same key.
    pub(super) fn publish_as(&self, draft: Draft) -> Result<Published, NotPublished> {
        let mut wakers = Vec::new();
        let mut state = self.state();
        let state_now = &mut *state;
        if state_now.is_closed {
            return Err(NotPublished::HandedOver);
        }
        // By a message that is repeated or refused, too.
        state_now.used = Moment::now();
        if state_now.options.presence && is_reserved(&draft) {
            return Err(NotPublished::Reserved);
        }
        if let Some(key) = draft.meta.as_ref().and_then(|meta| meta.key.as_deref())
            && let Some(known) = state_now.history.with_name(NameKind::Key, key)
        {
            return match known.is_of(&draft) {
                true => Ok(Published { id: known.id, epoch: self.epoch, is_repeated: true }),
                false => Err(NotPublished::OtherWithKey),
            };
        }
        if !state_now.history.make_room(draft.cost()) {
            return Err(NotPublished::Full);
        }
        let id = state_now.append(draft, &mut wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        counters::count(&self.counters.published, 1);
        Ok(Published { id, epoch: self.epoch, is_repeated: false })
    }

    /// Whether a message may be published if no publisher waits.
    #[cfg(test)]
    pub(super) fn has_room_without_waiting(&self) -> bool {
        self.state().has_room()
    }

    /// Returns the cost of the messages on their way to an engine.
    #[cfg(test)]
    pub(super) fn on_their_way(&self, queue_id: u64) -> u64 {
        let mut state = self.state();
        let queue = state.queue(queue_id).unwrap();
        if queue.subscribers > 0 { queue.bytes } else { 0 }
    }

    /// Notes that an engine has delivered messages of this cost.
    pub(super) fn delivered(&self, queue_id: u64, bytes: u64) {
        let mut state = self.state();
        if let Some(queue) = state.queue(queue_id) {
            queue.bytes = queue.bytes.saturating_sub(bytes);
        }
        let mut wakers = Vec::new();
        state.settle(&mut wakers);
        wakers.extend(state.next_publisher());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns messages of the history from one id up to another, with at most this cost, but at
    /// least one message. If the first ones are gone, it begins with the oldest that is kept.
    pub(super) fn kept(&self, from: u64, last: u64, bytes: u64) -> Kept {
        let state = self.state();
        Kept { messages: state.history.some(from, last, bytes), slow: state.options.slow }
    }

    /// Returns the messages that were published after a place, or, without a place, none: those
    /// that are published from now on.
    #[must_use]
    pub fn since(&self, after: Option<Cursor>) -> Since {
        self.state().history.since(after, self.epoch)
    }

    /// Returns the number of the oldest message that is kept, and whether the log has more than
    /// half of the bytes that it may have.
    pub(super) fn oldest(&self) -> (u64, bool) {
        let state = self.state();
        let (count, bytes) = state.history.size();
        (state.history.last() + 1 - count, bytes > state.options.max_bytes / 2)
    }

    /// Returns the number of the message with a key, if it is kept.
    pub(super) fn number_of_key(&self, key: &str) -> Option<u64> {
        self.state().history.with_name(NameKind::Key, key).map(|message| message.id)
    }

    /// Returns the number of the last message of those with keys that begin so, if it is kept.
    pub(super) fn last_of_keys(&self, beginning: &str) -> Option<u64> {
        self.state().history.last_with_key(beginning).map(|message| message.id)
    }

    /// Returns the place after the update of an id of Mercure; `None` if there is no such update.
    pub(super) fn place_behind(&self, id: &str) -> Option<Cursor> {
        if let Some(place) = update::parse_place(id) {
            return Some(place);
        }
        let state = self.state();
        let message = state.history.with_name(NameKind::Id, id)?;
        Some(Cursor { id: message.id, epoch: Some(self.epoch) })
    }

    /// Returns the id of the last update, as Mercure has it.
    pub(super) fn last_update(&self) -> String {
        let state = self.state();
        let last = state.history.last();
        match state.history.last_kept() {
            Some(message) => update::id(message, self.epoch),
            None if last == 0 => EARLIEST.to_owned(),
            None => update::place(Cursor { id: last, epoch: Some(self.epoch) }),
        }
    }

    /// Opens a queue for the subscribers of one engine, and returns its id.
    pub(super) fn open(&self, inbox: &Arc<Inbox>) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let queue = EngineQueue {
            id,
            inbox: inbox.clone(),
            is_listed: false,
            subscribers: 0,
            messages: Vec::new(),
            bytes: 0,
        };
        self.state().queues.push(queue);
        id
    }

    /// Closes a queue.
    pub(super) fn close(&self, queue_id: u64) {
        let mut state = self.state();
        state.queues.retain(|queue| queue.id != queue_id);
        if state.queues.is_empty() {
            state.queues = Vec::new();
        }
        state.used = Moment::now();
        let next = state.next_publisher();
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }

    /// Counts a subscriber in, and returns the messages that it has missed. Later messages come
    /// through the queue, together with some of those that are returned now.
    pub(super) fn join(&self, queue_id: u64, after: Option<Cursor>) -> Since {
        let mut state = self.state();
        state.count_in(queue_id);
        state.history.since(after, self.epoch)
    }

    /// Counts a subscriber out.
    pub(super) fn leave(&self, queue_id: u64) {
        let mut state = self.state();
        state.count_out(queue_id);
        let mut wakers = Vec::new();
        state.settle(&mut wakers);
        wakers.extend(state.next_publisher());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Takes the messages from a queue. After an empty answer the queue is listed again with the
    /// next message.
    pub(super) fn take_queued(&self, queue_id: u64) -> Vec<Message> {
        let mut state = self.state();
        let Some(queue) = state.queue(queue_id) else { return Vec::new() };
        let messages = std::mem::take(&mut queue.messages);
        queue.is_listed = !messages.is_empty();
        messages
    }
}

impl HubState {
    /// Gives a message that there is room for its number, and a place in the queue of each engine.
    /// Returns its number, and adds the tasks to wake.
    fn append(&mut self, draft: Draft, wakers: &mut Vec<Waker>) -> u64 {
        let length = self.options.history;
        self.append_and_keep((draft, true), length, wakers)
    }

    /// Notes for the application what a message stands for.
    fn tell_application(&self, message: &Message) {
        if let Some(rule) = &self.options.callbacks {
            let source = self.history.source();
            self.parts.callbacks.note(rule, self.options.presence, source, message);
        }
    }

    /// The same, if another number of messages is kept than the configuration says, and perhaps
    /// another server has caused the message.
    fn append_and_keep(
        &mut self,
        (draft, is_own): (Draft, bool),
        length: usize,
        wakers: &mut Vec<Waker>,
    ) -> u64 {
        let message = self.history.number(draft);
        if is_own {
            self.tell_application(&message);
        }
        let id = message.id;
        for queue in &mut self.queues {
            if queue.subscribers > 0 {
                queue.bytes += cost(&message);
                queue.messages.push(message.clone());
                if !std::mem::replace(&mut queue.is_listed, true) {
                    wakers.extend(queue.inbox.list(queue.id));
                }
            }
        }
        self.history.keep(message, length);
        id
    }

    /// Counts a subscriber in.
    fn count_in(&mut self, queue_id: u64) {
        let is_replaced = self.is_replaced;
        if let Some(queue) = self.queue(queue_id) {
            queue.subscribers += 1;
            if is_replaced && !std::mem::replace(&mut queue.is_listed, true) {
                // It came too late: the engine moves it on.
                queue.inbox.list(queue_id).into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Counts a subscriber out.
    fn count_out(&mut self, queue_id: u64) {
        let Some(queue) = self.queue(queue_id) else { return };
        queue.subscribers -= 1;
        if queue.subscribers == 0 {
            let dropped = std::mem::take(&mut queue.messages);
            queue.bytes = queue.bytes.saturating_sub(dropped.iter().map(cost).sum());
        }
    }

    fn queue(&mut self, id: u64) -> Option<&mut EngineQueue> {
        self.queues.iter_mut().find(|queue| queue.id == id)
    }

    /// Whether each engine has at most its limit to deliver. One message always fits.
    fn has_room(&self) -> bool {
        let most = self.options.queue_bytes;
        self.queues
            .iter()
            .all(|queue| queue.subscribers == 0 || queue.bytes == 0 || queue.bytes < most)
    }

    /// Returns the publisher whose turn it is, if it may publish.
    fn next_publisher(&self) -> Option<Waker> {
        self.publisher_queue.first().filter(|_| self.has_room())
    }
}

superpoll::debug_fields!(Hub, it => epoch: it.epoch, history: it.state().history);

// The turns of the publishers that wait for room in a channel, see `channel/publisher_queue.rs`.

/// A publisher's place in the line, given up on drop.
pub(in crate::channel) struct PublishTurn {
    hub: Arc<Hub>,
    ticket: Option<u64>,
}

impl PublishTurn {
    pub(in crate::channel) fn new(hub: &Arc<Hub>) -> PublishTurn {
        PublishTurn { hub: hub.clone(), ticket: None }
    }

    /// Ready when a message may be published, or when waiting is pointless. `bytes` is the memory
    /// that the publisher holds meanwhile.
    pub(in crate::channel) fn poll(
        &mut self,
        bytes: u64,
        cx: &Context<'_>,
    ) -> Poll<Result<(), QueueFull>> {
        self.hub.poll_turn(&mut self.ticket, bytes, cx)
    }
}

impl Drop for PublishTurn {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.hub.leave_queue(ticket);
        }
    }
}

impl Hub {
    /// Waits until the messages on their way to each engine are less than `queue_bytes`.
    ///
    /// Cancel safe: nothing is published, and publishers that wait behind this one move up.
    pub async fn room(self: &Arc<Hub>) {
        let mut turn = PublishTurn::new(self);
        // The memory that a program holds meanwhile is its own.
        let _ = poll_fn(|cx| turn.poll(0, cx)).await;
    }

    /// Whether a message may be published at once.
    pub(in crate::channel) fn has_room(&self) -> bool {
        let state = self.state();
        state.publisher_queue.is_empty() && state.has_room()
    }

    /// Ready when a publisher, the holder of that place in the line, may publish a message.
    fn poll_turn(
        &self,
        ticket: &mut Option<u64>,
        bytes: u64,
        cx: &Context<'_>,
    ) -> Poll<Result<(), QueueFull>> {
        let mut state = self.state();
        if state.is_closed || (state.publisher_queue.is_first(*ticket) && state.has_room()) {
            let next = ticket.take().and_then(|ticket| {
                state.publisher_queue.leave(ticket);
                state.publisher_queue.first()
            });
            drop(state);
            next.into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(()));
        }
        match *ticket {
            Some(ticket) => state.publisher_queue.remember(ticket, cx),
            None if state.publisher_queue.bytes() + bytes
                > state.options.queue_bytes.saturating_mul(QUEUE_FACTOR) =>
            {
                return Poll::Ready(Err(QueueFull));
            }
            None => *ticket = Some(state.publisher_queue.enter(bytes, cx)),
        }
        Poll::Pending
    }

    /// Gives up a place in the line.
    fn leave_queue(&self, ticket: u64) {
        let mut state = self.state();
        state.publisher_queue.leave(ticket);
        let next = state.publisher_queue.first();
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }
}

// The copies of a channel's messages for another server.

/// How long a publisher waits at most for a keeper that is behind, and the time between two
/// checks.
const SAFE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_millis(1);

impl Hub {
    /// Returns the store that records messages, if there is one.
    pub(in crate::channel) fn records(&self) -> Option<Arc<dyn RecordStore>> {
        self.state().history.records()
    }

    /// Returns the offset after a message in a form, if it is known.
    pub(in crate::channel) fn offset(&self, id: u64, form: Form) -> Option<u64> {
        self.state().history.offset(id, form)
    }

    /// Returns the number of the last message of another server, as long as its subscribers are
    /// still to come.
    pub(in crate::channel) fn inherited(&self) -> Option<u64> {
        self.state().history.inherited()
    }

    /// Records messages in a space of the record store from now on, and the existing ones at once.
    pub(crate) fn record_in(&self, records: Arc<dyn RecordStore>, space: u64) {
        let mut state = self.state();
        if let Some(presence) = &mut state.presence {
            presence.record_in(records.clone(), space);
        }
        state.history.record_in(records, space);
    }

    /// The same for existing messages that come from that space.
    pub(crate) fn continue_in(&self, records: Arc<dyn RecordStore>, space: u64) {
        let mut state = self.state();
        if let Some(presence) = &mut state.presence {
            presence.continue_in(records.clone(), space);
        }
        state.history.continue_in(records, space);
    }

    /// Records no messages any more, and returns the space.
    pub(crate) fn stop_recording(&self) -> Option<u64> {
        let mut state = self.state();
        if let Some(presence) = &mut state.presence {
            presence.stop_recording();
        }
        state.history.stop_recording()
    }

    /// Waits until the published messages are available to a successor, at most for a moment.
    pub(in crate::channel) async fn wait_until_recorded(&self) {
        let Some(records) = self.state().history.records() else { return };
        let end = time::now() + SAFE;
        while !records.has_room() && time::now() < end {
            time::sleep(NAP).await;
        }
    }

    /// Returns the number of the space in which the channel is recorded.
    pub(crate) fn space(&self) -> Option<u64> {
        self.state().history.space()
    }
}

// The copy of a log that several servers read: messages come with their numbers, and the hub may
// be replaced by another one.

impl Hub {
    /// Creates the channel of a log whose messages follow the one with this number.
    pub(in crate::channel) fn of_log(
        name: Arc<str>,
        options: Arc<Channel>,
        parts: Arc<RouteParts>,
        (epoch, after): (u64, u64),
    ) -> Arc<Hub> {
        let budget = parts.budget.clone();
        let mut history = History::new((name.clone(), epoch), Vec::new(), false, budget);
        history.begin_after(after);
        Hub::with(name, options, epoch, history, parts)
    }

    /// Appends the message with the next number of a log, as far as there is room for it.
    ///
    /// `is_own` says whether this server has caused it. `false` if the channel takes no more
    /// messages.
    pub(in crate::channel) fn apply(&self, draft: Draft, is_own: bool) -> bool {
        let mut wakers = Vec::new();
        let mut state = self.state();
        let state_now = &mut *state;
        if state_now.is_closed {
            return false;
        }
        // Other servers have it in any case. If there is no room, it is not kept here.
        let has_room = state_now.history.make_room(draft.cost());
        let length = if has_room { state_now.options.history } else { 0 };
        state_now.append_and_keep((draft, is_own), length, &mut wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// Notes that another channel is in its place, and lets the engines move its subscribers there.
    pub(in crate::channel) fn replace(&self) {
        let mut wakers = Vec::new();
        let mut state = self.state();
        (state.is_closed, state.is_replaced) = (true, true);
        wakers.extend(state.publisher_queue.all());
        for queue in &mut state.queues {
            if queue.subscribers > 0 && !std::mem::replace(&mut queue.is_listed, true) {
                wakers.extend(queue.inbox.list(queue.id));
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether it takes no more messages.
    pub(in crate::channel) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Whether another channel is in its place.
    pub(in crate::channel) fn is_replaced(&self) -> bool {
        self.state().is_replaced
    }

    /// Makes the messages those of a log that other servers have, too.
    pub(in crate::channel) fn share(&self, shared: Arc<SharedChannel>) {
        self.state().history.follow();
        // The second call for a channel would be with the same log.
        let _ = self.shared.set(shared);
    }

    /// Returns the log of its messages, if other servers have it as well.
    pub(in crate::channel) fn shared(&self) -> Option<&Arc<SharedChannel>> {
        self.shared.get()
    }
}

#[cfg(test)]
mod tests;
