//! The facts about a subscriber of Mercure that stay with its connection.

use serde::{Deserialize, Serialize};

use crate::mercure::selector::Selector;

/// The facts about a subscriber that a successor needs.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
pub struct ReaderRecord {
    /// The topics that it has asked for.
    pub topics: Vec<Selector>,
    /// The topics whose private updates it may get.
    pub allowed: Vec<Selector>,
    /// Its identity, where subscriptions are reported.
    pub identity: Option<Identity>,
}

/// The identity of a subscriber.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// A number that no other subscriber has.
    pub id: [u8; 16],
    /// The payload of its token for subscription events, in JSON.
    pub payload: Option<String>,
}
