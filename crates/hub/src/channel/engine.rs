//! One engine's part of all channels: the task that delivers messages to its subscribers.
//!
//! A channel costs an engine nothing until it has subscribers there, and then no task of its own: a
//! server may have a hundred thousand channels. The channels that have messages list themselves in
//! the engine's [`Inbox`]. The task takes their messages and serves their subscribers, channel by
//! channel and some at a time, so that neither a channel with many subscribers nor many channels
//! keep the engine from its other work. Each channel has one delivery under way at most; its next
//! messages wait in its queue until all subscribers have had the messages before.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use superpoll_http::parking_lot::ParkingLot;
use superpoll_http::sys::send_ring::SendRing;
use superpoll_rt::{spawn, yield_now};

use super::delivery::Broadcast;
use super::inbox::Inbox;
use super::local_subscribers::LocalSubscribers;
use super::mailbox::EndReason;
use super::message::Message;

/// How many subscribers are served before other tasks have their turn.
const SUBSCRIBERS_PER_TURN: usize = 256;

/// The room that sockets are read into, one at a time.
const READ_BUFFER: usize = 16 << 10;

/// The ring by which an engine sends to many sockets with one system call.
#[derive(Default)]
pub(super) enum Ring {
    /// No turn has had enough subscribers yet.
    #[default]
    Untried,
    Ready(Box<SendRing>),
    /// The kernel has none, or it has failed.
    None,
}

impl Ring {
    /// Returns the ring, made with the first call, if there is one.
    pub(super) fn ready(&mut self) -> Option<&mut SendRing> {
        if let Ring::Untried = self {
            *self = SendRing::new().map_or(Ring::None, |ring| Ring::Ready(Box::new(ring)));
        }
        match self {
            Ring::Ready(ring) => Some(ring),
            Ring::Untried | Ring::None => None,
        }
    }
}

/// One engine's part of all channels.
pub struct ChannelEngine {
    pub(super) parking_lot: Rc<ParkingLot>,
    pub(super) inbox: Arc<Inbox>,
    /// The subscribers of each channel that has some here, by the channel's queue.
    subscribers: RefCell<HashMap<u64, Weak<LocalSubscribers>>>,
    pub(super) read_buffer: RefCell<Box<[u8]>>,
    pub(super) send_ring: RefCell<Ring>,
}

impl ChannelEngine {
    /// Begins to deliver messages on the engine of this thread, with the engine's parking lot.
    #[must_use]
    pub fn new(parking_lot: Rc<ParkingLot>) -> Rc<ChannelEngine> {
        let engine = Rc::new(ChannelEngine {
            parking_lot,
            inbox: Arc::default(),
            subscribers: RefCell::default(),
            read_buffer: RefCell::new(vec![0; READ_BUFFER].into()),
            send_ring: RefCell::default(),
        });
        spawn(deliver(Rc::downgrade(&engine), engine.inbox.clone())).detach();
        engine
    }

    /// Enters the subscribers of a channel.
    pub(super) fn enter(&self, queue_id: u64, subscribers: Weak<LocalSubscribers>) {
        self.subscribers.borrow_mut().insert(queue_id, subscribers);
    }

    /// Removes the subscribers of a channel.
    pub(super) fn remove(&self, queue_id: u64) {
        self.subscribers.borrow_mut().remove(&queue_id);
    }

    /// Ends the subscriptions of a user of channels that count users (`presence`), to all channels
    /// or to those of one name, and returns how many there were. The clients come again with the
    /// rights that they have now; unless `may_return` is set, they are told that they were sent
    /// away.
    pub fn end_user(&self, user: &str, channel: Option<&str>, may_return: bool) -> u64 {
        let why = if may_return { EndReason::Changed } else { EndReason::Disconnected };
        let all: Vec<_> = self.subscribers.borrow().values().filter_map(Weak::upgrade).collect();
        let is_meant =
            |one: &&Rc<LocalSubscribers>| channel.is_none_or(|name| **one.hub.name() == *name);
        all.iter().filter(is_meant).map(|one| one.end_user(user, why)).sum()
    }

    /// Continues a delivery, to at most `room` subscribers; returns whether there may be more to
    /// do.
    fn go_on(&self, delivery: &mut ChannelDelivery, room: &mut usize) -> bool {
        // Looking is work, too.
        *room = room.saturating_sub(1);
        let subscribers = self.subscribers.borrow().get(&delivery.queue_id).and_then(Weak::upgrade);
        let Some(subscribers) = subscribers else { return false };
        let hub = &subscribers.hub;
        if delivery.broadcast.is_none() {
            if delivery.messages.is_empty() {
                delivery.messages = hub.take_queued(delivery.queue_id).into();
            }
            delivery.broadcast = Broadcast::next(&mut delivery.messages, &hub.options());
            delivery.from = 0;
        }
        let Some(broadcast) = &mut delivery.broadcast else {
            if hub.is_replaced() {
                subscribers.move_on();
            }
            return false;
        };
        match subscribers.deliver_some(broadcast, delivery.from, room) {
            Some(next) => delivery.from = next,
            None => {
                hub.delivered(delivery.queue_id, broadcast.cost);
                if hub.options().grip {
                    let id = |message: Option<&Message>| message.map_or(0, |message| message.id);
                    let (first, last) = (broadcast.messages.first(), broadcast.messages.last());
                    subscribers.delivered_held(id(first)..id(last));
                }
                delivery.broadcast = None;
            }
        }
        true
    }
}

impl Drop for ChannelEngine {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

superpoll::debug_fields!(ChannelEngine, it => channels: it.subscribers.borrow().len());

/// The messages of one channel on their way to an engine's subscribers.
struct ChannelDelivery {
    queue_id: u64,
    /// The messages after those of the broadcast.
    messages: VecDeque<Message>,
    broadcast: Option<Broadcast>,
    /// The place of the next subscriber of the broadcast.
    from: usize,
}

/// Takes published messages to the subscribers of one engine, until the engine ends.
async fn deliver(engine: Weak<ChannelEngine>, inbox: Arc<Inbox>) {
    let mut active: VecDeque<ChannelDelivery> = VecDeque::new();
    loop {
        let listed = match active.is_empty() {
            true => poll_fn(|cx| inbox.poll_take(cx)).await,
            false => Some(inbox.take_listed()),
        };
        let (Some(listed), Some(engine)) = (listed, engine.upgrade()) else { return };
        active.extend(listed.into_iter().map(|queue_id| ChannelDelivery {
            queue_id,
            messages: VecDeque::new(),
            broadcast: None,
            from: 0,
        }));
        let mut room = SUBSCRIBERS_PER_TURN;
        // Each channel once: the tasks of its subscribers take the messages that they were given
        // before there are further ones, so that none of them counts as slow by that.
        for _ in 0..active.len() {
            if room == 0 {
                break;
            }
            let Some(mut delivery) = active.pop_front() else { break };
            if engine.go_on(&mut delivery, &mut room) {
                active.push_back(delivery);
            }
        }
        drop(engine);
        yield_now().await;
    }
}
