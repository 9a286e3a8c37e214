//! The answers to operations.

use std::cmp::Reverse;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::operation::ServerState;
use crate::admin::command::CommandAnswer;
use crate::log::Level;

/// The answer to an operation that was carried out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The answer to a command.
    Command(CommandAnswer),
    /// The upstreams, by their names.
    Upstreams(Vec<UpstreamReport>),
    /// Some connections.
    Connections(ConnectionList),
    /// How many connections were closed.
    Closed(u64),
    /// Some channels.
    Channels(ChannelList),
    /// The level of the log.
    Log(LogReport),
    /// The logs that were opened again.
    Reopened(ReopenedLogs),
}

/// The logs that were opened again.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReopenedLogs {
    /// Their files. Standard error is none.
    pub paths: Vec<PathBuf>,
    /// The reasons for which other logs were not, each with its file.
    pub failures: Vec<String>,
}

impl ReopenedLogs {
    /// Adds the logs of another process, which has most of its files in common with this one.
    pub fn add(&mut self, more: ReopenedLogs) {
        let new = more.paths.into_iter().filter(|path| !self.paths.contains(path));
        self.paths.extend(new.collect::<Vec<_>>());
        let new = more.failures.into_iter().filter(|why| !self.failures.contains(why));
        self.failures.extend(new.collect::<Vec<_>>());
    }
}

/// A report, and the processes that it is about, where a server has several.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OperationReport {
    /// The answer.
    #[serde(flatten)]
    pub report: Report,
    /// The processes in which a change has taken effect; none for operations that change nothing,
    /// and for a server of one process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_processes: Vec<u32>,
    /// The processes that have not answered in time. A list lacks what they have. A change takes
    /// effect there as soon as they continue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_processes: Vec<u32>,
}

impl From<Report> for OperationReport {
    fn from(report: Report) -> OperationReport {
        OperationReport { report, applied_processes: Vec::new(), missing_processes: Vec::new() }
    }
}

/// The reason for which an operation was not carried out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind of the mistake.
    pub reason: RefusalReason,
    /// The mistake, and the expected value.
    pub message: String,
}

/// The kind of a mistake in an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// It is about something that is not there.
    NotFound,
    /// It has a wrong value.
    Invalid,
    /// The server cannot carry it out now.
    Unavailable,
}

impl Refusal {
    pub(crate) fn not_found(message: impl Into<String>) -> Refusal {
        Refusal { reason: RefusalReason::NotFound, message: message.into() }
    }

    /// Returns the refusal for a group that the configuration does not have, with the names that it
    /// has.
    pub fn no_upstream<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Refusal {
        let known: Vec<_> = known.collect();
        let expected = match known.is_empty() {
            true => "and the configuration has none".to_owned(),
            false => format!("expected one of {}", known.join(", ")),
        };
        Refusal::not_found(format!("there is no upstream {name:?}, {expected}"))
    }

    /// Returns the refusal of an operation that says something wrong.
    pub fn invalid(message: impl Into<String>) -> Refusal {
        Refusal { reason: RefusalReason::Invalid, message: message.into() }
    }

    /// Returns the refusal of an operation that cannot be carried out now.
    pub fn unavailable(message: impl Into<String>) -> Refusal {
        Refusal { reason: RefusalReason::Unavailable, message: message.into() }
    }
}

/// An upstream at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UpstreamReport {
    /// The name in the configuration.
    pub name: String,
    /// Its servers, in the order of the configuration.
    pub servers: Vec<ServerReport>,
}

/// A server of an upstream at one moment. The numbers are sums over the processes of the gateway.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServerReport {
    /// The address.
    pub address: String,
    /// The address that the configuration has and that commands take, where the server was found by
    /// a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The state that an operator has set.
    pub state: ServerState,
    /// Whether the server is healthy, whatever an operator has set. With several processes each has
    /// an opinion of its own: this is that of any of them.
    pub healthy: bool,
    /// The processes for which it is healthy.
    pub healthy_in: u32,
    /// The processes that have answered.
    pub processes: u32,
    /// The weight in use.
    pub weight: u32,
    /// The weight of the configuration.
    pub configured_weight: u32,
    /// Requests under way on the server.
    pub active: u64,
    /// Requests that were forwarded to it, those that failed included.
    pub requests: u64,
    /// Requests that failed on it.
    pub failures: u64,
    /// Connections to it that are kept for further requests.
    pub idle_connections: u64,
}

impl ServerReport {
    /// Whether new requests are forwarded to the server.
    #[must_use]
    pub fn takes_requests(&self) -> bool {
        self.state == ServerState::Up && self.healthy
    }
}

superpoll::named! {
    /// The protocol of a connection.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    pub enum Protocol {
        /// HTTP/1.0 or 1.1.
        #[serde(rename = "http/1.1")]
        Http1 = "http/1.1",
        /// HTTP/2.
        #[serde(rename = "h2")]
        Http2 = "h2",
        /// A connection that has left HTTP, as a WebSocket does.
        #[serde(rename = "upgraded")]
        Upgraded = "upgraded",
        /// A subscriber of a channel: a WebSocket, server-sent events, or a long-poll that waits.
        #[serde(rename = "channel")]
        Channel = "channel",
    }
}

/// A connection of a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// The client's address and port; none in the Unix domain.
    pub client: Option<String>,
    /// The address that the client has connected to; none in the Unix domain.
    pub local: Option<String>,
    /// The protocol.
    pub protocol: Protocol,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// Whether the connection is parked: it has no task, and waits for its client or a message.
    pub parked: bool,
    /// The time since it was accepted, in seconds; none if another server has accepted it.
    pub age_seconds: Option<u32>,
    /// The number of the process that has it.
    pub process: u32,
}

/// Some connections, the oldest first.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ConnectionList {
    /// How many connections fit the query.
    pub total: u64,
    /// Those that are listed.
    pub connections: Vec<ConnectionReport>,
}

impl ConnectionList {
    /// Leaves the oldest connections.
    pub fn shorten(&mut self, limit: usize) {
        let age = |one: &ConnectionReport| Reverse(one.age_seconds.unwrap_or(u32::MAX));
        self.connections.sort_by_key(age);
        self.connections.truncate(limit);
    }
}

/// A channel at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChannelReport {
    /// The names of its host, with commas, and its path: the place in the order of channels.
    pub key: String,
    /// The path of its route in the configuration.
    pub route: String,
    /// Its subscribers, of all processes.
    pub subscribers: u64,
    /// The id of its last message; 0 before the first.
    pub last_id: u64,
    /// Messages that are kept for subscribers that come back.
    pub messages: u64,
    /// The bytes of these messages.
    pub bytes: u64,
}

/// Some channels, by their keys.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ChannelList {
    /// Those that are listed.
    pub channels: Vec<ChannelReport>,
    /// The key to continue after; none if there are no further channels.
    pub next: Option<String>,
}

/// The level of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogReport {
    /// The level from which on events are logged.
    pub level: Level,
    /// The level of the configuration.
    pub configured: Level,
}
