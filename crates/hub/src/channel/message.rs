//! A message, the properties that its publisher gave it, and its cost in memory.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use superpoll_http::unix_time::seconds_now;

/// A published message. Clones share the data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its number in the channel, from 1 and without gaps.
    pub id: u64,
    /// The data of the message.
    pub data: Bytes,
    /// Whether it is text, which then is UTF-8.
    pub is_text: bool,
    /// The properties that the publisher gave it, if any.
    pub(crate) meta: Option<Arc<Meta>>,
}

/// The properties that a publisher gives a message, apart from its data.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// The type of the event.
    pub event: Option<String>,
    /// The key of the publication, which makes a repeated one the same message.
    pub key: Option<String>,
    /// When the message is no longer given to subscribers that come, in seconds since 1970.
    pub expires: Option<u64>,
    /// Its topics and whatever else belongs to Mercure, if it was published there.
    pub update: Option<Box<Update>>,
}

/// The properties that a publisher of Mercure gives a message.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Update {
    /// Its topics, the canonical one first.
    pub topics: Vec<String>,
    /// Only subscribers with a right to one of the topics get it.
    pub is_private: bool,
    /// The id that its publisher has given it.
    pub id: Option<String>,
    /// The milliseconds after which a client is to connect again.
    pub retry: Option<u32>,
}

/// The kind of a name by which a message is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum NameKind {
    /// The key of its publication.
    Key,
    /// Its id in Mercure.
    Id,
}

/// A message before it is published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Draft {
    pub data: Bytes,
    pub is_text: bool,
    pub meta: Option<Arc<Meta>>,
}

/// The cost of a message in addition to its data.
pub(super) const EACH: u64 = size_of::<Message>() as u64;

impl Update {
    /// Returns the memory that it takes.
    fn cost(&self) -> u64 {
        let topics = self.topics.iter().map(|topic| size_of::<String>() + topic.len());
        let id = self.id.as_ref().map_or(0, String::len);
        (size_of::<Update>() + id + topics.sum::<usize>()) as u64
    }
}

impl Meta {
    /// Returns the memory that it takes.
    fn cost(&self) -> u64 {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let update = self.update.as_ref().map_or(0, |update| update.cost());
        (size_of::<Meta>() + text(&self.event) + text(&self.key)) as u64 + update
    }

    /// Returns it if it says anything.
    pub(super) fn shared(self) -> Option<Arc<Meta>> {
        (self != Meta::default()).then(|| Arc::new(self))
    }
}

impl Draft {
    /// Returns a draft of data of which nothing else is known; it is text if it is UTF-8.
    pub(super) fn new(data: Bytes) -> Draft {
        let is_text = std::str::from_utf8(&data).is_ok();
        Draft { data, is_text, meta: None }
    }

    /// Returns the cost of the message.
    pub(super) fn cost(&self) -> u64 {
        self.data.len() as u64 + EACH + self.meta.as_ref().map_or(0, |meta| meta.cost())
    }
}

impl Message {
    /// Returns a message without properties of its publisher.
    pub(crate) fn new(id: u64, data: impl Into<Bytes>, is_text: bool) -> Message {
        Message { id, data: data.into(), is_text, meta: None }
    }

    /// Returns the type of the event, if the publisher has named one.
    pub(super) fn event(&self) -> Option<&str> {
        self.meta.as_ref()?.event.as_deref()
    }

    /// Returns its topics and whatever else belongs to Mercure.
    pub(super) fn update(&self) -> Option<&Update> {
        self.meta.as_ref()?.update.as_deref()
    }

    /// Returns the names by which it is looked for: the key of its publication, and the id that a
    /// publisher of Mercure has given it. No name of the one kind is one of the other.
    pub(super) fn names(&self) -> impl Iterator<Item = (NameKind, &str)> {
        let key = self.meta.as_ref().and_then(|meta| meta.key.as_deref());
        let id = self.update().and_then(|update| update.id.as_deref());
        let names = [(NameKind::Key, key), (NameKind::Id, id)];
        names.into_iter().filter_map(|(kind, name)| Some((kind, name?)))
    }

    /// Whether its time is over. It is not given to a subscriber that has not had it by then.
    pub(super) fn is_expired(&self) -> bool {
        let expires = self.meta.as_ref().and_then(|meta| meta.expires);
        expires.is_some_and(|at| at <= seconds_now())
    }

    /// Whether a message is looked for by this name.
    pub(super) fn has_name(&self, name: (NameKind, &str)) -> bool {
        self.names().any(|own| own == name)
    }

    /// Whether it was published by this draft.
    pub(super) fn is_of(&self, draft: &Draft) -> bool {
        let event = draft.meta.as_ref().and_then(|meta| meta.event.as_deref());
        (&self.data, self.is_text, self.event()) == (&draft.data, draft.is_text, event)
    }
}

/// Returns the cost of a message.
pub(super) fn cost(message: &Message) -> u64 {
    message.data.len() as u64 + EACH + message.meta.as_ref().map_or(0, |meta| meta.cost())
}
