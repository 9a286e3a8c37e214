//! One engine's part of a channel: its subscribers.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use slab::Slab;
use superpoll::Key;
use superpoll_config::Channel;
use superpoll_http::admin::Protocol;
use superpoll_http::body::Body;
use superpoll_http::grant::Grant;
use superpoll_http::log::{BrokenBy, Entry};
use superpoll_http::parking_lot::{
    ConnectionOwner, ParkedConnection, ParkingLot, ResumeReason, WaitingRequest,
};
use superpoll_http::peer::Peer;

use super::counters;
use super::cursor::Cursor;
use super::delivery::Carries;
use super::engine::ChannelEngine;
use super::form::Form;
use super::grip::Item;
use super::history::Since;
use super::hub::Hub;
use super::local_route::LocalRoute;
use super::mailbox::{EndReason, Mailbox};
use super::mercure::subscriptions;
use super::message::Message;
use super::moment::Moment;
use super::presence::{LocalPresence, User};
use super::publish_target::PublishTarget;
use super::reader::{HeldTimes, Reader, Readers, Selection};
use super::response;
use super::send_queue::SendQueue;

/// One engine's subscribers of a channel.
///
/// They exist as long as there are some: each of them holds the whole, and so does each request
/// that is about to become one.
pub struct LocalSubscribers {
    pub(super) hub: Arc<Hub>,
    pub(super) engine: Rc<ChannelEngine>,
    pub(super) parking_lot: Rc<ParkingLot>,
    pub(super) queue_id: u64,
    pub(super) subscribers: RefCell<Slab<Subscriber>>,
    /// The lines of the access log of responses and WebSockets that are sent here, by subscriber.
    /// Each is written with the end of its subscription. Without a log there are none.
    pub(super) entries: RefCell<HashMap<usize, Rc<Entry>>>,
    /// The subscribers that get some of the messages: those of Mercure.
    readers: RefCell<Option<Box<Readers>>>,
    /// The users of the subscribers, if the channel tells of users.
    pub(super) presence: LocalPresence,
    /// The route that they came by.
    pub(super) route: Weak<LocalRoute>,
    /// There are no subscribers any more, and no new ones are accepted.
    is_retired: Cell<bool>,
    /// The last message that all subscribers were given, or that was not for them, if only those
    /// are looked at that may get one.
    pub(super) delivered: Cell<u64>,
    /// The held connections that were written to since their state was left, each with the first
    /// item that was.
    pub(super) written: RefCell<VecDeque<(u64, u32)>>,
}

/// A subscriber.
pub(super) struct Subscriber {
    /// The last message that it was given.
    pub last: u64,
    pub grant: Grant,
    pub delivery: SubscriberState,
}

/// The state of a subscriber.
pub(super) enum SubscriberState {
    /// A parked long-poll.
    Poll(Key),
    /// A parked subscriber that gets messages in a form. `pinged` is its send queue when it was
    /// sent a sign of life, if nothing has come from it since.
    Parked { key: Key, form: Form, pinged: Option<SendQueue> },
    /// A subscriber on a stream of HTTP/2, which is parked with its connection.
    Carried(Weak<dyn Carries>),
    /// A subscriber with a task, which reads this mailbox.
    Task(Rc<Mailbox>),
}

/// A subscriber's place, given up on drop.
pub(super) struct Subscription {
    pub local_subscribers: Rc<LocalSubscribers>,
    pub index: usize,
    is_detached: bool,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if !self.is_detached {
            self.local_subscribers.remove(self.index);
        }
    }
}

impl Subscription {
    /// Takes over a place.
    pub(super) fn new(local_subscribers: &Rc<LocalSubscribers>, index: usize) -> Subscription {
        Subscription { local_subscribers: local_subscribers.clone(), index, is_detached: false }
    }

    /// Leaves the place to the parked subscriber.
    pub(super) fn detach(mut self) {
        self.is_detached = true;
    }

    /// Remembers the user of the subscriber, if the channel counts it.
    pub(super) fn is_of(&self, name: Option<Arc<str>>) {
        if let Some(name) = name {
            self.local_subscribers.presence.insert(self.index, name);
        }
    }

    /// Notes the user of a subscriber that continues from another server.
    pub(super) fn continues_of(&self, user: Option<Box<str>>) {
        let hub = &self.local_subscribers.hub;
        let name: Option<Arc<str>> = user.filter(|_| hub.options().presence).map(Into::into);
        name.iter().for_each(|name| hub.keep_present(name));
        self.is_of(name);
    }
}

