//! The answers to operations.

use std::cmp::Reverse;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::operation::ServerState;
use crate::log::Level;
use crate::telemetry::snapshot::Snapshot;

/// The answer to an operation that was carried out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The outcome of a command.
    Command(CommandOutcome),
    /// The state of the server.
    Status(Box<ServerStatus>),
    /// The figures of the server.
    Snapshot(Box<Snapshot>),
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

/// An answer, and the processes that it is about, where a server has several.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Covered<T> {
    /// The answer.
    #[serde(flatten)]
    pub report: T,
    /// The processes in which a change has taken effect; none for operations that change nothing,
    /// and for a server of one process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_processes: Vec<u32>,
    /// The processes that have not answered in time. A list lacks what they have. A change takes
    /// effect there as soon as they continue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_processes: Vec<u32>,
}

impl<T> Covered<T> {
    /// Returns another answer that is about the same processes.
    pub fn with<U>(&self, report: U) -> Covered<U> {
        let (applied, missing) = (&self.applied_processes, &self.missing_processes);
        let (applied_processes, missing_processes) = (applied.clone(), missing.clone());
        Covered { report, applied_processes, missing_processes }
    }
}

/// The report of an operation.
pub type OperationReport = Covered<Report>;

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
    /// The server has refused the command: the configuration has a mistake, or something else is
    /// under way.
    Refused,
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

    /// Returns the refusal of a command by the program of the server.
    pub fn refused(message: impl Into<String>) -> Refusal {
        Refusal { reason: RefusalReason::Refused, message: message.into() }
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

// The server as a whole.

/// The outcome of a command that was carried out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CommandOutcome {
    /// The outcome in one line.
    pub message: String,
    /// Notes about it, a line each, such as settings that are probably not meant.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The process that has taken over, where that is another one.
    #[serde(default)]
    pub successor: Option<u32>,
    /// The process that has carried it out.
    #[serde(default)]
    pub process: u32,
    /// It has only begun, and the state of the server has the outcome: the program of a supervisor
    /// is replaced, and cannot answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_under_way: bool,
}

/// How far a drain is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DrainProgress {
    /// Connections that clients still have.
    pub connections: u64,
    /// Requests under way on these; none for a program that does not count them.
    #[serde(default)]
    pub requests: Option<u64>,
    /// The processes that have not answered in time, so that their connections and requests are
    /// left out.
    #[serde(default)]
    pub missing_processes: Vec<u32>,
}

/// The state of a server at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The facts that the server's program knows.
    #[serde(flatten)]
    pub facts: ServerFacts,
    /// The figures, without those of requests, servers and channels.
    #[serde(flatten)]
    pub snapshot: Snapshot,
}

/// The facts about a server that its program knows, and its engines do not.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ServerFacts {
    /// The phase of the server's life.
    pub state: ServerPhase,
    /// The file of the configuration; none if the command line says everything.
    pub configuration: Option<PathBuf>,
    /// When the configuration in use was taken on, in seconds since 1970.
    pub configured_at: u64,
    /// The last attempt to read the configuration again, if there was one.
    pub reload: Option<LastReload>,
    /// The addresses that are served, as users write them.
    pub listeners: Vec<String>,
    /// The socket of the keeper, if there is one.
    pub keeper: Option<PathBuf>,
    /// The worker processes, where a server has several.
    pub processes: Vec<WorkerStatus>,
    /// The last upgrade that this process has had a part in.
    pub upgrade: Option<UpgradeState>,
    /// The connections of the workers that the last upgrade has replaced, where a server has
    /// several.
    #[serde(default)]
    pub handed_over: Option<HandedOverStatus>,
}

/// The connections of processes that an upgrade has replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandedOverStatus {
    /// Connections that the new program continues with.
    pub elsewhere: u64,
    /// Connections that end with the program before.
    pub here: u64,
}

superpoll::named! {
    /// The phase of a server's life.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ServerPhase {
        /// It does not serve yet.
        #[default]
        Starting = "starting",
        /// It serves.
        Serving = "serving",
        /// It accepts no connections any more, and ends when those that it has are closed.
        Draining = "draining",
    }
}

/// The outcome of an attempt to read the configuration again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastReload {
    /// When it was over, in seconds since 1970.
    pub at: u64,
    /// The mistake, if the configuration was refused.
    pub error: Option<String>,
}

/// A worker process of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its place among the workers, from zero.
    pub slot: u32,
    /// The number of the process.
    pub process: u32,
    /// The phase of its life.
    pub state: ServerPhase,
}

/// The state of an upgrade.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeState {
    /// The new program is about to take over.
    UnderWay,
    /// This is the new program, and it has taken over.
    Done,
    /// The new program has not taken over, for this reason.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::super::ServerCommand;
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written_and_later_fields_do_no_harm() {
        let facts = ServerFacts {
            state: ServerPhase::Serving,
            configuration: Some("/etc/superpoll.toml".into()),
            reload: Some(LastReload { at: 7, error: Some("a:1:2: wrong".to_owned()) }),
            upgrade: Some(UpgradeState::UnderWay),
            ..ServerFacts::default()
        };
        let snapshot = Snapshot { process: 4, connections: 3, ..Snapshot::default() };
        let status = ServerStatus { facts, snapshot };
        let text = serde_json::to_string(&status).unwrap();
        assert!(text.contains("\"state\":\"serving\"") && text.contains("\"process\":4"), "{text}");
        assert_eq!(serde_json::from_str::<ServerStatus>(&text).unwrap(), status);
        let more = text.replacen('{', "{\"later\":[1],", 1);
        assert_eq!(serde_json::from_str::<ServerStatus>(&more).unwrap(), status);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        fn read<'a, T: Deserialize<'a>>(name: &'a str) -> Option<T> {
            let text = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(name);
            T::deserialize(text).ok()
        }
        for value in ServerCommand::ALL {
            assert_eq!(read(value.name()), Some(value));
        }
        for value in ServerPhase::ALL {
            assert_eq!(read(value.name()), Some(value));
        }
        for value in ServerState::ALL {
            assert_eq!(read(value.name()), Some(value));
        }
        for value in Protocol::ALL {
            assert_eq!(read(value.name()), Some(value));
        }
    }
}
