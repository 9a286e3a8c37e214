//! Join and leave events (`presence`): messages of a channel that tell when a subscriber
//! comes or goes.
//!
//! A subscriber by WebSocket or server-sent events that comes is told to all subscribers, itself
//! included, by a message of the channel with the event type `join`; one that goes by a message
//! `leave`. The data is JSON with the number of subscribers, and with the subject (`sub`) of the
//! subscriber's token. A subscriber is counted and told under one lock of the channel, so numbers
//! and messages are in one order whatever engines they come from. Telling appends a message to
//! queues and wakes the tasks that deliver it. It touches no table of an engine, and so it is safe
//! wherever a subscriber is removed, a drop included.
//!
//! A subscriber comes and goes without waiting. While the queues of the engines are full
//! (`queue_bytes`), it is therefore only counted as left out. The next event has `left_out`, the
//! number of those that came or went before it untold; one of its own follows as soon as there is
//! room. So a flood of subscribers takes no more memory than the messages of any publisher.
//!
//! A long-poll comes and goes with each message, and is neither told nor counted here. Subscribers
//! that go on with another server are not told either: the successor knows from the history how
//! many there were, counts on them until all have come ([`Presence::awaited`]), and then tells in
//! one event how many were lost. When a server or a route ends, no `leave` is sent.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;

use serde::{Deserialize, Serialize};

use super::cursor::Cursor;
use super::history::Since;
use super::hub::{Hub, State};
use super::local_subscribers::{LocalSubscribers, Subscription};
use super::message::{Draft, Message, Meta};

/// The longest subject that is told, in bytes. A longer one is left out.
pub(super) const LONGEST_SUBJECT: usize = 256;

/// The reason for which a publication with one of the types of presence is refused.
pub(super) const RESERVED: &str =
    "only the server publishes events of the types \"join\" and \"leave\" here (presence)";

/// Which way the number of subscribers has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Join,
    Leave,
}

impl Change {
    /// Returns the type of the event.
    const fn event(self) -> &'static str {
        match self {
            Change::Join => "join",
            Change::Leave => "leave",
        }
    }
}

/// The data of an event.
#[derive(Serialize)]
struct Data<'a> {
    subscribers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<u64>,
}

/// Whether a publisher uses the type of an event that only the server may use.
pub(super) fn is_reserved(draft: &Draft) -> bool {
    let event = draft.meta.as_ref().and_then(|meta| meta.event.as_deref());
    event.is_some_and(is_of_presence)
}

fn is_of_presence(event: &str) -> bool {
    [Change::Join, Change::Leave].iter().any(|change| change.event() == event)
}

/// The events of a channel so far.
#[derive(Default)]
pub(super) struct Presence {
    /// The number of subscribers in the last event; `None`: it is not known.
    told: Option<usize>,
    /// Subscribers that the server before has told of and that have not come yet.
    awaited: usize,
    /// Subscribers that came or went and were not told of.
    left_out: u64,
}

impl Presence {
    /// Returns the state that a server before has left in the history of a channel, if any.
    pub(super) fn restore(messages: &[Message]) -> Option<Box<Presence>> {
        #[derive(Deserialize)]
        struct Told {
            subscribers: u32,
        }
        let is_told = |message: &&Message| message.event().is_some_and(is_of_presence);
        let last = messages.iter().rev().find(is_told)?;
        let Told { subscribers } = serde_json::from_slice(&last.data).ok()?;
        let told = usize::try_from(subscribers).ok()?;
        Some(Box::new(Presence { told: Some(told), awaited: told, left_out: 0 }))
    }
}

impl State {
    /// Returns the number of subscribers that is told.
    fn number(&self) -> usize {
        let awaited = self.presence.as_ref().map_or(0, |presence| presence.awaited);
        self.queues.iter().map(|queue| queue.present).sum::<usize>() + awaited
    }

    /// Tells of a subscriber that has come or gone, or counts it as left out.
    fn tell(&mut self, change: Change, sub: Option<&str>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        if self.options.presence && !self.is_closed && !self.try_tell(change, sub, &mut wakers) {
            self.presence.get_or_insert_default().left_out += 1;
        }
        wakers
    }

    /// Tells of the subscribers that were left out, if there are some and there is room.
    pub(super) fn tell_left_out(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let left_out = self.presence.as_ref().filter(|presence| presence.left_out > 0);
        if let Some(presence) = left_out
            && self.options.presence
            && !self.is_closed
        {
            let has_grown = self.number() > presence.told.unwrap_or(0);
            let change = if has_grown { Change::Join } else { Change::Leave };
            self.try_tell(change, None, &mut wakers);
        }
        wakers
    }

