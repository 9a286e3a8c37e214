//! The messages between a worker and its supervisor.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use superpoll_http::admin::Settings;
use superpoll_http::telemetry::traffic::ChannelName;

use crate::telemetry::reload::ReloadState;

/// From a worker to its supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromWorker {
    /// It serves these addresses, and clients are to trust these files.
    Ready { fronts: Vec<String>, roots: Vec<PathBuf> },
    /// It has taken on the configuration of that number, or says why not.
    Reloaded { number: u64, outcome: Result<(), String> },
    /// It asks for the counters of all workers.
    Collect { id: u64, kind: Kind },
    /// A client of its admin listener asks for an operation, in JSON.
    Operate { id: u64, operation: Vec<u8> },
    /// Its own counters, as it was asked.
    Counters { id: u64, bytes: Vec<u8> },
    /// Its secrets of tickets have changed.
    Tickets(Vec<u8>),
    /// Another process has taken over its keeper: it drains from now on.
    Yields,
    /// It accepts no connections any more, and ends when those that it has are closed.
    Drains(WorkerDrain),
}

/// From the supervisor to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToWorker {
    /// Its own counters are asked for.
    Count { id: u64, kind: Kind },
    /// The counters of all workers, as it asked, and the numbers of the processes that have not
    /// answered.
    Collected { id: u64, all: Vec<Vec<u8>>, missing: Vec<u32> },
    /// The secrets of tickets that all workers have.
    Tickets(Vec<u8>),
    /// The outcome of the last attempt to take on a configuration.
    Reload(ReloadState),
    /// The settings of operators: the first message, and one after each change.
    Settings(Settings),
}

/// The connections of a worker at the moment at which it begins to drain.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct WorkerDrain {
    /// Connections that its successor continues with.
    pub elsewhere: u64,
    /// Connections that end with it.
    pub connections: u64,
    /// Requests under way on these.
    pub requests: u64,
}

/// The text of a configuration, and its number. There is none if the server has no file.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(super) struct Configuration {
    pub number: u64,
    pub text: String,
}

/// The counters for someone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// For metrics.
    Overview,
    /// For the live page: the engines.
    Engines,
    /// For the statistics socket, with the figures of these channels.
    Statistics(Vec<ChannelName>),
    /// For the live page: requests, servers and channels, with the figures of these channels.
    Traffic(Vec<ChannelName>),
    /// The outcome of an operation, both in JSON.
    Operation(Vec<u8>),
}

/// The head of the message with which a listener comes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ListenerHead {
    /// The address as the configuration has it; `None`: there are no more.
    pub address: Option<String>,
}
