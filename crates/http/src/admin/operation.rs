//! The operations, in the form in which they are sent.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::log::Level;

/// The most channels or connections that one answer lists.
pub const MOST_LISTED: usize = 1000;

/// An operation on a server at work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Reload the configuration, upgrade the server, or drain it.
    Command(ServerCommand),
    /// Report the state of the server.
    Status,
    /// Report the figures of the server.
    Snapshot,
    /// List the servers of all upstreams.
    Upstreams,
    /// Change the setting for a server of an upstream.
    SetServer(ServerChange),
    /// List connections.
    Connections(ConnectionQuery),
    /// Close the connections of a client.
    Close(ClientFilter),
    /// List channels.
    Channels(ChannelQuery),
    /// End subscriptions of a user.
    EndUser(UserCommand),
    /// Report the level of the log.
    Log,
    /// Log events of this level and above only; `None`: as the configuration has it.
    SetLog(Option<Level>),
    /// Open the files of the logs again, which may have been moved away.
    ReopenLogs,
}

impl Operation {
    /// Whether it changes anything.
    #[must_use]
    pub fn is_change(&self) -> bool {
        match self {
            Operation::Command(_)
            | Operation::SetServer(_)
            | Operation::Close(_)
            | Operation::EndUser(_)
            | Operation::SetLog(_)
            | Operation::ReopenLogs => true,
            Operation::Status
            | Operation::Snapshot
            | Operation::Upstreams
            | Operation::Connections(_)
            | Operation::Channels(_)
            | Operation::Log => false,
        }
    }
}

superpoll::named! {
    /// A command to a server, which has the effect of a signal.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ServerCommand {
        /// Read the configuration again, as for SIGHUP.
        Reload = "reload",
        /// Let the program on disk take over, as for SIGUSR2.
        Upgrade = "upgrade",
        /// End, and let connections end first, as for SIGTERM.
        Drain = "drain",
    }
}

/// Which connections are listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionQuery {
    /// Those of a client. `None`: those of all clients.
    #[serde(default)]
    pub client: Option<ClientFilter>,
    /// Those that are parked (`true`), or that have a task (`false`). `None`: both.
    #[serde(default)]
    pub parked: Option<bool>,
    /// How many are listed at most, the oldest first: 1 to [`MOST_LISTED`].
    pub limit: usize,
}

/// Which channels are listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelQuery {
    /// Those whose [key](super::ChannelReport::key) comes after this one.
    #[serde(default)]
    pub after: Option<String>,
    /// How many are listed at most, by their keys: 1 to [`MOST_LISTED`].
    pub limit: usize,
}

/// The end of subscriptions of a user, in channels that count users.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserCommand {
    /// The name of the user.
    pub user: String,
    /// The path of the only channel that is meant. `None`: all channels.
    pub channel: Option<String>,
    /// Whether the clients are to come again at once, with the rights that they have now.
    pub may_return: bool,
}

/// The connections of a client: all of an IP address, or the one of an address with a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientFilter {
    /// All connections of this address.
    Address(IpAddr),
    /// The connection of this address and port.
    Port(SocketAddr),
}

impl ClientFilter {
    /// Whether a client with this address is meant; `None` stands for a client of a Unix socket.
    pub fn has(self, client: Option<SocketAddr>) -> bool {
        let Some(client) = client else { return false };
        let address = client.ip().to_canonical();
        match self {
            ClientFilter::Address(wanted) => wanted.to_canonical() == address,
            ClientFilter::Port(wanted) => {
                (wanted.ip().to_canonical(), wanted.port()) == (address, client.port())
            }
        }
    }
}

impl FromStr for ClientFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<ClientFilter, String> {
        let address = text.parse().map(ClientFilter::Address);
        let port = || text.parse().map(ClientFilter::Port);
        address
            .or_else(|_| port())
            .map_err(|_| format!("{text:?} is no client, expected an IP address, or ADDRESS:PORT"))
    }
}

impl fmt::Display for ClientFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientFilter::Address(address) => address.fmt(f),
            ClientFilter::Port(address) => address.fmt(f),
        }
    }
}

impl Serialize for ClientFilter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ClientFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ClientFilter, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

// The changes of an operator to a server of an upstream.

superpoll::named! {
    /// The state of a server that an operator has set.
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ServerState {
        /// Nothing is set: the server gets requests if it is healthy.
        #[default]
        Up = "up",
        /// The server gets no new requests. Those that are under way on it end as usual.
        Down = "down",
        /// The same, but clients that are bound to the server continue with it.
        Drain = "drain",
    }
}

/// A change of the setting for a server of an upstream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerChange {
    /// The name of the upstream.
    pub upstream: String,
    /// The address of the server, as the configuration has it.
    pub server: String,
    /// The state from now on. `None`: it stays.
    #[serde(default)]
    pub state: Option<ServerState>,
    /// The weight from now on. `None`: it stays.
    #[serde(default)]
    pub weight: Option<WeightChange>,
}

/// A change of the weight of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightChange {
    /// The weight of the configuration again.
    Configured,
    /// This weight, from 1 on.
    Number(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_or_one_of_its_ports_in_any_spelling() {
        for (text, client, expected) in [
            ("10.0.0.1", "10.0.0.1:5", true),
            ("10.0.0.1", "[::ffff:10.0.0.1]:5", true),
            ("10.0.0.1", "10.0.0.2:5", false),
            ("10.0.0.1:5", "10.0.0.1:5", true),
            ("10.0.0.1:5", "10.0.0.1:6", false),
            ("::1", "[::1]:9", true),
            ("[::1]:9", "[::1]:9", true),
        ] {
            let filter: ClientFilter = text.parse().unwrap();
            assert_eq!(filter.has(Some(client.parse().unwrap())), expected, "{text} {client}");
            assert!(!filter.has(None));
            let json = serde_json::to_string(&filter).unwrap();
            assert_eq!(serde_json::from_str::<ClientFilter>(&json).unwrap(), filter);
        }
        for text in ["", "a", "10.0.0.0/8", "10.0.0.1:", "::1:x"] {
            let error = text.parse::<ClientFilter>().unwrap_err();
            assert!(error.contains("expected an IP address"), "{error}");
        }
    }
}