    /// Publishes an event; `false` if there is no room for it, or if the number of subscribers is
    /// not known yet.
    fn try_tell(&mut self, change: Change, sub: Option<&str>, wakers: &mut Vec<Waker>) -> bool {
        let number = self.number();
        let Presence { told, left_out, .. } = **self.presence.get_or_insert_default();
        if self.history.is_gathering() && told.is_none() {
            return false;
        }
        let left_out = Some(left_out).filter(|count| *count > 0);
        // Neither the fields nor the memory can refuse it.
        let json = serde_json::to_vec(&Data { subscribers: number, sub, left_out });
        let event = Some(change.event().to_owned());
        let meta = Some(Arc::new(Meta { event, ..Meta::default() }));
        let draft = Draft { data: json.unwrap_or_default().into(), is_text: true, meta };
        if !self.has_room() || !self.history.make_room(draft.cost()) {
            return false;
        }
        self.append(draft, wakers);
        let presence = self.presence.get_or_insert_default();
        (presence.told, presence.left_out) = (Some(number), 0);
        true
    }

    /// Awaits no more subscribers of the server before, and tells how many were lost.
    pub(super) fn finish_awaiting(&mut self) -> Vec<Waker> {
        let Some(mut presence) = self.presence.take().filter(|_| self.options.presence) else {
            return Vec::new();
        };
        presence.awaited = 0;
        let lost = presence.told.map_or(0, |told| told.abs_diff(self.number()));
        presence.left_out = presence.left_out.max(lost as u64);
        self.presence = Some(presence);
        self.tell_left_out()
    }
}

impl Hub {
    /// Counts a subscriber in as [`join`](Hub::join) does, and tells all subscribers.
    fn enter(&self, queue_id: u64, after: Option<Cursor>, sub: Option<&str>) -> Since {
        let mut state = self.state();
        state.count_in(queue_id);
        if let Some(queue) = state.queue(queue_id) {
            queue.present += 1;
        }
        // Its own event comes through the queue.
        let since = state.history.since(after, self.epoch());
        let wakers = state.tell(Change::Join, sub);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        since
    }

    /// Counts a subscriber in that goes on from another server, and that was counted by
    /// [`join`](Hub::join).
    fn keep_present(&self, queue_id: u64) {
        let mut state = self.state();
        if let Some(queue) = state.queue(queue_id) {
            queue.present += 1;
        }
        if let Some(presence) = &mut state.presence {
            presence.awaited = presence.awaited.saturating_sub(1);
        }
    }

    /// Counts a subscriber out as [`leave`](Hub::leave) does, and tells the remaining subscribers
    /// unless all of them are about to go.
    pub(super) fn exit(&self, queue_id: u64, sub: Option<&str>, is_told: bool) {
        let mut state = self.state();
        state.count_out(queue_id);
        if let Some(queue) = state.queue(queue_id) {
            queue.present = queue.present.saturating_sub(1);
        }
        let mut wakers = if is_told { state.tell(Change::Leave, sub) } else { Vec::new() };
        wakers.extend(state.next_publisher());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A subscriber that the channel was told of, with the subject of its token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Present(pub Option<Box<str>>);

/// The subscribers of one engine that the channel was told of, by their index. Without `presence` it
/// takes no memory.
#[derive(Default)]
pub(super) struct LocalPresence(RefCell<Option<Box<Table>>>);

#[derive(Default)]
struct Table(HashMap<usize, Present>);

impl LocalPresence {
    fn insert(&self, index: usize, present: Present) {
        self.0.borrow_mut().get_or_insert_default().0.insert(index, present);
    }

    /// Removes a subscriber, if the channel was told of it.
    pub(super) fn remove(&self, index: usize) -> Option<Present> {
        self.0.borrow_mut().as_mut()?.0.remove(&index)
    }

    /// Returns the subject of a subscriber.
    pub(super) fn subject(&self, index: usize) -> Option<Box<str>> {
        self.0.borrow().as_ref()?.0.get(&index)?.0.clone()
    }
}

impl LocalSubscribers {
    /// Counts a subscriber in, and returns the messages that it has missed. If the channel was told of
    /// it, the subscription has to [remember](Subscription::is_told) that.
    pub(super) fn enter(
        &self,
        after: Option<Cursor>,
        sub: Option<Box<str>>,
    ) -> (Since, Option<Present>) {
        if !self.hub.options().presence {
            return (self.hub.join(self.queue_id, after), None);
        }
        (self.hub.enter(self.queue_id, after, sub.as_deref()), Some(Present(sub)))
    }
}

impl Subscription {
    /// Remembers that the channel was told of the subscriber, if it was.
    pub(super) fn is_told(&self, present: Option<Present>) {
        if let Some(present) = present {
            self.local_subscribers.presence.insert(self.index, present);
        }
    }

    /// Counts a subscriber in that goes on from another server, without telling of it.
    pub(super) fn goes_on(&self, sub: Option<Box<str>>) {
        let hub = &self.local_subscribers.hub;
        if hub.options().presence {
            hub.keep_present(self.local_subscribers.queue_id);
            self.is_told(Some(Present(sub)));
        }
    }
}

#[cfg(test)]
mod tests;
