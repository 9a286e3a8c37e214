//! The messages between a worker and its supervisor.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use superpoll_http::admin::Settings;
use superpoll_http::telemetry::traffic::ChannelName;

use crate::telemetry::reload::ReloadState;

/// From a worker to its supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// It has changed.
    News(WorkerNews),
    /// It asks for the answers of all workers to a question.
    Collect {
        /// The worker's number of this message.
        id: u64,
        /// The question.
        question: Question,
    },
    /// A client of its admin listener asks for an operation.
    Operate {
        /// The worker's number of this message.
        id: u64,
        /// The operation, in JSON.
        operation: Vec<u8>,
    },
    /// Its own answer to a question.
    Answer {
        /// The supervisor's number of the question.
        id: u64,
        /// The answer; empty if it has none.
        bytes: Vec<u8>,
    },
    /// Its secrets of tickets have changed.
    Tickets(Vec<u8>),
}

/// A change of a worker, which its supervisor acts on.
#[derive(Debug, Serialize, Deserialize)]
pub enum WorkerNews {
    /// It serves.
    Ready {
        /// The addresses that are served, as users write them.
        fronts: Vec<String>,
        /// The files of certificates that clients are to trust.
        roots: Vec<PathBuf>,
    },
    /// It has read the configuration again.
    Reloaded {
        /// The number of the configuration.
        number: u64,
        /// The mistake, if it continues with the configuration before.
        outcome: Result<(), String>,
    },
    /// Another process has taken over its keeper; it drains and ends.
    Yields,
    /// It accepts no connections any more, and ends when those that it has are closed.
    Drains(WorkerDrain),
}

/// From the supervisor to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// It is asked a question.
    Ask {
        /// The supervisor's number of the question.
        id: u64,
        /// The question.
        question: Question,
    },
    /// The answers of all workers, as it asked, or the outcome of its operation.
    Collected {
        /// The worker's number of its message.
        id: u64,
        /// The answers.
        all: Vec<Vec<u8>>,
        /// The numbers of the processes that have not answered.
        missing: Vec<u32>,
    },
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

/// A question to a worker, for its counters or to operate on it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Question {
    /// The counters for metrics.
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
