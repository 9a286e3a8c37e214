//! One engine's part of a channel: its subscribers.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ALLOW, CACHE_CONTROL, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use slab::Slab;
use superpoll::Key;
use superpoll_rt::{spawn, yield_now};

use super::cursor::{Cursor, SubscribeRequest};
use super::form::{Encoded, Form};
use super::hub::{self, Hub};
use super::mailbox::{EndReason, Mailbox};
use super::message::{Message, cost};
use super::parked::{self, Backlog};
use super::send_queue::SendQueue;
use super::unread::Unread;
use super::{events, replay, socket};
use crate::body::Body;
use crate::config::Channel;
use crate::cors;
use crate::exchange::Exchange;
use crate::parking_lot::{
    ConnectionOwner, ParkedConnection, ParkingLot, ResponseEntry, ResumeReason,
};
use crate::reply;
use crate::upload::Upload;

/// How many subscribers are served before other tasks have their turn.
const SUBSCRIBERS_PER_TURN: usize = 256;

/// The room that sockets are read into, one at a time.
const READ_BUFFER: usize = 16 << 10;

/// The most bytes of messages that are brought into a form at a time, unless one message alone has
/// more.
const BROADCAST_BYTES: usize = 256 << 10;

/// The last message that its reader has.
pub(super) const NEXT: HeaderName = HeaderName::from_static("channel-next");

/// The epoch of that message.
const EPOCH: HeaderName = HeaderName::from_static("channel-epoch");

/// The methods of a channel.
const METHODS: &str = "GET, HEAD, OPTIONS, POST";

/// The fields of responses that a page of another site may read.
const EXPOSED: &str = "channel-next, channel-epoch";

/// One engine's subscribers of a channel.
pub struct LocalSubscribers {
    pub(super) hub: Arc<Hub>,
    pub(super) parking_lot: Rc<ParkingLot>,
    pub(super) queue_id: usize,
    pub(super) subscribers: RefCell<Slab<Subscriber>>,
    /// There are no subscribers any more, and no new ones are accepted.
    is_retired: Cell<bool>,
    pub(super) read_buffer: RefCell<Box<[u8]>>,
    /// The log entries of responses that are sent here, by subscriber. Each is written with the end
    /// of its subscription. Without a log there are none.
    pub(super) entries: RefCell<HashMap<usize, Box<dyn ResponseEntry>>>,
}

/// A subscriber.
pub(super) struct Subscriber {
    /// The last message that it was given.
    pub last: u64,
    pub delivery: Delivery,
}

/// The state of a subscriber.
pub(super) enum Delivery {
    /// A parked long-poll.
    Poll(Key),
    /// A parked subscriber that gets messages in a form. `pinged` is its send queue when it was
    /// sent a sign of life, if nothing has come from it since.
    Parked { key: Key, form: Form, pinged: Option<SendQueue> },
    /// A subscriber with a task, which reads this mailbox.
    Task(Rc<Mailbox>),
}

/// A delivery to subscribers: some messages, and their forms for each kind of subscriber, made
/// once.
struct Broadcast {
    messages: Vec<Message>,
    /// The cost of its messages.
    cost: u64,
    options: Channel,
    /// By their form.
    encoded: [Option<Encoded>; Form::COUNT],
    /// The answer to long-polls from one of the messages on.
    answer: Option<(usize, Bytes)>,
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
    pub(super) fn of(local_subscribers: &Rc<LocalSubscribers>, index: usize) -> Subscription {
        Subscription { local_subscribers: local_subscribers.clone(), index, is_detached: false }
    }

    /// Leaves the place to the parked subscriber.
    pub(super) fn detach(mut self) {
        self.is_detached = true;
    }
}

impl LocalSubscribers {
    /// Joins a channel on the engine of this thread, with the engine's parking lot.
    #[must_use]
    pub fn new(hub: Arc<Hub>, parking_lot: Rc<ParkingLot>) -> Rc<LocalSubscribers> {
        let queue_id = hub.open();
        let local_subscribers = Rc::new(LocalSubscribers {
            hub: hub.clone(),
            parking_lot,
            queue_id,
            subscribers: RefCell::default(),
            is_retired: Cell::new(false),
            read_buffer: RefCell::new(vec![0; READ_BUFFER].into()),
            entries: RefCell::default(),
        });
        spawn(deliver(Rc::downgrade(&local_subscribers), hub, queue_id)).detach();
        local_subscribers
    }

