//! The messages on a link.
//!
//! Each packet is one message: a byte that names the message, then its fields in order, as `layout`
//! defines them. The first packet of either side begins with a mark and the version of the
//! protocol, in a form that all versions share. So two sides that do not understand each other can
//! say so. A change of any message's bytes needs a new version (`tests/keeper/protocol.rs`).

use std::io;

use crate::layout::{Part, Reader, Writer};

/// The version of the protocol. Programs of different versions do not work with each other.
pub const VERSION: u32 = 3;

/// The most bytes of a packet.
pub const PACKET: usize = 64 << 10;

/// The most descriptors of a packet (`SCM_MAX_FD` in the kernel).
pub const FULL: usize = 253;

/// The most bytes of a state ([`Watching::state`]).
pub const STATE: usize = PACKET / 2;

/// The mark at the start of a first packet, before the version.
const MARK: &[u8; 12] = b"superpollsit";

/// The purpose of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The keeper watches descriptors for a loop.
    Loop,
    /// Speaks for a server as a whole, which has loops of the same session.
    Control,
}

/// A descriptor that the keeper watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watching<'a> {
    /// The key under which the loop knows it, generation included.
    pub key: u64,
    /// The events to wait for, as in `poll(2)`; with none, the descriptor is only held.
    pub events: u32,
    /// The number of the descriptor, for a keeper in a thread of the same process.
    pub number: i32,
    /// The bytes that a successor receives with it.
    pub state: &'a [u8],
}

/// Part of a server's state that belongs to no descriptor, under a name of two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The kind of state that it is part of.
    pub space: u64,
    /// The number of the record within its space. A record replaces the one of the same name.
    pub id: u64,
    /// Whether the next packet with this name continues it.
    pub more: bool,
    /// The contents. If they are empty, the record of this name is forgotten.
    pub bytes: &'a [u8],
}

/// The number of descriptors that were watched and that were active: the sums for the ratio.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Descriptors of this link that are watched now.
    pub len: u64,
    /// Sum over all waits of the descriptors that were watched.
    pub watched: u64,
    /// Sum over all waits of the descriptors that were ready.
    pub active: u64,
}

