//! The options of channels.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::origins::Origins;
use super::rate::{self, Rate};
use super::rights::{self, AuthorizeRule, CallbackRule, Right, TokenRule};
use super::scalar;
use crate::table::table;

/// The treatment of a subscriber that reads more slowly than publishers send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slow {
    /// The subscriber is disconnected, and may come back and ask for the messages that it missed.
    Disconnect,
    /// The oldest messages that the subscriber has not read are left out.
    DropOldest,
}

table! {
    /// A channel: messages are published by POST and read by WebSocket, server-sent events or
    /// long-poll.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Channel {
        /// The number of messages that are kept for subscribers that come back. Default: 100.
        pub history: usize = 100,
        /// The largest message. Default: 64 KiB.
        pub message_bytes: u64 as "scalar::size" = 64 << 10,
        /// The bytes that may wait for one subscriber before it counts as slow. Default: 256 KiB.
        pub backlog_bytes: u64 as "scalar::size" = 256 << 10,
        /// The bytes that the kernel may hold for one subscriber by TCP and not have sent, 1 KiB to
        /// 1 GiB. Messages beyond them wait in the server, and count in `backlog_bytes`. Default:
        /// 16 KiB.
        pub unsent_bytes: u32 as "unsent" = 16 << 10,
        /// The bytes that may be on their way to the subscribers of one worker before publishers
        /// wait. Default: 1 MiB.
        pub queue_bytes: u64 as "scalar::size" = 1 << 20,
        /// The treatment of slow subscribers. Default: `disconnect`.
        pub slow: Slow = Slow::Disconnect,
        /// How long a long-poll waits for a message. After half of this time, other subscribers are
        /// sent a sign of life, which WebSockets have to answer. Default: 60 s.
        pub poll: Duration as "scalar::duration" = Duration::from_secs(60),
        /// The sites whose pages may use the channel, in addition to those of the host itself.
        /// Default: none.
        pub origins: Origins = Origins::default(),
        /// The most channels at a time, on a path with parameters. Default: 10,000.
        pub max_channels: NonZeroUsize = NonZeroUsize::new(10_000).unwrap_or(NonZeroUsize::MIN),
        /// The most bytes of messages that the channels of a path with parameters keep in all.
        /// Default: 256 MiB.
        pub max_bytes: u64 as "scalar::size" = 256 << 20,
        /// How long a channel of a path with parameters stays without a publisher or a subscriber;
        /// it is dropped within twice this time. Default: 10 minutes.
        pub idle: Duration as "scalar::duration" = Duration::from_secs(600),
        /// The most messages that one client, an IP address or a network of IPv6 (`/64`), may
        /// publish to the channels of the route, with a burst of one second's messages. Default: no
        /// limit.
        pub publish_rate: Option<Rate> as "rate::some" = None,
        /// Whether the messages are those of the broker, which other servers have as well. Default:
        /// no.
        pub broker: bool = false,
        /// Whether messages of the types `join` and `leave` tell the subscribers which users come
        /// and go. Default: no.
        pub presence: bool = false,
        /// How long a user without a connection is still there. Default: 10 s.
        pub presence_grace: Duration as "scalar::duration" = Duration::from_secs(10),
        /// The clients that may publish. Default: on a listener of the loopback address all clients
        /// that connect without a proxy, on other listeners none.
        pub publish: Option<Right> as "rights::some_right" = None,
        /// The clients that may subscribe. Default: all.
        pub subscribe: Right = Right::Anyone,
        /// The tokens that clients need, where a right is [`Right::Token`].
        pub token: Option<Arc<TokenRule>> as "rights::shared" = None,
        /// The servers that decide, where a right is [`Right::Authorize`].
        pub authorize: Option<Arc<AuthorizeRule>> as "rights::shared" = None,
        /// The servers that are told what happens in the channel. Default: none.
        pub callbacks: Option<Arc<CallbackRule>> as "rights::shared" = None,
        /// The part that only a hub of Mercure has, if it is one. The configuration has it as an
        /// action of its own.
        #[serde(skip)]
        pub mercure: Option<HubOptions> = None,
        /// Whether its messages are the items that an application publishes to connections that it
        /// holds. The configuration has no such channels: they follow from the keys of `grip`.
        #[serde(skip)]
        pub grip: bool = false,
    }
}

/// Reads a size that the kernel takes for `TCP_NOTSENT_LOWAT`. It would take zero for no limit.
pub(super) fn unsent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let bytes = scalar::size(deserializer)?;
    match u32::try_from(bytes) {
        Ok(bytes) if (1 << 10..=1 << 30).contains(&bytes) => Ok(bytes),
        _ => Err(D::Error::custom(format!(
            "a socket cannot hold back {bytes} bytes, expected 1KiB to 1GiB"
        ))),
    }
}

/// The part of a hub of Mercure that channels do not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HubOptions {
    /// Whether the beginnings and ends of subscriptions are published, and the active ones listed.
    pub subscriptions: bool,
    /// Whether the responses of the host's other routes name the hub.
    pub discovery: bool,
}