impl LocalSubscribers {
    /// Joins a channel on the engine of this thread.
    pub(super) fn new(
        hub: Arc<Hub>,
        engine: &Rc<ChannelEngine>,
        route: Weak<LocalRoute>,
    ) -> Rc<LocalSubscribers> {
        let queue_id = hub.open(&engine.inbox);
        let local_subscribers = Rc::new(LocalSubscribers {
            hub,
            engine: engine.clone(),
            parking_lot: engine.parking_lot.clone(),
            queue_id,
            subscribers: RefCell::default(),
            entries: RefCell::default(),
            readers: RefCell::default(),
            presence: LocalPresence::default(),
            route,
            is_retired: Cell::new(false),
            delivered: Cell::new(0),
            written: RefCell::default(),
        });
        engine.enter(queue_id, Rc::downgrade(&local_subscribers));
        local_subscribers
    }

    /// Returns a response without a body that names its reader's place.
    pub(super) fn empty_response(&self, status: StatusCode, last: u64) -> Response<Body> {
        response::empty_response(&self.hub, status, last)
    }

    /// Answers a request that has left the router behind, with the fields that its route adds.
    pub(super) fn answer_waiting(&self, waiting: WaitingRequest, mut response: Response<Body>) {
        let pending = waiting.parked.pending.as_ref();
        let may_have_hsts = pending.is_some_and(|pending| pending.form.may_have_hsts);
        self.change_fields(response.headers_mut(), may_have_hsts);
        waiting.answer(response);
    }

    /// Changes the fields of an answer as the route says.
    pub(super) fn change_fields(&self, headers: &mut HeaderMap, may_have_hsts: bool) {
        if let Some(route) = self.route.upgrade() {
            route.change_fields(headers, may_have_hsts);
        }
    }

    /// Returns the place after a message, in full.
    pub(super) fn cursor(&self, last: u64) -> Cursor {
        Cursor { id: last, epoch: Some(self.hub.epoch()) }
    }

    /// Returns the engine's part of the channel that is in the place of this one.
    pub(super) fn successor(&self) -> Option<Rc<LocalSubscribers>> {
        let route = self.route.upgrade()?;
        let hub = route.channels.find(self.hub.name())?;
        (!Arc::ptr_eq(&hub, &self.hub)).then(|| route.subscribers(&hub))
    }

