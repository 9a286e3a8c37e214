//! The state of a connection for a successor: the few bytes that a keeper keeps with it.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::grant::Grant;
use crate::held::HeldRecord;
use crate::mercure::reader_record::ReaderRecord;
use crate::parked_stream::ParkedStream;
use crate::parking_lot::ParkedConnection;
use crate::peer::{Peer, RequestForm};
use crate::sys;
use crate::tls::{Cut, KeysRecord, ParkedKeys, PooledKeys};

/// The activity of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Activity {
    /// Nothing, between two requests of HTTP/1.
    Idle {
        /// The requests so far.
        requests: u32,
    },
    /// It waits for the answer to a long-poll.
    Poll {
        /// The channel, by the number of its records.
        space: u64,
        /// The last message that it has read.
        last: u64,
        /// The rights of the client.
        grant: Grant,
        /// The parts of the request that the response depends on.
        form: RequestForm,
        /// The requests so far.
        requests: u32,
        /// Bytes that were read of requests that follow.
        before: Vec<u8>,
    },
    /// It is a WebSocket that subscribes.
    Socket(SubscriberRecord),
    /// It is a WebSocket that subscribes, with the subprotocol `superpoll.v1`.
    JsonSocket(SubscriberRecord),
    /// It gets a channel's messages as server-sent events, each as a chunk of HTTP/1.1.
    Events(SubscriberRecord),
    /// It gets updates of Mercure as server-sent events, each as a chunk of HTTP/1.1.
    Mercure {
        /// The hub, by the number of its records.
        space: u64,
        /// The last message that it was sent, or that was not meant for it.
        last: u64,
        /// The rights of the client.
        grant: Grant,
        /// The client was sent a comment, and no message since.
        pinged: bool,
        /// The updates that it gets.
        reader: ReaderRecord,
    },
    /// One of these, of a client with a name.
    Named {
        /// The name of the client's user.
        user: Box<str>,
        /// The activity.
        activity: Box<Activity>,
    },
    /// Nothing, between two requests of HTTP/2.
    Http2 {
        /// The requests so far.
        requests: u32,
        /// The codec's record of the connection.
        record: Box<[u8]>,
    },
    /// Subscribers on streams of HTTP/2.
    Http2Streams {
        /// The requests so far.
        requests: u32,
        /// The number of its stay in the parking lot, which names the record of what was about to
        /// be written to it, if there is one.
        number: u64,
        /// The codec's record of the connection.
        record: Box<[u8]>,
        /// The streams, in the order in which each message goes to them.
        streams: Vec<StreamActivity>,
    },
    /// The stream waits for the answer to a long-poll.
    StreamPoll {
        /// The channel, by the number of its records.
        space: u64,
        /// The last message that it has read.
        last: u64,
        /// The rights of the client.
        grant: Grant,
        /// Whether its answer may have `Strict-Transport-Security`.
        may_have_hsts: bool,
        /// The end of its time, in milliseconds since 1970.
        until: u64,
    },
    /// An application holds it: a stream, or a WebSocket.
    Held {
        /// The log of items, by the number of its records, and the last item that it was given.
        subscriber: SubscriberRecord,
        /// The rest.
        held: Box<HeldRecord>,
    },
    /// One of the long-polls, which an application holds.
    HeldPoll {
        /// The long-poll.
        poll: Box<Activity>,
        /// The rest.
        held: Box<HeldRecord>,
    },
}

/// The activity of a stream of HTTP/2.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamActivity {
    /// The number of the stream.
    pub stream: u32,
    /// Its subscriber.
    pub activity: Activity,
}

impl Activity {
    /// Adds the name of the client's user, if it has one.
    pub fn with_user(self, user: Option<&str>) -> Activity {
        match user {
            None => self,
            Some(user) => Activity::Named { user: user.into(), activity: Box::new(self) },
        }
    }

    /// Returns the activity without the name of the client's user, and the name.
    pub fn unnamed(self) -> (Activity, Option<Box<str>>) {
        match self {
            Activity::Named { user, activity } => (*activity, Some(user)),
            activity => (activity, None),
        }
    }
}

/// A subscriber of a channel, as it was when the server left it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SubscriberRecord {
    /// The channel, by the number of its records.
    pub space: u64,
    /// The last message that it was sent.
    pub last: u64,
    /// The bytes of all messages up to that one.
    pub offset: Option<u64>,
    /// The rights of the client.
    pub grant: Grant,
    /// The client was sent a ping or a comment, and has sent or got nothing since.
    pub pinged: bool,
}