/// A request to a keeper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// The first message on a link to another process.
    Hello {
        /// The purpose of the link.
        role: Role,
        /// The number of the server's session, which no other server has.
        session: u64,
    },
    /// Watches descriptors, which come with the request in the same order. If a descriptor is there
    /// already, the new registration replaces the old one.
    Watch(Vec<Watching<'a>>),
    /// Forgets descriptors, by their keys.
    Forget(Vec<u64>),
    /// Checks which descriptors are ready now, reports them, and then answers with the same number.
    Sync(u64),
    /// Keeps a record.
    PutRecord(Record<'a>),
    /// Forgets the records of a space whose ids are below `below`; `u64::MAX`: all of them.
    TrimRecords {
        /// The space.
        space: u64,
        /// The first id that is kept.
        below: u64,
    },
    /// Hands over copies of the descriptors that are only held, whichever server left them. Nothing
    /// changes for the originals.
    ListHeld,
    /// Hands over the descriptors and records that other servers have left. With `upgrades`, a
    /// server that is still there is told to yield first; otherwise it is a reason to refuse.
    Adopt {
        /// Whether to tell another server to yield.
        upgrades: bool,
    },
    /// The server that was told to yield has left everything that it will.
    Yielded,
    /// The server has taken charge of the orphans; the keeper forgets them.
    Settled,
    /// The server, or the loop, ends and leaves nothing behind.
    Bye,
}

/// A message of a keeper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice<'a> {
    /// The answer to `Hello`.
    Welcome {
        /// Descriptors that other servers have left.
        orphans: u64,
    },
    /// The link is of no use, for this reason; it is closed.
    Refused(&'a str),
    /// These descriptors are ready: key and events, as in `poll(2)`. They are not watched any more.
    Ready(Vec<(u64, u32)>),
    /// These descriptors cannot be watched: key and error number.
    Returned(Vec<(u64, i32)>),
    /// The answer to `Sync`.
    Synced(u64, Sums),
    /// Another server takes over: leave idle connections, and say `Yielded`.
    Yield,
    /// The orphans of other servers: descriptors, which come with the message, and their states.
    Orphans(Vec<&'a [u8]>),
    /// A record of another server.
    Record(Record<'a>),
    /// The transfer is complete.
    Done,
}

impl<'a> Request<'a> {
    /// Encodes the request as a packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Encodes the request into a packet, which replaces the contents of `packet`.
    pub fn encode_into(&self, packet: &mut Vec<u8>) {
        packet.clear();
        Writer(packet).put(self);
    }

    /// Decodes the request in a packet.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the packet is not a request.
    pub fn decode(packet: &'a [u8]) -> io::Result<Request<'a>> {
        decode(packet)
    }
}

impl<'a> Notice<'a> {
    /// Encodes the notice as a packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes the notice in a packet.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the packet is not a notice.
    pub fn decode(packet: &'a [u8]) -> io::Result<Notice<'a>> {
        decode(packet)
    }
}

impl Part<'_> for Role {
    const LEAST: usize = 1;

    fn put(&self, to: &mut Writer<'_>) {
        to.put(match self {
            Role::Loop => &0u8,
            Role::Control => &1,
        });
    }

    fn take(from: &mut Reader<'_>) -> Option<Role> {
        match from.take::<u8>()? {
            0 => Some(Role::Loop),
            1 => Some(Role::Control),
            _ => None,
        }
    }
}

impl<'a> Part<'a> for Watching<'a> {
    const LEAST: usize = 20;

    fn put(&self, to: &mut Writer<'_>) {
        to.put(&self.key).put(&self.events).put(&self.number).put(&self.state);
    }

    fn take(from: &mut Reader<'a>) -> Option<Watching<'a>> {
        let (key, events) = from.take()?;
        let (number, state) = from.take()?;
        Some(Watching { key, events, number, state })
    }
}

impl<'a> Part<'a> for Record<'a> {
    const LEAST: usize = 21;

    fn put(&self, to: &mut Writer<'_>) {
        to.put(&self.space).put(&self.id).put(&self.more).put(&self.bytes);
    }

    fn take(from: &mut Reader<'a>) -> Option<Record<'a>> {
        let (space, id) = from.take()?;
        let (more, bytes) = from.take()?;
        Some(Record { space, id, more, bytes })
    }
}

impl Part<'_> for Sums {
    const LEAST: usize = 24;

    fn put(&self, to: &mut Writer<'_>) {
        to.put(&self.len).put(&self.watched).put(&self.active);
    }

    fn take(from: &mut Reader<'_>) -> Option<Sums> {
        let (len, (watched, active)) = from.take()?;
        Some(Sums { len, watched, active })
    }
}

impl<'a> Part<'a> for Request<'a> {
    const LEAST: usize = 1;

    fn put(&self, to: &mut Writer<'_>) {
        match self {
            Request::Hello { role, session } => to.put(&1u8).put(role).put(session),
            Request::Watch(all) => to.put(&2u8).put(all),
            Request::Forget(keys) => to.put(&3u8).put(keys),
            Request::Sync(number) => to.put(&4u8).put(number),
            Request::PutRecord(record) => to.put(&5u8).put(record),
            Request::TrimRecords { space, below } => to.put(&6u8).put(space).put(below),
            Request::ListHeld => to.put(&7u8),
            Request::Adopt { upgrades } => to.put(&8u8).put(upgrades),
            Request::Yielded => to.put(&9u8),
            Request::Settled => to.put(&10u8),
            Request::Bye => to.put(&11u8),
        };
    }

    fn take(from: &mut Reader<'a>) -> Option<Request<'a>> {
        Some(match from.take::<u8>()? {
            1 => Request::Hello { role: from.take()?, session: from.take()? },
            2 => Request::Watch(from.take()?),
            3 => Request::Forget(from.take()?),
            4 => Request::Sync(from.take()?),
            5 => Request::PutRecord(from.take()?),
            6 => Request::TrimRecords { space: from.take()?, below: from.take()? },
            7 => Request::ListHeld,
            8 => Request::Adopt { upgrades: from.take()? },
            9 => Request::Yielded,
            10 => Request::Settled,
            11 => Request::Bye,
            _ => return None,
        })
    }
}

impl<'a> Part<'a> for Notice<'a> {
    const LEAST: usize = 1;

    fn put(&self, to: &mut Writer<'_>) {
        match self {
            Notice::Welcome { orphans } => to.put(&129u8).put(orphans),
            Notice::Refused(why) => to.put(&130u8).put(why),
            Notice::Ready(all) => to.put(&131u8).put(all),
            Notice::Returned(all) => to.put(&132u8).put(all),
            Notice::Synced(number, sums) => to.put(&133u8).put(number).put(sums),
            Notice::Yield => to.put(&134u8),
            Notice::Orphans(states) => to.put(&135u8).put(states),
            Notice::Record(record) => to.put(&136u8).put(record),
            Notice::Done => to.put(&137u8),
        };
    }

    fn take(from: &mut Reader<'a>) -> Option<Notice<'a>> {
        Some(match from.take::<u8>()? {
            129 => Notice::Welcome { orphans: from.take()? },
            130 => Notice::Refused(from.take()?),
            131 => Notice::Ready(from.take()?),
            132 => Notice::Returned(from.take()?),
            133 => Notice::Synced(from.take()?, from.take()?),
            134 => Notice::Yield,
            135 => Notice::Orphans(from.take()?),
            136 => Notice::Record(from.take()?),
            137 => Notice::Done,
            _ => return None,
        })
    }
}

/// Encodes a message as a packet.
pub(crate) fn encode<'a>(message: &impl Part<'a>) -> Vec<u8> {
    // Most messages are that short, and a list reserves room for itself.
    let mut packet = Vec::with_capacity(64);
    encode_into(message, &mut packet);
    packet
}

/// Encodes a message after the bytes of a packet.
pub(crate) fn encode_into<'a>(message: &impl Part<'a>, packet: &mut Vec<u8>) {
    Writer(packet).put(message);
}

/// Decodes the message of a packet, which has nothing after it.
pub(crate) fn decode<'a, T: Part<'a>>(packet: &'a [u8]) -> io::Result<T> {
    let mut from = Reader(packet);
    let message = from.take().filter(|_| from.0.is_empty());
    message.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "a packet on the link is no message")
    })
}

