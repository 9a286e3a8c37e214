//! What is said on a line.
//!
//! Each packet is one message in the encoding of `postcard`. The first of either side begins with a mark and the
//! version of the protocol, in a form that all versions share, so that two that do not understand each other can say
//! so.

use std::io;

use serde::{Deserialize, Serialize};

/// The version of the protocol. Programs of different versions do not go on with each other.
pub const VERSION: u32 = 2;

/// The most bytes of a packet.
pub const PACKET: usize = 64 << 10;

/// The most descriptors of a packet (`SCM_MAX_FD` in the kernel).
pub const FULL: usize = 253;

/// The most bytes of a state ([`Watching::state`]).
pub const STATE: usize = PACKET / 2;

/// What a first packet begins with, before the version.
const MARK: &[u8; 12] = b"superpollsit";

/// What a line is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// To have descriptors watched for a loop.
    Loop,
    /// To speak for a server as a whole, which has loops of the same session.
    Control,
}

/// A descriptor that is to be watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Watching<'a> {
    /// What the loop knows it by, its generation included.
    pub key: u64,
    /// What to wait for, as `poll(2)` has it; nothing: it is only held.
    pub events: u32,
    /// Its number, where the babysitter is a thread of the same process.
    pub number: i32,
    /// What a successor is given with it.
    pub state: &'a [u8],
}

/// What a server knows that belongs to no descriptor: a part of it, under a name of two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record<'a> {
    /// What it belongs to.
    pub space: u64,
    /// Which of these it is. A record replaces the one of the same name.
    pub id: u64,
    /// The next packet with this name goes on with it.
    pub more: bool,
    /// What there is to be known; nothing: the record of this name is forgotten.
    pub bytes: &'a [u8],
}

/// What has been watched, and how much of it was active: the sums of which the ratio is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sums {
    /// Descriptors of this line that are watched now.
    pub len: u64,
    /// Sum over all waits of the descriptors that were watched.
    pub watched: u64,
    /// Sum over all waits of those that were ready.
    pub active: u64,
}

/// What a babysitter is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request<'a> {
    /// The first one of a line to another process.
    Hello {
        /// What the line is for.
        role: Role,
        /// Which server's it is: a number that no two servers have.
        session: u64,
    },
    /// To watch descriptors, which come with it in the same order. One that it has already takes the place of that.
    #[serde(borrow)]
    Watch(Vec<Watching<'a>>),
    /// To forget descriptors, by their keys.
    Forget(Vec<u64>),
    /// To look what is ready now, tell that, and then answer with the same number.
    Sync(u64),
    /// To keep a record.
    #[serde(borrow)]
    Keep(Record<'a>),
    /// To forget the records of a space whose ids are below this; `u64::MAX`: all of them.
    Trim {
        /// Which.
        space: u64,
        /// The first id that is kept.
        below: u64,
    },
    /// To hand over copies of what is only held, whoever's it is. Nothing changes for those.
    Show,
    /// To hand over what other servers have left. One that is still there is told to yield if `upgrades`, and is a
    /// reason to refuse otherwise.
    Adopt {
        /// Whether another server is to yield.
        upgrades: bool,
    },
    /// The server that was told to yield has left everything that it will.
    Yielded,
    /// What was handed over is in the server's hands; the babysitter forgets it.
    Settled,
    /// The server, or the loop, ends and leaves nothing behind.
    Bye,
}

/// What a babysitter says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Notice<'a> {
    /// The answer to `Hello`.
    Welcome {
        /// Descriptors that other servers have left.
        orphans: u64,
    },
    /// The line is of no use, for this reason; it is closed.
    Refused(&'a str),
    /// Something has happened on these: key and events, as `poll(2)` has them. They are not watched any more.
    Ready(Vec<(u64, u32)>),
    /// These cannot be watched, and why: an error's number.
    Returned(Vec<(u64, i32)>),
    /// The answer to `Sync`.
    Synced(u64, Sums),
    /// Another server takes over: leave what is idle, and say `Yielded`.
    Yield,
    /// What another server has left: descriptors, which come with it, and their states.
    #[serde(borrow)]
    Left(Vec<&'a [u8]>),
    /// The same of records.
    #[serde(borrow)]
    Kept(Record<'a>),
    /// That was all.
    Done,
}

impl Request<'_> {
    /// Writes it as a packet, in the place of what is there.
    pub fn encode_into(&self, packet: &mut Vec<u8>) {
        packet.clear();
        // Nothing that these types hold can be refused.
        if let Ok(written) = postcard::to_extend(self, std::mem::take(packet)) {
            *packet = written;
        }
    }
}

impl Notice<'_> {
    /// What a packet says.
    ///
    /// # Errors
    ///
    /// `InvalidData` if it is no notice.
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

/// A message as a packet.
pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    // Nothing that these types hold can be refused.
    postcard::to_stdvec(message).unwrap_or_default()
}

/// The message of a packet.
pub(crate) fn decode<'a, T: Deserialize<'a>>(packet: &'a [u8]) -> io::Result<T> {
    postcard::from_bytes(packet).map_err(broken)
}

/// The same of a line's first packet.
pub(crate) fn encode_first(message: &impl Serialize) -> Vec<u8> {
    encode_first_of(VERSION, message)
}

fn encode_first_of(version: u32, message: &impl Serialize) -> Vec<u8> {
    [&MARK[..], &version.to_le_bytes(), &encode(message)].concat()
}

/// The message of a line's first packet, or what to tell the other side.
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
