//! Several processes that are one server: a supervisor, and workers that serve.
//!
//! The supervisor has the listening sockets, the log of the channels, and nothing of any client. It
//! starts the workers, which take the sockets from it, and starts another one in the place of one
//! that has ended; clients that connect meanwhile wait in the kernel's queue. Workers
//! connect to the supervisor by its name, which is one of Linux' abstract namespace.
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
//! An upgrade replaces the supervisor's program in its process (`execve(2)`), so that its number
//! stays, and the sockets and the log with it ([`Left`]); then the workers one by one. Workers that
//! lose their connection meanwhile connect again. A worker that cannot, because the supervisor was
//! killed, leaves its idle connections with its keeper and ends.

mod left;
mod link;
mod messages;
mod operations;
mod questions;
mod supervisor;
mod worker;
mod workers;

pub use left::{Leave, Left};
pub use link::WorkerPlace;
pub(crate) use link::{Counters, Source, SupervisorLink};
pub(crate) use messages::Kind;
pub use messages::WorkerDrain;
pub use supervisor::{Supervisor, WorkerEvent};
pub use worker::Worker;
pub(crate) use workers::{Answers, Workers};
