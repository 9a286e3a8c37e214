//! What a successor is told of a connection: the few bytes that a babysitter keeps with it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::exchange::Peer;
use crate::park::Form;

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
    pub activity: Activity,
}

impl Left {
    pub fn new(peer: &Peer, seconds: u32, written: u64, activity: Activity) -> Left {
        Left { client: peer.client, local: peer.local, seconds, written, activity }
    }

    /// As the babysitter keeps it.
    pub fn encode(&self) -> Vec<u8> {
        // Nothing in it can be refused.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// What [`encode`](Left::encode) has written.
    pub fn decode(bytes: &[u8]) -> Option<Left> {
        postcard::from_bytes(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
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
            let left =
                Left { client: address, local: None, seconds: 60, written: 1 << 40, activity };
            let bytes = left.encode();
            assert!(bytes.len() < 64, "{}", bytes.len());
            assert_eq!(Left::decode(&bytes), Some(left));
        }
        assert_eq!(Left::decode(b""), None);
        assert_eq!(Left::decode(b"listener 1.2.3.4:80"), None);
    }
}
