//! Operations on a server at work: listing its upstreams, channels and connections, and changing
//! some of their state.
//!
//! An [`Operation`] comes as a request of HTTP, from `superpoll upstream` and its like by the
//! statistics socket, or from any client by the admin listener. Both give it to the `Subject` of
//! the server, which carries it out:
//!
//! ```text
//! admin listener --+                    one process: +--> Operate of the server, on its engines
//!                  +--> Subject::operate ------------+
//! statistics      -+                    several:     +--> Operate of the supervisor, each worker,
//!  socket                                                 and one report of all (`merge`)
//! ```
//!
//! A worker of several processes passes the operations of its admin listener on to the supervisor,
//! so that they have the same effect wherever they come in.
//!
//! The settings of operators are kept apart from the configuration, in `Settings`, which are small
//! and always sent as a whole: to a worker that joins before anything else, and to all workers
//! after a change. So a message that is lost with its connection needs no repetition, and the order
//! of two changes is the same everywhere. Settings of a server of an upstream stay as long as the
//! configuration names it.

mod merge;
mod operation;
mod report;
mod settings;

use std::sync::Arc;

use futures_lite::future::BoxedLocal;

pub use self::merge::merge;
pub use self::operation::{ChannelQuery, ClientFilter, ConnectionQuery, MOST_LISTED, Operation};
pub use self::operation::{ServerChange, ServerCommand, ServerState, UserCommand, WeightChange};
pub use self::report::{
    ChannelList, ChannelReport, CommandOutcome, ConnectionList, ConnectionReport, Covered,
    DrainProgress, HandedOverStatus, LastReload, LogReport, OperationReport, Protocol, Refusal,
    RefusalReason, ReopenedLogs, Report, ServerFacts, ServerPhase, ServerReport, ServerStatus,
    UpgradeState, UpstreamReport, WorkerStatus,
};
pub use self::settings::{ServerSetting, Settings, Upstreams};

/// The outcome of an operation.
pub type Outcome = Result<OperationReport, Refusal>;

/// A server, or the supervisor of several, which carries out operations.
pub trait Operate: Send + Sync {
    /// Carries out an operation, in a task of an engine. If the future is dropped, the operation
    /// may have had its effect or not.
    fn operate(self: Arc<Self>, operation: Operation) -> BoxedLocal<Outcome>;
}
