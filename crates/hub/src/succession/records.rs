//! Records of channels and their messages, made as the messages are published, for a successor to
//! read.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::channel::Offsets;
use crate::channel::message::{Message, Meta};

/// The space of the records of channels; the records of their messages are in spaces of their own.
pub(crate) const CHANNELS: u64 = 0;

/// The space of the records of the server itself.
pub(crate) const SERVER: u64 = u64::MAX;

/// The space of the records of write intents.
pub(crate) const INTENTS: u64 = u64::MAX - 1;

/// The space of the records of events that applications are still to be told.
pub(crate) const CALLBACKS: u64 = u64::MAX - 2;

/// The record that says that a server came to rest before it left its connections.
pub(crate) const ORDERLY: u64 = 0;

/// The record with the secrets of tickets.
pub(crate) const TICKETS: u64 = 1;

/// The record with the settings of operators, of a server without a supervisor, which has them
/// otherwise.
pub(crate) const SETTINGS: u64 = 2;

/// A store of records for a successor. It is called under a channel's lock, in the order of the
/// channel's messages.
pub trait RecordStore: Send + Sync {
    /// Keeps a record, in the place of the record of the same name.
    fn keep(&self, space: u64, id: u64, bytes: &[u8]);

    /// Forgets the records of a space below an id.
    fn trim(&self, space: u64, below: u64);

    /// Sends the records that are still kept here because the line had no room. Returns whether
    /// none is left: a successor then has every record that was kept so far, however this server
    /// ends.
    fn has_room(&self) -> bool;
}

/// The record of a channel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ChannelRecord {
    /// The names of the channel's host and its path, for each name.
    pub names: Vec<(String, String)>,
    pub epoch: u64,
    /// Whether it is a hub of Mercure. Its private updates are for no subscriber of a channel.
    pub is_hub: bool,
}

impl ChannelRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // No field can be refused.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<ChannelRecord> {
        // Earlier servers had no hubs, and do not say that it is none.
        let known = postcard::from_bytes(bytes);
        known.or_else(|_| postcard::from_bytes(&[bytes, &[0]].concat())).ok()
    }
}

/// The id of the first record of a member, in the space of its channel. No message has so great a
/// number.
const MEMBERS: u64 = 1 << 63;

/// What the record of a member begins with. No message begins so: earlier servers, which take it
/// for one, pass it over.
const MEMBER: [u8; 2] = [META, 7];

/// Returns the id of a member's record.
pub(crate) fn member_id(slot: u32) -> u64 {
    MEMBERS + u64::from(slot)
}

/// Returns the number of a member, if a record is one of a member.
pub(crate) fn member_slot(id: u64) -> Option<u32> {
    u32::try_from(id.checked_sub(MEMBERS)?).ok()
}

/// The record of a member of a channel, see `channel/presence.rs`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct MemberRecord {
    pub name: Arc<str>,
    pub info: Option<Arc<str>>,
    /// The number of the message that told of it; zero: an earlier one.
    pub at: u64,
}

/// Records of members, by their numbers.
pub(crate) type MemberRecords = Vec<(u32, MemberRecord)>;

impl MemberRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // No field can be refused.
        postcard::to_extend(self, MEMBER.to_vec()).unwrap_or_default()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<MemberRecord> {
        postcard::from_bytes(bytes.strip_prefix(&MEMBER)?).ok()
    }
}

/// The record of an event that an application is still to be told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallbackRecord {
    /// The name of the route.
    pub(crate) route: String,
    /// The event, in JSON.
    pub(crate) json: Bytes,
}

impl CallbackRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // No field can be refused.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<CallbackRecord> {
        postcard::from_bytes(bytes).ok()
    }
}

/// A write intent: the next write to a connection with subscribers on streams of HTTP/2, recorded
/// before it is made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WriteIntent {
    /// The bytes and frames that were written since the connection was left.
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
    /// The codec's record.
    pub(crate) record: Box<[u8]>,
    /// The last message that each stream was given.
    pub(crate) given: Vec<u64>,
    /// The messages of the write: the places of streams, and the numbers of messages.
    pub(crate) next: Vec<(u16, u64)>,
}