    /// Returns the channel as one that a client publishes to; it has a limit for the client as long
    /// as there is a route to it.
    pub(super) fn target(&self, grant: Grant, peer: &Peer) -> PublishTarget {
        PublishTarget {
            hub: self.hub.clone(),
            may_publish: grant.may_publish,
            limit: self.route.upgrade().map(|route| route.publisher(peer)),
        }
    }

    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.get()
    }

    /// Counts a subscriber in, and returns the messages that it has missed. If the channel counts
    /// its user, the subscription has to [remember](Subscription::is_of) the name.
    pub(super) fn enter(
        &self,
        after: Option<Cursor>,
        user: Option<User>,
    ) -> (Since, Option<Arc<str>>) {
        match user.filter(|_| self.hub.options().presence) {
            None => (self.hub.join(self.queue_id, after), None),
            Some(user) => {
                let name = user.name.clone();
                (self.hub.enter(self.queue_id, after, user), Some(name))
            }
        }
    }

    /// Enters a subscriber that was counted in at the hub. One whose rights changed since they were
    /// given, as while the application decided, has to come again.
    pub(super) fn add(
        self: &Rc<LocalSubscribers>,
        last: u64,
        grant: Grant,
        delivery: SubscriberState,
    ) -> Subscription {
        if let SubscriberState::Task(mailbox) = &delivery
            && !self.have_given(grant)
        {
            mailbox.end(EndReason::Changed);
        }
        let index = self.subscribers.borrow_mut().insert(Subscriber { last, grant, delivery });
        Subscription::new(self, index)
    }

    /// Returns the rights of a subscriber; none, if it has gone.
    pub(super) fn grant(&self, index: usize) -> Grant {
        let subscribers = self.subscribers.borrow();
        subscribers.get(index).map_or(Grant::unlimited(false), |subscriber| subscriber.grant)
    }

    /// Whether a grant, perhaps of another server, was given by rights like those that the channel
    /// has now.
    pub(super) fn have_given(&self, grant: Grant) -> bool {
        self.route.upgrade().is_none_or(|route| route.rights().have_given(grant))
    }

    /// Changes the state of a subscriber.
    pub(super) fn set(&self, index: usize, delivery: SubscriberState) {
        if let Some(subscriber) = self.subscribers.borrow_mut().get_mut(index) {
            subscriber.delivery = delivery;
        }
    }

    /// Makes a subscriber get some of the messages alone, and enters it where active subscriptions
    /// are. `is_new` says whether its subscriptions begin with this.
    pub(super) fn read_as(
        &self,
        index: usize,
        selection: impl Into<Selection>,
        is_new: bool,
    ) -> Rc<Reader> {
        let reader = {
            let mut readers = self.readers.borrow_mut();
            let readers = readers.get_or_insert_default();
            let reader = readers.reader(selection.into());
            readers.enter(index, reader.clone());
            reader
        };
        if let Some(record) = reader.selection.mercure() {
            if let Some(route) = self.route.upgrade() {
                route.channels.subscriptions.enter(record);
            }
            if is_new {
                subscriptions::report(&self.hub, record, true);
            }
        }
        reader
    }

    /// Returns the last times of a held connection.
    pub(super) fn held_times(&self, index: usize) -> HeldTimes {
        let mut readers = self.readers.borrow_mut();
        let times = readers.as_mut().and_then(|readers| readers.times(index).copied());
        times.unwrap_or_else(HeldTimes::now)
    }

    /// Changes the last times of a held connection.
    pub(super) fn note_held(&self, index: usize, note: impl FnOnce(&mut HeldTimes)) {
        let mut readers = self.readers.borrow_mut();
        if let Some(times) = readers.as_mut().and_then(|readers| readers.times(index)) {
            note(times);
        }
    }

    /// Returns the subscribers that may get some of these messages, in the order of their places;
    /// `None`: all may.
    pub(super) fn candidates(&self, items: &[Option<Item>]) -> Option<Rc<[u32]>> {
        if !self.hub.options().grip {
            return None;
        }
        let readers = self.readers.borrow();
        let names = items.iter().flatten().map(|item| &*item.channel);
        let found = readers.as_ref().map_or_else(Vec::new, |readers| readers.with_channels(names));
        Some(found.into())
    }

    /// Returns the reader of a subscriber; `None` if it gets all messages.
    pub(super) fn reader(&self, index: usize) -> Option<Rc<Reader>> {
        self.readers.borrow().as_ref()?.get(index).cloned()
    }

    /// Removes a subscriber.
    pub(super) fn remove(&self, index: usize) {
        if self.subscribers.borrow_mut().try_remove(index).is_none() {
            return;
        }
        self.entries.borrow_mut().remove(&index);
        match self.presence.remove(index) {
            None => self.hub.leave(self.queue_id),
            Some(name) => self.hub.exit(self.queue_id, &name, !self.is_retired()),
        }
        let reader = self.readers.borrow_mut().as_mut().and_then(|readers| readers.remove(index));
        if let Some(held) = reader.as_ref().and_then(|reader| reader.held()) {
            self.held_gone(held);
        }
        if let Some(record) = reader.as_ref().and_then(|reader| reader.selection.mercure()) {
            if let Some(route) = self.route.upgrade() {
                route.channels.subscriptions.remove(record);
            }
            subscriptions::report(&self.hub, record, false);
        }
    }

    /// Removes a subscriber whose client has gone.
    pub(super) fn lost(&self, index: usize) {
        self.note(index, Entry::gone);
        self.remove(index);
    }

    /// Makes a subscriber's line of the access log last as long as its subscription.
    pub(super) fn keep_entry(&self, index: usize, entry: Option<Rc<Entry>>) {
        if let Some(entry) = entry {
            self.entries.borrow_mut().insert(index, entry);
        }
    }

    /// Notes something in a subscriber's line of the access log, if there is a log.
    pub(super) fn note(&self, index: usize, note: impl FnOnce(&Entry)) {
        let entries = self.entries.borrow();
        if !entries.is_empty()
            && let Some(entry) = entries.get(&index)
        {
            note(entry);
        }
    }

    /// Counts bytes that were written to a subscriber.
    pub(super) fn wrote(&self, index: usize, form: Form, count: usize) {
        if form.is_body() {
            self.parking_lot.count_body(count as u64);
        }
        self.note(index, |entry| entry.sent(count as u64));
        if form.is_held() && count > 0 {
            self.note_held(index, |times| times.sent = Moment::now());
        }
    }

    /// Ends all subscriptions, and accepts no new ones.
    pub(super) fn retire(self: &Rc<LocalSubscribers>) {
        self.is_retired.set(true);
        for (_, key, _) in self.end_tasks(EndReason::Retired) {
            if let Some(parked) = self.parking_lot.take(key) {
                self.clone().resume(parked, ResumeReason::Draining);
            }
        }
    }

    /// Gives tasks to the connections that carry subscribers of this channel.
    fn wake_carriers(&self) {
        let carrier = |(_, subscriber): (usize, &Subscriber)| match &subscriber.delivery {
            SubscriberState::Carried(by) => by.upgrade(),
            _ => None,
        };
        let carriers: Vec<_> = self.subscribers.borrow().iter().filter_map(carrier).collect();
        carriers.into_iter().for_each(Carries::wake);
    }

    /// Ends the subscribers that have a task, and returns those that are parked: the number and
    /// the key of each, and its form unless it is a long-poll.
    pub(super) fn end_tasks(&self, why: EndReason) -> Vec<(usize, Key, Option<Form>)> {
        self.wake_carriers();
        let mut parked = Vec::new();
        for (index, subscriber) in self.subscribers.borrow().iter() {
            match &subscriber.delivery {
                SubscriberState::Poll(key) => parked.push((index, *key, None)),
                SubscriberState::Parked { key, form, .. } => {
                    parked.push((index, *key, Some(*form)))
                }
                SubscriberState::Task(mailbox) => mailbox.end(why),
                SubscriberState::Carried(_) => {}
            }
        }
        parked
    }

    /// Makes all subscribers come again: their rights may have changed.
    pub(super) fn dismiss(self: &Rc<LocalSubscribers>) {
        for index in self.indices() {
            self.end_one(index, EndReason::Changed);
        }
    }

    /// Ends the subscribers of a user, and returns how many there were.
    pub(super) fn end_user(self: &Rc<LocalSubscribers>, name: &str, why: EndReason) -> u64 {
        let is_of = |index: &usize| self.presence.name(*index).is_some_and(|of| *of == *name);
        let of_user: Vec<usize> = self.indices().filter(is_of).collect();
        of_user.iter().filter(|index| self.end_one(**index, why)).count() as u64
    }

    /// Returns the places of all subscribers.
    pub(super) fn indices(&self) -> impl Iterator<Item = usize> + use<> {
        let places: Vec<usize> = self.subscribers.borrow().iter().map(|(place, _)| place).collect();
        places.into_iter()
    }

    /// Ends a subscriber, and returns whether it was there. A long-poll is answered without a
    /// message.
    pub(super) fn end_one(self: &Rc<LocalSubscribers>, index: usize, why: EndReason) -> bool {
        let carrier = match self.subscribers.borrow().get(index) {
            Some(Subscriber { delivery: SubscriberState::Carried(by), .. }) => by.upgrade(),
            _ => None,
        };
        carrier.into_iter().for_each(|by| by.wake());
        let (key, form) = match self.subscribers.borrow().get(index) {
            Some(subscriber) => match &subscriber.delivery {
                SubscriberState::Poll(key) => (*key, None),
                SubscriberState::Parked { key, form, .. } => (*key, Some(*form)),
                SubscriberState::Task(mailbox) => {
                    let is_open = mailbox.ended().is_none();
                    mailbox.end(why);
                    return is_open;
                }
                SubscriberState::Carried(_) => return false,
            },
            None => return false,
        };
        let Some(parked) = self.parking_lot.take(key) else { return false };
        match form {
            Some(form) => self.end_subscriber(index, parked, form, why),
            None => self.clone().resume(parked, ResumeReason::TimedOut),
        }
        true
    }

    pub(super) fn put(&self, mailbox: &Mailbox, message: &Message, options: &Channel) {
        let put = mailbox.put(message.clone(), options);
        let counters = self.hub.counters();
        counters::count(&counters.left_out, put.left_out);
        counters::count(&counters.disconnected, u64::from(put.disconnects));
    }
}

