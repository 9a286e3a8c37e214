//! One engine's part of a channel: its subscribers.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
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

use super::cursor::{Asked, Cursor};
use super::frames::Frames;
use super::hub::{self, Hub};
use super::mailbox::{End, Mailbox};
use super::message::{Message, cost};
use super::send_queue::SendQueue;
use super::unread::Unread;
use super::{events, replay, socket};
use crate::body::Body;
use crate::config::Channel;
use crate::cors;
use crate::exchange::Exchange;
use crate::parking_lot::{Guest, Lot, Parked, Why};
use crate::reply;
use crate::upload::Upload;

/// How many subscribers are served before other tasks have their turn.
const TURN: usize = 256;

/// The room that sockets are read into, one at a time.
const ROOM: usize = 16 << 10;

/// The most bytes of messages that are turned into frames at a time, unless one message alone has
/// more.
const LETTER: usize = 256 << 10;

/// The last message that its reader has.
pub(super) const NEXT: HeaderName = HeaderName::from_static("channel-next");

/// The epoch of that message.
const EPOCH: HeaderName = HeaderName::from_static("channel-epoch");

/// The methods of a channel.
const METHODS: &str = "GET, HEAD, OPTIONS, POST";

/// The fields of responses that a page of another site may read.
const TOLD: &str = "channel-next, channel-epoch";

/// One engine's desk at a hub.
pub struct Desk {
    pub(super) hub: Arc<Hub>,
    pub(super) lot: Rc<Lot>,
    pub(super) outlet: usize,
    pub(super) places: RefCell<Slab<Place>>,
    /// There are no subscribers any more, and no new ones are accepted.
    is_retired: Cell<bool>,
    pub(super) room: RefCell<Box<[u8]>>,
}

/// A subscriber.
pub(super) struct Place {
    /// The last message that it was given.
    pub last: u64,
    pub at: At,
}

/// The state of a subscriber.
pub(super) enum At {
    /// A parked long-poll.
    Poll(Key),
    /// A parked WebSocket, and its send queue when it was pinged, if it was pinged since its last
    /// sign of life.
    Socket(Key, Option<SendQueue>),
    /// A subscriber with a task, which reads this mailbox.
    Task(Rc<Mailbox>),
}

/// A delivery to subscribers: some messages, and their forms for each kind of subscriber, made
/// once.
struct Letter {
    messages: Vec<Message>,
    /// The cost of its messages.
    cost: u64,
    options: Channel,
    frames: Option<Frames>,
    /// The answer to long-polls from one of the messages on.
    answer: Option<(usize, Bytes)>,
}

/// A subscriber's place, given up on drop.
pub(super) struct Member {
    pub desk: Rc<Desk>,
    pub index: usize,
    stays: bool,
}

impl Drop for Member {
    fn drop(&mut self) {
        if !self.stays {
            self.desk.leave(self.index);
        }
    }
}

impl Member {
    /// Takes over a place.
    pub fn of(desk: &Rc<Desk>, index: usize) -> Member {
        Member { desk: desk.clone(), index, stays: false }
    }

    /// Leaves the place to the parked subscriber.
    pub fn stay(mut self) {
        self.stays = true;
    }
}

impl Desk {
    /// Opens a desk on the engine of this thread, with the engine's lot.
    #[must_use]
    pub fn new(hub: Arc<Hub>, lot: Rc<Lot>) -> Rc<Desk> {
        let outlet = hub.open();
        let desk = Rc::new(Desk {
            hub: hub.clone(),
            lot,
            outlet,
            places: RefCell::default(),
            is_retired: Cell::new(false),
            room: RefCell::new(vec![0; ROOM].into()),
        });
        spawn(deliver(Rc::downgrade(&desk), hub, outlet)).detach();
        desk
    }

