//! What is written down as it happens, for a successor to read: the messages of channels.

use serde::{Deserialize, Serialize};

use crate::channel::Message;

/// The space in which the channels themselves are written down; their messages are in spaces of their own.
pub(crate) const CHANNELS: u64 = 0;

/// Who keeps what a successor is to know. Called under a channel's lock, in the order of its messages.
pub(crate) trait Ledger: Send + Sync {
    /// Keeps a record, in the place of the one of the same name.
    fn keep(&self, space: u64, id: u64, bytes: &[u8]);

    /// Forgets the records of a space below an id.
    fn trim(&self, space: u64, below: u64);

    /// Sends what is kept here for the want of room, and says whether nothing is left: what was kept by then is there
    /// for a successor whatever becomes of this server.
    fn has_room(&self) -> bool;
}

/// A channel as it is written down.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ChannelRecord {
    /// The names of its host and its path, for each name.
    pub names: Vec<(String, String)>,
    pub epoch: u64,
}

impl ChannelRecord {
    pub fn encode(&self) -> Vec<u8> {
        // Nothing in it can be refused.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    pub fn decode(bytes: &[u8]) -> Option<ChannelRecord> {
        postcard::from_bytes(bytes).ok()
    }
}

/// A message as it is written down: whether it is text, and what it says.
pub(crate) fn encode_message(message: &Message) -> Vec<u8> {
    [&[u8::from(message.is_text)], &message.data[..]].concat()
}

/// What [`encode_message`] has written.
pub(crate) fn decode_message(id: u64, bytes: &[u8]) -> Option<Message> {
    let (kind, data) = bytes.split_first()?;
    let is_text = *kind == 1 && std::str::from_utf8(data).is_ok();
    Some(Message { id, data: data.to_vec().into(), is_text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_channels_are_read_as_they_were_written() {
        for (data, is_text) in [(&b""[..], true), (b"text", true), (b"\xff", false)] {
            let message = Message { id: 7, data: data.into(), is_text };
            assert_eq!(decode_message(7, &encode_message(&message)), Some(message));
        }
        assert_eq!(decode_message(1, b""), None);
        // What says it is text and is not would break its readers.
        assert!(decode_message(1, b"\x01\xff").is_some_and(|message| !message.is_text));
        let names = vec![("a".to_owned(), "/x".to_owned())];
        let record = ChannelRecord { names, epoch: u64::MAX };
        assert_eq!(ChannelRecord::decode(&record.encode()), Some(record));
        assert_eq!(ChannelRecord::decode(b""), None);
    }
}