impl ConnectionOwner for LocalSubscribers {
    fn resume(self: Rc<LocalSubscribers>, parked: ParkedConnection, why: ResumeReason) {
        let index = usize::try_from(parked.token).unwrap_or(usize::MAX);
        if parked.pending.is_some() {
            let last = self.subscribers.borrow().get(index).map_or(0, |subscriber| subscriber.last);
            let reader = self.reader(index);
            self.remove(index);
            // Whatever an encrypted client has sent is read after an answer without a message.
            let speaks = parked.stream.is_encrypted() && !parked.stream.socket().has_ended();
            let is_early = why == ResumeReason::Ready && speaks;
            let why = if is_early { ResumeReason::TimedOut } else { why };
            match reader.as_ref().and_then(|reader| reader.held()) {
                Some(held) => self.end_held_poll(held, parked, why),
                None => self.end_poll(parked, last, why),
            }
        } else {
            self.resume_parked(index, parked, why);
        }
    }

    fn protocol(&self) -> Protocol {
        Protocol::Channel
    }
}

impl Drop for LocalSubscribers {
    fn drop(&mut self) {
        // Those that are left continue with another server.
        for entry in self.entries.get_mut().values() {
            entry.note(|record| record.broken_by(BrokenBy::Server));
        }
        self.hub.close(self.queue_id);
        self.engine.remove(self.queue_id);
        if let Some(route) = self.route.upgrade() {
            route.remove(&self.hub);
        }
    }
}

superpoll::debug_fields!(LocalSubscribers, it =>
    hub: it.hub, subscribers: it.subscribers.borrow().len());