    /// Returns the channel.
    #[must_use]
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Answers a request for the channel.
    pub async fn answer(
        self: Rc<Desk>,
        request: Request<Upload>,
        exchange: &Exchange,
    ) -> Response<Body> {
        let foreign = cors::of_another_site(request.headers(), request.uri());
        let mut response = match foreign.map(Option::<&HeaderValue>::cloned) {
            Ok(None) => self.respond(request, exchange).await,
            Ok(Some(origin)) => self.respond_to(origin, request, exchange).await,
            Err(status) => reply::status(status),
        };
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// Answers the page of another site, if it may use the channel.
    async fn respond_to(
        self: Rc<Desk>,
        origin: HeaderValue,
        request: Request<Upload>,
        exchange: &Exchange,
    ) -> Response<Body> {
        let origins = self.hub.options().origins;
        if !origin.to_str().is_ok_and(|origin| origins.allow(origin)) {
            let text = "pages of other sites may use this channel if its origins name them\n";
            return reply::text(StatusCode::FORBIDDEN, text);
        }
        // The answer has a field of its own, which is not kept with a request that is parked.
        let exchange = Exchange { can_wait: false, ..exchange.clone() };
        let mut response = self.respond(request, &exchange).await;
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(TOLD));
        headers.insert(VARY, HeaderValue::from_static("origin"));
        response
    }

    async fn respond(
        self: Rc<Desk>,
        request: Request<Upload>,
        exchange: &Exchange,
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
        let asked = match Asked::read(&head.uri, &head.headers) {
            Ok(asked) => asked,
            Err(what) => return reply::text(StatusCode::BAD_REQUEST, what),
        };
        if head.method == Method::HEAD {
            return self.nothing(StatusCode::OK, self.hub.last());
        }
        if exchange.can_take_over() && socket::is_asked_for(&head.headers) {
            return self.accept(&head.headers, &asked, exchange);
        }
        if events::are_asked_for(&head.headers) {
            exchange.end_with_client();
            return self.stream(&asked, Unread::new(body));
        }
        self.poll(&asked, exchange, Unread::new(body)).await
    }