    /// Returns the channel.
    #[must_use]
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Answers a request for the channel.
    pub async fn answer(
        self: Rc<LocalSubscribers>,
        request: Request<Upload>,
        exchange: &Exchange,
    ) -> Response<Body> {
        let foreign = cors::of_another_site(request.headers(), request.uri());
        let mut response = match foreign.map(Option::<&HeaderValue>::cloned) {
            Ok(None) => self.respond(request, exchange, None).await,
            Ok(Some(origin)) => self.respond_cross_origin(origin, request, exchange).await,
            Err(status) => reply::status(status),
        };
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// Answers the page of another site, if it may use the channel.
    async fn respond_cross_origin(
        self: Rc<LocalSubscribers>,
        origin: HeaderValue,
        request: Request<Upload>,
        exchange: &Exchange,
    ) -> Response<Body> {
        let origins = self.hub.options().origins;
        if !origin.to_str().is_ok_and(|origin| origins.allow(origin)) {
            let text = "pages of other sites may use this channel if its origins name them\n";
            return reply::text(StatusCode::FORBIDDEN, text);
        }
        let mut response = self.respond(request, exchange, Some(&origin)).await;
        allow_origin(response.headers_mut(), origin);
        response
    }

    async fn respond(
        self: Rc<LocalSubscribers>,
        request: Request<Upload>,
        exchange: &Exchange,
        origin: Option<&HeaderValue>,
    ) -> Response<Body> {
        let (head, body) = request.into_parts();
        if head.method == Method::POST {
            return self.publish(&head, body).await;
        }
        if head.method == Method::OPTIONS {
            return preflight();
        }
        if head.method != Method::GET && head.method != Method::HEAD {
            return reply::not_allowed(METHODS);
        }
        let asked = match SubscribeRequest::read(&head.uri, &head.headers) {
            Ok(asked) => asked,
            Err(what) => return reply::text(StatusCode::BAD_REQUEST, what),
        };
        if head.method == Method::HEAD {
            return self.empty_response(StatusCode::OK, self.hub.last());
        }
        if exchange.can_take_over() && socket::is_asked_for(&head.headers) {
            return self.accept(&head.headers, &asked, exchange);
        }
        if events::are_asked_for(&head.headers) {
            return self.stream(asked, exchange, Unread::new(body), origin.cloned()).await;
        }
        // The answer to another site has fields of its own, which are not kept with a request that
        // is parked.
        let can_wait = exchange.can_wait && origin.is_none();
        let exchange = Exchange { can_wait, ..exchange.clone() };
        self.poll(&asked, &exchange, Unread::new(body)).await
    }

    /// Returns a response without a body that names its reader's place.
    pub(super) fn empty_response(&self, status: StatusCode, last: u64) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        self.add_position(response.headers_mut(), last);
        response
    }

    /// Adds the fields that name a reader's place.
    pub(super) fn add_position(&self, headers: &mut HeaderMap, last: u64) {
        headers.insert(NEXT, last.into());
        if let Ok(epoch) = HeaderValue::from_str(&format!("{:x}", self.hub.epoch())) {
            headers.insert(EPOCH, epoch);
        }
    }