/// A connection, as it was when the server left it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectionRecord {
    /// The client's address, from the PROXY protocol or the socket.
    pub client: Option<SocketAddr>,
    /// The address that the client has connected to.
    pub local: Option<SocketAddr>,
    /// The seconds for which the connection may stay as it is; zero: indefinitely.
    pub seconds: u32,
    /// The bytes that had been written to the connection, as `written`
    /// counts.
    pub written: u64,
    /// The bytes that had been read from the connection, as `read` counts.
    pub read: u64,
    /// The activity of the connection.
    pub activity: Activity,
    /// The keys of an encrypted connection.
    #[serde(skip)]
    pub keys: Option<KeysRecord>,
}

/// The first byte of a state. Earlier states had no such byte and begin with 0 or 1, or have 2 and
/// know neither events nor rights, or have 3 and know neither the rights that they are from nor
/// offsets. Current servers do not accept them, nor do earlier servers accept this format. Behind
/// it come the length of the keys, and the keys. A change of the bytes of any form of messages
/// needs another format: the rest of a record that was cut off is made again.
const FORMAT: u8 = 5;

impl ConnectionRecord {
    /// Returns the state of a connection as it is now; `None` if the kernel does not say how many
    /// bytes were read and written.
    pub(crate) fn new(
        peer: &Peer,
        seconds: u32,
        stream: impl AsFd,
        activity: Activity,
        keys: Option<KeysRecord>,
    ) -> Option<ConnectionRecord> {
        let (written, read) = (sys::written(&stream).ok()?, sys::read(&stream).ok()?);
        Some(ConnectionRecord {
            client: peer.client,
            local: peer.local,
            seconds,
            written,
            read,
            activity,
            keys,
        })
    }

    /// Returns how many bytes have been written to the connection since it was left. `None` if
    /// anything was read since: the fate of the bytes read is unknown.
    pub fn sent_since(&self, stream: impl AsFd) -> Option<u64> {
        let written = sys::written(&stream).ok()?.checked_sub(self.written)?;
        (sys::read(&stream).ok()? == self.read).then_some(written)
    }

    /// Returns the number of its stay in the parking lot, if there are streams of HTTP/2 on it.
    #[must_use]
    pub fn stay(&self) -> Option<u64> {
        match self.activity {
            Activity::Http2Streams { number, .. } => Some(number),
            _ => None,
        }
    }

    /// Encodes the state for the keeper.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        // No field can be refused.
        let fields = postcard::to_stdvec(self).unwrap_or_default();
        let keys = self.keys.as_ref().map_or(&[][..], KeysRecord::bytes);
        // It does not grow, which would leave a copy of the keys behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(2 + keys.len() + fields.len()));
        bytes.extend_from_slice(&[FORMAT, u8::try_from(keys.len()).unwrap_or(u8::MAX)]);
        bytes.extend_from_slice(keys);
        bytes.extend_from_slice(&fields);
        bytes
    }

    /// Decodes the output of [`encode`](ConnectionRecord::encode).
    pub fn decode(bytes: &[u8]) -> Option<ConnectionRecord> {
        let (&length, bytes) = bytes.strip_prefix(&[FORMAT])?.split_first()?;
        let (keys, fields) = bytes.split_at_checked(length.into())?;
        let record: ConnectionRecord = postcard::from_bytes(fields).ok()?;
        let keys = if keys.is_empty() { None } else { Some(KeysRecord::read(keys)?) };
        Some(ConnectionRecord { keys, ..record })
    }
}

// A connection that another server has left, before it is known how far that server came.

/// A connection that another server has left.
pub struct LeftConnection {
    /// The connection, without its keys.
    pub parked: ParkedConnection,
    /// The bytes that were written to it since it was left.
    pub sent: u64,
    /// The keys, if it is encrypted.
    pub keys: Option<KeysRecord>,
    /// The other server came to rest, and has said so.
    pub is_orderly: bool,
}

impl LeftConnection {
    /// Returns by how many bytes a record is longer than the message in it; zero if the connection
    /// is not encrypted.
    pub fn overhead(&self) -> u64 {
        self.keys.as_ref().map_or(0, KeysRecord::overhead)
    }

