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
//! that continue with another server are not told either: the successor knows from the history how
//! many there were, counts on them until all have arrived ([`Presence::awaited`]), and then tells
//! in one event how many were lost. When a server or a route ends, no `leave` is sent.
//!
//! This module has the types of the events and the state between two of them. The hub counts and
//! tells under its lock (`hub/presence.rs`).

use std::cell::RefCell;
use std::collections::HashMap;

use serde::Deserialize;

use super::message::{Draft, Message};

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
    pub(super) const fn event(self) -> &'static str {
        match self {
            Change::Join => "join",
            Change::Leave => "leave",
        }
    }
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
    pub told: Option<usize>,
    /// Subscribers that the server before has told of and that have not arrived yet.
    pub awaited: usize,
    /// Subscribers that came or went and were not told of.
    pub left_out: u64,
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

/// A subscriber that the channel was told of, with the subject of its token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Present(pub Option<Box<str>>);

/// The subscribers of one engine that the channel was told of, by their index. Without `presence`
/// it takes no memory.
#[derive(Default)]
pub(super) struct LocalPresence(RefCell<Option<Box<Table>>>);

#[derive(Default)]
struct Table(HashMap<usize, Present>);

impl LocalPresence {
    /// Enters a subscriber that the channel was told of.
    pub(super) fn insert(&self, index: usize, present: Present) {
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