    /// Returns the place after a message, in full.
    pub(super) fn cursor(&self, last: u64) -> Cursor {
        Cursor { id: last, epoch: Some(self.hub.epoch()) }
    }

    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.get()
    }

    /// Enters a subscriber that was counted in at the hub.
    pub(super) fn add(self: &Rc<LocalSubscribers>, last: u64, delivery: Delivery) -> Subscription {
        let index = self.subscribers.borrow_mut().insert(Subscriber { last, delivery });
        Subscription::of(self, index)
    }

    /// Changes the state of a subscriber.
    pub(super) fn set(&self, index: usize, delivery: Delivery) {
        if let Some(subscriber) = self.subscribers.borrow_mut().get_mut(index) {
            subscriber.delivery = delivery;
        }
    }

    /// Removes a subscriber.
    pub(super) fn remove(&self, index: usize) {
        if self.subscribers.borrow_mut().try_remove(index).is_some() {
            self.entries.borrow_mut().remove(&index);
            self.hub.leave(self.queue_id);
        }
    }

    /// Counts bytes that were written to a subscriber, if they belong to a response.
    pub(super) fn wrote(&self, index: usize, form: Form, count: usize) {
        if form == Form::Events {
            self.parking_lot.count_body(count as u64);
            if let Some(entry) = self.entries.borrow_mut().get_mut(&index) {
                entry.add(count as u64);
            }
        }
    }

    /// Ends all subscriptions, and accepts no new ones.
    pub fn retire(self: &Rc<LocalSubscribers>) {
        self.is_retired.set(true);
        let mut parked = Vec::new();
        for (_, subscriber) in self.subscribers.borrow().iter() {
            match &subscriber.delivery {
                Delivery::Poll(key) | Delivery::Parked { key, .. } => parked.push(*key),
                Delivery::Task(mailbox) => mailbox.end(EndReason::Retired),
            }
        }
        for parked in parked.into_iter().filter_map(|key| self.parking_lot.take(key)) {
            self.clone().resume(parked, ResumeReason::Draining);
        }
    }

    /// Serves subscribers from a place on, and returns the next place if there are more.
    fn deliver_some(
        self: &Rc<LocalSubscribers>,
        broadcast: &mut Broadcast,
        from: usize,
    ) -> Option<usize> {
        let end = self.subscribers.borrow().capacity();
        let mut served = 0;
        for index in from..end {
            if served == SUBSCRIBERS_PER_TURN {
                return Some(index);
            }
            served += usize::from(self.deliver_to(broadcast, index));
        }
        None
    }

    /// Serves one subscriber, if there is one that has not had the whole delivery.
    fn deliver_to(self: &Rc<LocalSubscribers>, broadcast: &mut Broadcast, index: usize) -> bool {
        let mut subscribers = self.subscribers.borrow_mut();
        let Some(subscriber) = subscribers.get_mut(index) else { return false };
        let first = broadcast.messages.partition_point(|message| message.id <= subscriber.last);
        let news = broadcast.messages.len() - first;
        let Some(last) = broadcast.messages.last().filter(|_| news > 0).map(|message| message.id)
        else {
            return false;
        };
        subscriber.last = last;
        hub::count(&self.hub.counters().delivered, news as u64);
        match &mut subscriber.delivery {
            Delivery::Poll(key) => {
                let key = *key;
                drop(subscribers);
                self.remove(index);
                if let Some(parked) = self.parking_lot.take(key) {
                    LocalSubscribers::answer_poll(parked, broadcast.answer(first, self));
                }
            }
            Delivery::Parked { key, form, pinged } => {
                let (key, form) = (*key, *form);
                let encoded = broadcast.encoded(form, &self.hub);
                let bytes = encoded.from(first);
                let written =
                    self.parking_lot.with_socket(key, |socket| parked::write(socket, &bytes));
                if let Some(Ok(count)) = written {
                    pinged.iter_mut().for_each(|queue| queue.wrote(count));
                    self.wrote(index, form, count);
                }
                drop(subscribers);
                match written {
                    Some(Ok(count)) if count == bytes.len() => {}
                    Some(Ok(count)) => {
                        let (begun, rest) = encoded.sent(first, count);
                        // The rest of one message must not hold the others.
                        let rest = Bytes::copy_from_slice(&rest);
                        let mailbox = Rc::new(Mailbox::default());
                        let waiting = &broadcast.messages[first + begun..];
                        for message in waiting {
                            self.put(&mailbox, message, &broadcast.options);
                        }
                        let last = waiting.first().map_or(last, |message| message.id - 1);
                        if let Some(parked) = self.parking_lot.take(key) {
                            let backlog = Backlog { rest, mailbox, last };
                            self.continue_in_task(index, parked, form, backlog);
                        }
                    }
                    _ => {
                        self.parking_lot.take(key);
                        self.remove(index);
                    }
                }
            }
            Delivery::Task(mailbox) => {
                for message in &broadcast.messages[first..] {
                    self.put(mailbox, message, &broadcast.options);
                }
            }
        }
        true
    }

    fn put(&self, mailbox: &Mailbox, message: &Message, options: &Channel) {
        let put = mailbox.put(message.clone(), options);
        let counters = self.hub.counters();
        hub::count(&counters.left_out, put.left_out);
        hub::count(&counters.disconnected, u64::from(put.disconnects));
    }
}