    /// Whether the connection is one of TLS.
    pub fn is_encrypted(&self) -> bool {
        self.keys.is_some()
    }

    /// Continues with the connection after so many messages, and some of another one. `None` if its
    /// keys do not fit that.
    pub fn go_on(self, messages: u64, cut: Option<Cut<'_>>) -> Option<ParkedConnection> {
        let LeftConnection { mut parked, keys, is_orderly, .. } = self;
        if let Some(record) = keys {
            let keys = ParkedKeys::adopt(&record, messages, cut, is_orderly)?;
            let ParkedConnection { stream, .. } = parked;
            let stream = ParkedStream::new(stream.into_socket(), Some(PooledKeys::new(keys)));
            parked = ParkedConnection { stream, ..parked };
        }
        Some(parked)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connection_records_round_trip() {
        let form = RequestForm { is_1_0: true, closes: false, may_have_hsts: true };
        let address = "[2001:db8::1]:65535".parse().ok();
        let (last, before) = (u64::MAX, b"GET".into());
        let grant = Grant::until(Some(u64::MAX), true);
        let subscriber =
            SubscriberRecord { space: u64::MAX, last, offset: None, grant, pinged: true };
        let poll = Activity::Poll { space: 9, last, grant, form, requests: 3, before };
        for activity in [
            Activity::Idle { requests: u32::MAX },
            poll,
            Activity::Socket(SubscriberRecord { space: 1, last: 2, offset: Some(3), ..subscriber }),
            Activity::Events(subscriber.clone()),
            Activity::StreamPoll { space: 9, last, grant, may_have_hsts: true, until: u64::MAX },
        ] {
            let (written, read) = (1 << 40, 1 << 30);
            let left = ConnectionRecord {
                client: address,
                local: None,
                seconds: 60,
                written,
                read,
                activity,
                keys: None,
            };
            let bytes = left.encode();
            assert!(bytes.len() <= 71, "{}", bytes.len());
            assert_eq!(ConnectionRecord::decode(&bytes), Some(left));
        }
        assert_eq!(ConnectionRecord::decode(b""), None);
        assert_eq!(ConnectionRecord::decode(b"listener 1.2.3.4:80"), None);
        // The formats of earlier servers: without rights, which would come to nobody, and with or
        // without addresses.
        assert_eq!(ConnectionRecord::decode(&[2, 0, 0, 60, 9, 0, 2, 1, 2, 0]), None);
        assert_eq!(ConnectionRecord::decode(&[0, 0, 60, 9, 0, 3]), None);
        assert_eq!(ConnectionRecord::decode(&[1, 0, 127, 0, 0, 1, 80, 0, 60, 9, 0, 3]), None);
        assert_eq!(ConnectionRecord::decode(&[2, 0, 0, 60, 9, 0, 0, 3]), None);
        assert_eq!(ConnectionRecord::decode(&[3, 0, 0, 60, 9, 0, 0, 3]), None);
    }

    #[test]
    fn forms_of_requests_have_the_bytes_that_earlier_servers_left() {
        for (is_1_0, closes) in [(false, false), (false, true), (true, false), (true, true)] {
            let form = RequestForm { is_1_0, closes, may_have_hsts: false };
            let bytes = postcard::to_allocvec(&(is_1_0, closes)).unwrap();
            assert_eq!(postcard::to_allocvec(&form).unwrap(), bytes);
            assert_eq!(postcard::from_bytes::<RequestForm>(&bytes).unwrap(), form);
            let form = RequestForm { may_have_hsts: true, ..form };
            let bytes = postcard::to_allocvec(&form).unwrap();
            assert_eq!(postcard::from_bytes::<RequestForm>(&bytes).unwrap(), form);
        }
    }

    #[test]
    fn bytes_read_since_make_a_record_unusable() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        let left = ConnectionRecord::new(
            &Peer::default(),
            1,
            &server,
            Activity::Idle { requests: 1 },
            None,
        )
        .unwrap();
        client.write_all(b"question").unwrap();
        // The peer of a server that was killed has not read the bytes that the server sent, which
        // does not matter.
        server.write_all(b"ans").unwrap();
        assert_eq!(left.sent_since(&server), Some(3));
        server.read_exact(&mut [0]).unwrap();
        assert_eq!(left.sent_since(&server), None);
    }
}
