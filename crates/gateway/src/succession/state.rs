//! What a successor is told of a connection: the few bytes that a babysitter keeps with it.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use crate::exchange::Peer;
use crate::park::Form;
use crate::sys;

/// What a connection is doing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Activity {
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
        /// What the response depends on.
        form: Form,
        /// The requests so far.
        requests: u32,
        /// What was read of requests that follow.
        before: Vec<u8>,
    },
    /// It is a WebSocket that subscribes.
    Socket {
        /// The channel, by the number of its records.
        space: u64,
        /// The last message that it was sent.
        last: u64,
        /// It was pinged, and has not been heard of since.
        pinged: bool,
    },
}

/// A connection, as it was when it was left.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Left {
    /// The client's address, as the PROXY protocol or the socket told it.
    pub client: Option<SocketAddr>,
    /// The address that it has connected to.
    pub local: Option<SocketAddr>,
    /// For how many seconds it may stay as it is; zero: for ever.
    pub seconds: u32,
    /// What had been written to it, as [`written`](crate::sys::written) counts.
    pub written: u64,
    /// What had been read from it, as [`read`](crate::sys::read) counts.
    pub read: u64,
    pub activity: Activity,
}

/// What a state begins with. States of before this was there begin with 0 or 1, and are understood by no server of now;
/// nor is this by one of before.
const FORMAT: u8 = 2;

impl Left {
    /// A connection as it is now; none if the kernel does not say what was read and written.
    pub fn new(peer: &Peer, seconds: u32, stream: impl AsFd, activity: Activity) -> Option<Left> {
        let (written, read) = (sys::written(&stream).ok()?, sys::read(&stream).ok()?);
        Some(Left { client: peer.client, local: peer.local, seconds, written, read, activity })
    }

    /// How many bytes have been written to it since it was left; none if they are not all that has happened to it: of
    /// what was read nobody knows what became of it.
    pub fn sent_since(&self, stream: impl AsFd) -> Option<u64> {
        let written = sys::written(&stream).ok()?.checked_sub(self.written)?;
        (sys::read(&stream).ok()? == self.read).then_some(written)
    }

    /// As the babysitter keeps it.
    pub fn encode(&self) -> Vec<u8> {
        // Nothing in it can be refused.
        postcard::to_extend(self, vec![FORMAT]).unwrap_or_default()
    }

    /// What [`encode`](Left::encode) has written.
    pub fn decode(bytes: &[u8]) -> Option<Left> {
        postcard::from_bytes(bytes.strip_prefix(&[FORMAT])?).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_is_left_is_found() {
        let form = Form { is_1_0: true, closes: false };
        let address = "[2001:db8::1]:65535".parse().ok();
        let poll =
            Activity::Poll { space: 9, last: u64::MAX, form, requests: 3, before: b"GET".into() };
        for activity in [
            Activity::Idle { requests: u32::MAX },
            poll,
            Activity::Socket { space: 1, last: 2, pinged: true },
        ] {
            let (written, read) = (1 << 40, 1 << 30);
            let left = Left { client: address, local: None, seconds: 60, written, read, activity };
            let bytes = left.encode();
            assert!(bytes.len() < 64, "{}", bytes.len());
            assert_eq!(Left::decode(&bytes), Some(left));
        }
        assert_eq!(Left::decode(b""), None);
        assert_eq!(Left::decode(b"listener 1.2.3.4:80"), None);
        // As a server of before has left one, with or without addresses.
        assert_eq!(Left::decode(&[0, 0, 60, 9, 0, 3]), None);
        assert_eq!(Left::decode(&[1, 0, 127, 0, 0, 1, 80, 0, 60, 9, 0, 3]), None);
    }

    #[test]
    fn what_was_read_since_is_not_explained_by_what_was_written() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        let peer =
            Peer { client: None, local: None, is_encrypted: false, is_proxied: false, seat: None };
        let left = Left::new(&peer, 1, &server, Activity::Idle { requests: 1 }).unwrap();
        client.write_all(b"question").unwrap();
        // The peer of a server that was killed has not read what it sent: that is no matter.
        server.write_all(b"ans").unwrap();
        assert_eq!(left.sent_since(&server), Some(3));
        server.read_exact(&mut [0]).unwrap();
        assert_eq!(left.sent_since(&server), None);
    }
}