impl WriteIntent {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // No field can be refused.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<WriteIntent> {
        postcard::from_bytes(bytes).ok()
    }
}

/// The bits of the first byte of a message: whether it is text, and whether something that its
/// publisher has said of it, and the offsets before it, stand before its data.
const TEXT: u8 = 1;
const META: u8 = 2;
const OFFSETS: u8 = 4;

/// Encodes a message, with the offsets before it.
pub(crate) fn encode_message(message: &Message, offsets: &Offsets) -> Vec<u8> {
    let mut bytes = vec![OFFSETS | if message.is_text { TEXT } else { 0 }];
    bytes.reserve(message.data.len());
    // No field can be refused, here and below.
    bytes = postcard::to_extend(offsets, bytes).unwrap_or_default();
    if let Some(meta) = &message.meta {
        bytes[0] |= META;
        bytes = postcard::to_extend(&**meta, bytes).unwrap_or_default();
    }
    bytes.extend_from_slice(&message.data);
    bytes
}

/// Decodes the output of [`encode_message`].
pub(crate) fn decode_message(id: u64, bytes: &[u8]) -> Option<(Message, Offsets)> {
    let (&kind, mut data) = bytes.split_first()?;
    let (mut meta, mut offsets) = (None, Offsets::default());
    if kind & OFFSETS != 0 {
        (offsets, data) = postcard::take_from_bytes(data).ok()?;
    }
    if kind & META != 0 {
        let (read, rest) = postcard::take_from_bytes::<Meta>(data).ok()?;
        (meta, data) = (Some(Arc::new(read)), rest);
    }
    let is_text = kind & TEXT != 0 && std::str::from_utf8(data).is_ok();
    Some((Message { meta, ..Message::new(id, data.to_vec(), is_text) }, offsets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::message::Update;

    #[test]
    fn messages_and_channels_are_read_as_they_were_written() {
        for (data, is_text) in [(&b""[..], true), (b"text", true), (b"\xff", false)] {
            let message = Message::new(7, data, is_text);
            let offsets = [1, 0, u64::MAX];
            let bytes = encode_message(&message, &offsets);
            assert_eq!(decode_message(7, &bytes), Some((message.clone(), offsets)));
            let (event, key) = (Some("added".to_owned()), Some("k-1".to_owned()));
            let update = Update {
                topics: vec!["a".to_owned(), "b".to_owned()],
                is_private: true,
                id: Some("urn:x".to_owned()),
                retry: Some(7),
            };
            let update = Some(Box::new(update));
            let full = Meta { event, key, expires: Some(u64::MAX), update };
            for meta in [Meta::default(), full] {
                let message = Message { meta: Some(Arc::new(meta)), ..message.clone() };
                let bytes = encode_message(&message, &offsets);
                assert_eq!(decode_message(7, &bytes), Some((message, offsets)));
            }
        }
        assert_eq!(decode_message(1, b""), None);
        assert_eq!(decode_message(1, b"\x03\x01"), None);
        // As servers before wrote it.
        assert_eq!(decode_message(7, b"\x01text"), Some((Message::new(7, "text", true), [0; 3])));
        // A message that is marked as text without being text would break its readers.
        assert!(decode_message(1, b"\x01\xff").is_some_and(|(message, _)| !message.is_text));
        let names = vec![("a".to_owned(), "/x".to_owned())];
        let record = ChannelRecord { names, epoch: u64::MAX, is_hub: true };
        assert_eq!(ChannelRecord::decode(&record.encode()), Some(record));
        assert_eq!(ChannelRecord::decode(b""), None);
        // Of a server that had no hubs.
        let names = vec![("a".to_owned(), "/x".to_owned())];
        let record = ChannelRecord { names, epoch: 7, is_hub: false };
        let bytes = record.encode();
        assert_eq!(ChannelRecord::decode(&bytes[..bytes.len() - 1]), Some(record));
    }
}