/// Encodes a message as the first packet of a link.
pub(crate) fn encode_first<'a>(message: &impl Part<'a>) -> Vec<u8> {
    [&MARK[..], &VERSION.to_le_bytes(), &encode(message)].concat()
}

/// Decodes the message of a link's first packet, or returns the reason to send to the other side.
pub(crate) fn decode_first<'a, T: Part<'a>>(packet: &'a [u8]) -> Result<T, String> {
    let theirs = packet.strip_prefix(MARK).and_then(<[u8]>::split_first_chunk);
    let Some((&version, message)) = theirs else {
        return Err("this is a keeper of Superpoll, which is spoken to in another way".into());
    };
    let version = u32::from_le_bytes(version);
    if version != VERSION {
        return Err(format!(
            "one side speaks version {version} of the keeper's protocol and the other version {VERSION}; \
             run the same release of both"
        ));
    }
    decode(message).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_packet_names_the_protocol_and_its_version() {
        let hello = Request::Hello { role: Role::Loop, session: 1 };
        let packet = encode_first(&hello);
        assert_eq!(packet[..16], *b"superpollsit\x03\0\0\0");
        assert_eq!(decode_first::<Request<'_>>(&packet).unwrap(), hello);
    }

    #[test]
    fn a_peer_of_another_version_is_refused_with_both_versions() {
        // The greeting of version 2: role 0, session 1, in an encoding that this version lacks.
        let error = decode_first::<Request<'_>>(b"superpollsit\x02\0\0\0\0\0\x01").unwrap_err();
        assert!(error.contains("version 2 ") && error.contains("version 3;"), "{error}");
        for packet in
            [&b""[..], b"GET / HTTP/1.1\r\n", b"superpollsit", b"superpollsit\x03\x00\x00\x00"]
        {
            assert!(decode_first::<Request<'_>>(packet).is_err(), "{packet:?}");
        }
        let error = decode::<Request<'_>>(b"\xff\xff").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_full_batch_fits_into_a_packet() {
        let state = [0; 200];
        let watching =
            Watching { key: u64::MAX, events: u32::MAX, number: i32::MIN, state: &state };
        assert!(encode(&Request::Watch(vec![watching; FULL])).len() <= PACKET);
    }
}