impl Broadcast {
    fn encoded(&mut self, form: Form, hub: &Hub) -> &Encoded {
        self.encoded[form as usize]
            .get_or_insert_with(|| Encoded::new(form, hub.epoch(), &self.messages))
    }

    fn answer(&mut self, first: usize, local_subscribers: &LocalSubscribers) -> Bytes {
        match &self.answer {
            Some((from, answer)) if *from == first => answer.clone(),
            _ => {
                let messages = &self.messages[first..];
                let last = messages.last().map_or(0, |message| message.id);
                let answer = replay::json(messages, false, local_subscribers.cursor(last));
                self.answer = Some((first, answer.clone()));
                answer
            }
        }
    }
}

/// Lets the page of another site read a response.
pub(super) fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.insert(VARY, HeaderValue::from_static("origin"));
}

/// Names the permitted requests, which browsers ask for before they send more than a form could.
fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let fields = HeaderValue::from_static("content-type, last-event-id");
    headers.insert(ALLOW, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, fields);
    response
}

/// Takes off as many messages as go into one delivery.
fn next_broadcast(messages: &mut VecDeque<Message>, options: &Channel) -> Broadcast {
    let mut bytes = 0;
    let mut fits = |message: &Message| {
        bytes += message.data.len();
        bytes <= BROADCAST_BYTES
    };
    let count = messages.iter().take_while(|message| fits(message)).count().max(1);
    let messages: Vec<Message> = messages.drain(..count.min(messages.len())).collect();
    let cost = messages.iter().map(cost).sum();
    Broadcast {
        messages,
        cost,
        options: options.clone(),
        encoded: Default::default(),
        answer: None,
    }
}

/// Takes published messages to the subscribers of one engine, until its queue is closed.
async fn deliver(local_subscribers: Weak<LocalSubscribers>, hub: Arc<Hub>, queue_id: usize) {
    while let Some(messages) = poll_fn(|cx| hub.poll_take(queue_id, cx)).await {
        let options = hub.options();
        let mut messages = VecDeque::from(messages);
        while !messages.is_empty() {
            let mut broadcast = next_broadcast(&mut messages, &options);
            let mut from = Some(0);
            while let Some(index) = from {
                let Some(local_subscribers) = local_subscribers.upgrade() else { return };
                from = local_subscribers.deliver_some(&mut broadcast, index);
                drop(local_subscribers);
                yield_now().await;
            }
            hub.delivered(queue_id, broadcast.cost);
        }
    }
}

impl ConnectionOwner for LocalSubscribers {
    fn resume(self: Rc<LocalSubscribers>, parked: ParkedConnection, why: ResumeReason) {
        let index = usize::try_from(parked.token).unwrap_or(usize::MAX);
        if parked.pending.is_some() {
            let last = self.subscribers.borrow().get(index).map_or(0, |subscriber| subscriber.last);
            self.remove(index);
            self.end_poll(parked, last, why);
        } else {
            self.resume_parked(index, parked, why);
        }
    }
}

impl Drop for LocalSubscribers {
    fn drop(&mut self) {
        self.hub.close(self.queue_id);
    }
}

impl fmt::Debug for LocalSubscribers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSubscribers")
            .field("hub", &self.hub)
            .field("subscribers", &self.subscribers.borrow().len())
            .finish_non_exhaustive()
    }
}

/// Whether an operation has to be tried again later.
pub(super) fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broadcast_has_at_least_one_message() {
        let message = |id, length| Message { id, data: vec![0; length].into(), is_text: false };
        let lengths = [100, BROADCAST_BYTES, BROADCAST_BYTES + 1, 1, BROADCAST_BYTES - 1, 1];
        let mut messages: VecDeque<Message> =
            (1..).zip(lengths).map(|(id, length)| message(id, length)).collect();
        let mut batches = Vec::new();
        while !messages.is_empty() {
            let broadcast = next_broadcast(&mut messages, &Channel::default());
            batches.push(broadcast.messages.iter().map(|message| message.id).collect::<Vec<_>>());
        }
        assert_eq!(batches, [vec![1], vec![2], vec![3], vec![4, 5], vec![6]]);
    }
}
