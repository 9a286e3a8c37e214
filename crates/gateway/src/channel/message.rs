//! A message, and its cost in memory.

use bytes::Bytes;

/// A published message. Clones share the data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its number in the channel, from 1 and without gaps.
    pub id: u64,
    /// The data of the message.
    pub data: Bytes,
    /// Whether it is text, which then is UTF-8.
    pub is_text: bool,
}

/// The cost of a message in addition to its data.
pub(super) const EACH: u64 = size_of::<Message>() as u64;

/// Returns the cost of a message.
pub(super) fn cost(message: &Message) -> u64 {
    message.data.len() as u64 + EACH
}
