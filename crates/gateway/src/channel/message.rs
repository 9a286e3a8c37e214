//! A message, what its publisher says of it, and its cost in memory.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A published message. Clones share the data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its number in the channel, from 1 and without gaps.
    pub id: u64,
    /// The data of the message.
    pub data: Bytes,
    /// Whether it is text, which then is UTF-8.
    pub is_text: bool,
    /// What the publisher has said of it, if anything.
    pub(crate) meta: Option<Arc<Meta>>,
}

/// What a publisher says of a message, apart from its data.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// The type of the event.
    pub event: Option<String>,
    /// The key of the publication, which makes a repeated one the same message.
    pub key: Option<String>,
    /// When the message is no longer given to subscribers that come, in seconds since 1970.
    pub expires: Option<u64>,
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

/// Returns the seconds since 1970.
pub(super) fn seconds_now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

impl Meta {
    /// Returns the memory that it takes.
    fn cost(&self) -> u64 {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        (size_of::<Meta>() + text(&self.event) + text(&self.key)) as u64
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
    /// Returns a message of which its publisher says nothing else.
    pub(crate) fn new(id: u64, data: impl Into<Bytes>, is_text: bool) -> Message {
        Message { id, data: data.into(), is_text, meta: None }
    }

    /// Returns the type of the event, if the publisher has named one.
    pub(super) fn event(&self) -> Option<&str> {
        self.meta.as_ref()?.event.as_deref()
    }

    /// Whether its time is over. It is not given to a subscriber that has not had it by then.
    pub(super) fn is_expired(&self) -> bool {
        let expires = self.meta.as_ref().and_then(|meta| meta.expires);
        expires.is_some_and(|at| at <= seconds_now())
    }

    /// Whether a repeated publication is this message.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.meta.as_ref().is_some_and(|meta| meta.key.as_deref() == Some(key))
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
