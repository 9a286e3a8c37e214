//! The control of a process by operators and programs: its API in JSON over HTTP/1.1.
//!
//! There is one API with two ways in, the admin listener of a configuration and the statistics
//! socket that each process has:
//!
//! ```text
//! admin listener --Request-> api::route -> Call --> Subject::operate -> Operate of the server
//!  (serve/admin)                            ^            |               or of the supervisor
//! statistics socket --Request---------------+            +-> CommandQueue of the program
//!  (socket, client)                                      +-> Collector, for snapshots
//! ```
//!
//! The socket is also there in processes that serve no HTTP, so it reads requests by itself, with
//! the codec of HTTP/1. It has streams of lines as well: [`Snapshot`]s at an interval, and the
//! progress of a drain.

mod api;
mod client;
mod queue;
mod socket;
mod subject;

pub(crate) use api::{Answer, Call, LARGEST, answer, index, not_allowed, refuse, route};
pub use api::{ApiRequest, INTERVALS};
pub use client::VIEWERS;
pub use queue::{CommandCall, CommandQueue, CommandSender, CountGuard};
pub use socket::{ProcessSocket, Socket, Statistics, list, of_process};
pub(crate) use subject::Kept;
pub use subject::Subject;
pub use superpoll_http::admin::{
    ChannelList, ChannelQuery, ChannelReport, ClientFilter, CommandOutcome, ConnectionList,
    ConnectionQuery, ConnectionReport, Covered, DrainProgress, HandedOverStatus, LastReload,
    LogReport, MOST_LISTED, Operation, OperationReport, Outcome, Protocol, Refusal, RefusalReason,
    ReopenedLogs, Report, ServerChange, ServerCommand, ServerFacts, ServerPhase, ServerReport,
    ServerState, ServerStatus, UpgradeState, UpstreamReport, WeightChange, WorkerStatus,
};
pub use superpoll_http::telemetry::snapshot::Snapshot;
pub use superpoll_http::unix_time::seconds_now;

pub use crate::config::SocketPath;
