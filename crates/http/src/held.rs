//! Connections that an application holds, as a successor needs to know them.
//!
//! The application says in its response which channels a connection is to get items of, and what
//! happens in silence (GRIP, the Generic Realtime Intermediary Protocol). That is all that remains
//! of the request, unless the application is to be asked again: then the request itself is kept.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A channel of a held connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HeldChannel {
    /// Its name.
    pub name: Box<str>,
    /// Which items of it are left out or changed, by the bits of [`filter`].
    pub filters: u8,
    /// The id of the last item that the connection has, if the application counts them.
    pub previous: Option<Box<str>>,
}

/// The filters of a channel, as bits.
pub mod filter {
    /// Items of the connection's own user are left out.
    pub const SKIP_SELF: u8 = 1;
    /// Items that name the connection's user are left out.
    pub const SKIP_USERS: u8 = 2;
    /// Items are left out that need another channel, unless the connection has that.
    pub const REQUIRE_SUB: u8 = 4;
    /// Variables in the content get the connection's values.
    pub const VAR_SUBST: u8 = 8;

    /// The filters by their names.
    pub const NAMES: [(&str, u8); 4] = [
        ("skip-self", SKIP_SELF),
        ("skip-users", SKIP_USERS),
        ("require-sub", REQUIRE_SUB),
        ("var-subst", VAR_SUBST),
    ];
}

/// The kind of a WebSocket's frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum FrameKind {
    /// A message of text.
    Text,
    /// A message of bytes.
    Binary,
    /// A ping.
    Ping,
    /// A pong.
    Pong,
}

/// The content that is sent in silence.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct KeepAlive {
    /// The content.
    pub content: Bytes,
    /// Its kind, where that makes a difference.
    pub kind: FrameKind,
    /// The seconds after which it is sent.
    pub seconds: u32,
    /// Whether it is sent at intervals, whatever else is sent between.
    pub is_interval: bool,
}

/// The request that the next part of a stream comes by.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct NextLink {
    /// The path with its query.
    pub target: Box<str>,
    /// The seconds after which it is asked without a need.
    pub seconds: u32,
}

/// A request that an application may get again.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HeldRequest {
    /// The method.
    pub method: Box<str>,
    /// The path with its query.
    pub target: Box<str>,
    /// The path with its query that stands in its place, if the route has such a rule.
    pub rewritten: Option<Box<str>>,
    /// The user whose password was verified.
    pub user: Option<Box<str>>,
    /// The fields of its head, `Host` included.
    pub fields: Vec<(Box<str>, Box<[u8]>)>,
    /// The body; `None` if it was too large to be kept.
    pub body: Option<Bytes>,
}

/// The response to a long-poll for which no item comes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TimeoutResponse {
    /// The status.
    pub status: u16,
    /// The fields.
    pub fields: Vec<(Box<str>, Box<[u8]>)>,
    /// The body.
    pub body: Bytes,
}

/// The state of a WebSocket whose application is called by requests.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HeldSocket {
    /// The number of the connection that the application knows.
    pub id: [u8; 16],
    /// The beginning of messages for the client, if messages for the gateway are told apart from
    /// them.
    pub prefix: Option<Box<str>>,
    /// The application does not get the client's messages any more.
    pub is_detached: bool,
    /// The seconds after which the application is called in silence.
    pub call_seconds: Option<u32>,
}

/// What a connection is held for.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum HeldFor {
    /// A response whose body goes on.
    Stream {
        /// Whether items may come. Otherwise the next part follows at once.
        is_open: bool,
        /// The request for its next part.
        next: Option<Box<NextLink>>,
        /// The path that is told when the client has gone.
        gone: Option<Box<str>>,
        /// The host that the client has asked for.
        host: Arc<str>,
    },
    /// A response that is still to begin.
    Response {
        /// The request.
        request: Box<HeldRequest>,
        /// The response for the end of its time.
        timeout: Box<TimeoutResponse>,
    },
    /// A WebSocket.
    Socket {
        /// The handshake.
        request: Box<HeldRequest>,
        /// Its state.
        socket: Box<HeldSocket>,
    },
}

/// A connection that an application holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HeldRecord {
    /// The host and path of the route in the configuration.
    pub route: Arc<str>,
    /// Its channels.
    pub channels: Vec<HeldChannel>,
    /// Its values for filters, by their names.
    pub meta: Vec<(Box<str>, Box<str>)>,
    /// What it is sent in silence.
    pub keep_alive: Option<Arc<KeepAlive>>,
    /// What it is held for.
    pub purpose: HeldFor,
}

impl HeldRecord {
    /// Returns one of its values for filters.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.meta.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }

    /// Returns one of its channels.
    #[must_use]
    pub fn channel(&self, name: &str) -> Option<&HeldChannel> {
        self.channels.iter().find(|channel| *channel.name == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How parts are owned, and which of them records share, is no part of the format: a server
    /// reads the records of another version.
    #[test]
    fn a_record_is_its_values_in_order() {
        let content = Bytes::from_static(b"\n");
        let record = HeldRecord {
            route: "a.example/".into(),
            channels: vec![HeldChannel { name: "news".into(), filters: 2, previous: None }],
            meta: vec![("user".into(), "joe".into())],
            keep_alive: Some(Arc::new(KeepAlive {
                content: content.clone(),
                kind: FrameKind::Binary,
                seconds: 20,
                is_interval: true,
            })),
            purpose: HeldFor::Stream {
                is_open: true,
                next: None,
                gone: Some("/gone".into()),
                host: "b.example".into(),
            },
        };
        let values = (
            "a.example/",
            [("news", 2_u8, None::<&str>)].as_slice(),
            [("user", "joe")].as_slice(),
            // A kind is its number.
            Some((&*content, 1_u32, 20_u32, true)),
            (0_u32, true, None::<&str>, Some("/gone"), "b.example"),
        );
        let bytes = postcard::to_allocvec(&record).unwrap();
        assert_eq!(bytes, postcard::to_allocvec(&values).unwrap());
        assert_eq!(postcard::from_bytes(&bytes), Ok(record));
    }
}
