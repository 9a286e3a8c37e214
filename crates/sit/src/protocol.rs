//! The messages on a line.
//!
//! Each packet is one message in the encoding of `postcard`. The first packet of either side begins
//! with a mark and the version of the protocol, in a form that all versions share. So two sides
//! that do not understand each other can say so.

use std::io;

use serde::{Deserialize, Serialize};

/// The version of the protocol. Programs of different versions do not work with each other.
pub const VERSION: u32 = 2;

/// The most bytes of a packet.
pub const PACKET: usize = 64 << 10;

/// The most descriptors of a packet (`SCM_MAX_FD` in the kernel).
pub const FULL: usize = 253;

/// The most bytes of a state ([`Watching::state`]).
pub const STATE: usize = PACKET / 2;

/// The mark at the start of a first packet, before the version.
const MARK: &[u8; 12] = b"superpollsit";

/// The purpose of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// The babysitter watches descriptors for a loop.
    Loop,
    /// Speaks for a server as a whole, which has loops of the same session.
    Control,
}

/// A descriptor that the babysitter watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Watching<'a> {
    /// The key under which the loop knows it, generation included.
    pub key: u64,
    /// The events to wait for, as in `poll(2)`; with none, the descriptor is only held.
    pub events: u32,
    /// The number of the descriptor, for a babysitter in a thread of the same process.
    pub number: i32,
    /// The bytes that a successor receives with it.
    pub state: &'a [u8],
}

/// Part of a server's state that belongs to no descriptor, under a name of two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sums {
    /// Descriptors of this line that are watched now.
    pub len: u64,
    /// Sum over all waits of the descriptors that were watched.
    pub watched: u64,
    /// Sum over all waits of the descriptors that were ready.
    pub active: u64,
}

/// A request to a babysitter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request<'a> {
    /// The first message on a line to another process.
    Hello {
        /// The purpose of the line.
        role: Role,
        /// The number of the server's session, which no other server has.
        session: u64,
    },
    /// Watches descriptors, which come with the request in the same order. If a descriptor is there
    /// already, the new registration replaces the old one.
    #[serde(borrow)]
    Watch(Vec<Watching<'a>>),
    /// Forgets descriptors, by their keys.
    Forget(Vec<u64>),
    /// Checks which descriptors are ready now, reports them, and then answers with the same number.
    Sync(u64),
    /// Keeps a record.
    #[serde(borrow)]
    Keep(Record<'a>),
    /// Forgets the records of a space whose ids are below `below`; `u64::MAX`: all of them.
    Trim {
        /// The space.
        space: u64,
        /// The first id that is kept.
        below: u64,
    },
    /// Hands over copies of the descriptors that are only held, whichever server left them. Nothing
    /// changes for the originals.
    Show,
    /// Hands over the descriptors and records that other servers have left. With `upgrades`, a
    /// server that is still there is told to yield first; otherwise it is a reason to refuse.
    Adopt {
        /// Whether to tell another server to yield.
        upgrades: bool,
    },
    /// The server that was told to yield has left everything that it will.
    Yielded,
    /// The server has taken charge of the orphans; the babysitter forgets them.
    Settled,
    /// The server, or the loop, ends and leaves nothing behind.
    Bye,
}

/// A message of a babysitter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Notice<'a> {
    /// The answer to `Hello`.
    Welcome {
        /// Descriptors that other servers have left.
        orphans: u64,
    },
    /// The line is of no use, for this reason; it is closed.
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
    #[serde(borrow)]
    Left(Vec<&'a [u8]>),
    /// A record of another server.
    #[serde(borrow)]
    Kept(Record<'a>),
    /// The transfer is complete.
    Done,
}

impl Request<'_> {
    /// Encodes the request into a packet, which replaces the contents of `packet`.
    pub fn encode_into(&self, packet: &mut Vec<u8>) {
        packet.clear();
        // No value of these types can fail to encode.
        if let Ok(written) = postcard::to_extend(self, std::mem::take(packet)) {
            *packet = written;
        }
    }
}

impl Notice<'_> {
    /// Decodes the notice in a packet.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the packet is not a notice.
    pub fn decode(packet: &[u8]) -> io::Result<Notice<'_>> {
        decode(packet)
    }
}

fn broken(error: postcard::Error) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("what came on the line is no message: {error}"),
    )
}

/// Encodes a message as a packet.
pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    // No value of these types can fail to encode.
    postcard::to_stdvec(message).unwrap_or_default()
}

/// Decodes the message of a packet.
pub(crate) fn decode<'a, T: Deserialize<'a>>(packet: &'a [u8]) -> io::Result<T> {
    postcard::from_bytes(packet).map_err(broken)
}

/// Encodes a message as the first packet of a line.
pub(crate) fn encode_first(message: &impl Serialize) -> Vec<u8> {
    encode_first_of(VERSION, message)
}

fn encode_first_of(version: u32, message: &impl Serialize) -> Vec<u8> {
    [&MARK[..], &version.to_le_bytes(), &encode(message)].concat()
}

/// Decodes the message of a line's first packet, or returns the reason to send to the other side.
pub(crate) fn decode_first<'a, T: Deserialize<'a>>(packet: &'a [u8]) -> Result<T, String> {
    let theirs = packet.strip_prefix(MARK).and_then(<[u8]>::split_first_chunk);
    let Some((&version, message)) = theirs else {
        return Err("this is a babysitter of Superpoll, which is spoken to in another way".into());
    };
    let version = u32::from_le_bytes(version);
    if version != VERSION {
        return Err(format!(
            "one side speaks version {version} of the babysitter's protocol and the other version {VERSION}; \
             run the same release of both"
        ));
    }
    decode(message).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let watching = Watching { key: u64::MAX, events: 5, number: -1, state: b"state" };
        let record = Record { space: 1, id: 2, more: true, bytes: b"\x00\xff" };
        for request in [
            Request::Hello { role: Role::Control, session: 7 },
            Request::Watch(vec![watching; 2]),
            Request::Forget(vec![1, u64::MAX]),
            Request::Keep(record),
            Request::Trim { space: 3, below: 4 },
            Request::Show,
            Request::Adopt { upgrades: true },
            Request::Bye,
        ] {
            let packet = encode(&request);
            assert_eq!(decode::<Request<'_>>(&packet).unwrap(), request);
            let mut again = b"what was there".to_vec();
            request.encode_into(&mut again);
            assert_eq!(again, packet);
            assert_eq!(decode_first::<Request<'_>>(&encode_first(&request)).unwrap(), request);
        }
        let left = Notice::Left(vec![b"a", b""]);
        assert_eq!(Notice::decode(&encode(&left)).unwrap(), left);
    }

    #[test]
    fn who_does_not_understand_says_so() {
        let hello = Request::Hello { role: Role::Loop, session: 1 };
        let other = encode_first_of(VERSION + 1, &hello);
        let said = decode_first::<Request<'_>>(&other).unwrap_err();
        assert!(said.contains(&format!("version {}", VERSION + 1)), "{said}");
        for packet in
            [&b""[..], b"GET / HTTP/1.1\r\n", b"superpollsit", b"superpollsit\x01\x00\x00\x00"]
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
