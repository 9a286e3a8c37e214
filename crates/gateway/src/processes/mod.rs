//! A process that is one of several of a server: a worker, with a supervisor.
//!
//! The supervisor has the listening sockets, the log of the channels, and nothing of any client. It
//! is a part of the command `superpoll serve`; here are the workers' side, the messages between
//! both, and the questions of the API to all workers ([`Workers`]). Workers connect to the
//! supervisor by its name, which is one of Linux' abstract namespace.
//!
//! ```text
//!                      +------------+  listeners, log of the channels, tickets' secrets
//!     statistics <---- | supervisor |
//!                      +------------+
//!                      ^ ^ ^      each worker: one connection for messages (`messages`),
//!                     /  |  \     some for the log (`broker::local`), one for listeners
//!                +---+ +---+ +---+
//!     clients    | 0 | | 1 | | 2 |  workers, each with a keeper of its own, if there is one
//!                +---+ +---+ +---+
//! ```
//!
//! Each worker has counters of its own. The supervisor asks the workers for all of them: when a
//! worker asks it, for its metrics or its live page, and for the statistics socket, which is the
//! supervisor's.
//!
//! Workers that lose their connection, as the supervisor's program is replaced in its process,
//! connect again. A worker that cannot, because the supervisor was killed, leaves its idle
//! connections with its keeper and ends.

mod link;
mod listeners;
mod messages;
mod worker;
mod workers;

pub use link::WorkerPlace;
pub(crate) use link::{Counters, Source, SupervisorLink};
pub use listeners::pass_listeners;
pub use messages::{FromWorker, Question, ToWorker, WorkerDrain, WorkerNews};
pub use worker::Worker;
pub use workers::{Answers, WorkerAnswer, Workers};

pub use crate::telemetry::reload::ReloadState;