    /// Returns a response without a body that names its reader's place.
    pub(super) fn nothing(&self, status: StatusCode, last: u64) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        self.place(response.headers_mut(), last);
        response
    }

    /// Adds the fields that name a reader's place.
    pub(super) fn place(&self, headers: &mut HeaderMap, last: u64) {
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
    pub(super) fn enter(self: &Rc<Desk>, last: u64, at: At) -> Member {
        let index = self.places.borrow_mut().insert(Place { last, at });
        Member::of(self, index)
    }

    /// Changes the state of a subscriber.
    pub(super) fn set(&self, index: usize, at: At) {
        if let Some(place) = self.places.borrow_mut().get_mut(index) {
            place.at = at;
        }
    }

    /// Removes a subscriber.
    pub(super) fn leave(&self, index: usize) {
        if self.places.borrow_mut().try_remove(index).is_some() {
            self.hub.leave(self.outlet);
        }
    }

    /// Ends the desk: all subscribers are told so.
    pub fn retire(self: &Rc<Desk>) {
        self.is_retired.set(true);
        let mut parked = Vec::new();
        for (_, place) in self.places.borrow().iter() {
            match &place.at {
                At::Poll(key) | At::Socket(key, _) => parked.push(*key),
                At::Task(mailbox) => mailbox.end(End::Retired),
            }
        }
        for parked in parked.into_iter().filter_map(|key| self.lot.take(key)) {
            self.clone().called(parked, Why::Draining);
        }
    }

    /// Serves subscribers from a place on, and returns the next place if there are more.
    fn serve_some(self: &Rc<Desk>, letter: &mut Letter, from: usize) -> Option<usize> {
        let end = self.places.borrow().capacity();
        let mut served = 0;
        for index in from..end {
            if served == TURN {
                return Some(index);
            }
            served += usize::from(self.serve(letter, index));
        }
        None
    }

    /// Serves one subscriber, if there is one that has not had the whole delivery.
    fn serve(self: &Rc<Desk>, letter: &mut Letter, index: usize) -> bool {
        let mut places = self.places.borrow_mut();
        let Some(place) = places.get_mut(index) else { return false };
        let first = letter.messages.partition_point(|message| message.id <= place.last);
        let news = letter.messages.len() - first;
        let Some(last) = letter.messages.last().filter(|_| news > 0).map(|message| message.id)
        else {
            return false;
        };
        place.last = last;
        hub::count(&self.hub.counters().delivered, news as u64);
        match &mut place.at {
            At::Poll(key) => {
                let key = *key;
                drop(places);
                self.leave(index);
                if let Some(parked) = self.lot.take(key) {
                    Desk::answer_poll(parked, letter.answer(first, self));
                }
            }
            At::Socket(key, pinged) => {
                let key = *key;
                let bytes = letter.frames().from(first);
                let written = self.lot.look(key, |socket| socket::write(socket, &bytes));
                if let (Some(queue), Some(Ok(count))) = (pinged, &written) {
                    queue.wrote(*count);
                }
                drop(places);
                match written {
                    Some(Ok(count)) if count == bytes.len() => {}
                    Some(Ok(count)) => {
                        let (begun, rest) = letter.frames().sent(first, count);
                        let mailbox = Rc::new(Mailbox::default());
                        for message in &letter.messages[first + begun..] {
                            self.put(&mailbox, message, &letter.options);
                        }
                        if let Some(parked) = self.lot.take(key) {
                            self.resume(index, parked, mailbox, &rest);
                        }
                    }
                    _ => {
                        self.lot.take(key);
                        self.leave(index);
                    }
                }
            }
            At::Task(mailbox) => {
                for message in &letter.messages[first..] {
                    self.put(mailbox, message, &letter.options);
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

impl Letter {
    fn frames(&mut self) -> &Frames {
        self.frames.get_or_insert_with(|| Frames::new(&self.messages))
    }

    fn answer(&mut self, first: usize, desk: &Desk) -> Bytes {
        match &self.answer {
            Some((from, answer)) if *from == first => answer.clone(),
            _ => {
                let messages = &self.messages[first..];
                let last = messages.last().map_or(0, |message| message.id);
                let answer = replay::json(messages, false, desk.cursor(last));
                self.answer = Some((first, answer.clone()));
                answer
            }
        }
    }
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
fn letter(messages: &mut VecDeque<Message>, options: &Channel) -> Letter {
    let mut bytes = 0;
    let mut fits = |message: &Message| {
        bytes += message.data.len();
        bytes <= LETTER
    };
    let count = messages.iter().take_while(|message| fits(message)).count().max(1);
    let messages: Vec<Message> = messages.drain(..count.min(messages.len())).collect();
    let cost = messages.iter().map(cost).sum();
    Letter { messages, cost, options: options.clone(), frames: None, answer: None }
}

/// Takes published messages to the subscribers of a desk, until it is closed.
async fn deliver(desk: Weak<Desk>, hub: Arc<Hub>, outlet: usize) {
    while let Some(messages) = poll_fn(|cx| hub.poll_take(outlet, cx)).await {
        let options = hub.options();
        let mut messages = VecDeque::from(messages);
        while !messages.is_empty() {
            let mut letter = letter(&mut messages, &options);
            let mut from = Some(0);
            while let Some(index) = from {
                let Some(desk) = desk.upgrade() else { return };
                from = desk.serve_some(&mut letter, index);
                drop(desk);
                yield_now().await;
            }
            hub.delivered(outlet, letter.cost);
        }
    }
}

impl Guest for Desk {
    fn called(self: Rc<Desk>, parked: Parked, why: Why) {
        let index = usize::try_from(parked.token).unwrap_or(usize::MAX);
        if parked.resume.is_some() {
            let last = self.places.borrow().get(index).map_or(0, |place| place.last);
            self.leave(index);
            self.end_poll(parked, last, why);
        } else {
            self.stir(index, parked, why);
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.hub.close(self.outlet);
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("hub", &self.hub)
            .field("subscribers", &self.places.borrow().len())
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
    fn a_letter_has_one_message_at_least() {
        let message = |id, length| Message { id, data: vec![0; length].into(), is_text: false };
        let lengths = [100, LETTER, LETTER + 1, 1, LETTER - 1, 1];
        let mut messages: VecDeque<Message> =
            (1..).zip(lengths).map(|(id, length)| message(id, length)).collect();
        let mut found = Vec::new();
        while !messages.is_empty() {
            let letter = letter(&mut messages, &Channel::default());
            found.push(letter.messages.iter().map(|message| message.id).collect::<Vec<_>>());
        }
        assert_eq!(found, [vec![1], vec![2], vec![3], vec![4, 5], vec![6]]);
    }
}
