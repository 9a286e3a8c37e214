//! `superpoll-lab keep`: the costs of a keeper, its savings, and the connections that it keeps.
//!
//! There are four parts. Each runs in every topology, in turns, round by round:
//!
//! - `move`: descriptors leave for the keeper and come back, in batches. The result is the
//!   processor time for one descriptor, of the main loop's thread and of the keeper's thread or
//!   process. Without a keeper no descriptor leaves; there the same wait, and the same wake-up,
//!   are the yardstick.
//! - `wake`: the time from a peer's write to a descriptor that is away until the main loop has read
//!   the byte.
//! - `busy`: ten clients send requests through a loop that also has thousands of idle connections.
//!   The result is the time of a request, and the processor time of both sides.
//! - `restart`: a web server with thousands of WebSockets and keep-alive connections is upgraded,
//!   and then killed. The result counts connections that did not live on, and messages that a
//!   subscriber missed or received twice. It also gives the time from the start of the new process
//!   until it has answered a request.
//!
//! Every loop is a process of its own, because a second thread makes each system call on a
//! descriptor more expensive, and the nested topology has no second thread. `topology.rs` makes the
//! pollers, `moves.rs` and `busy.rs` are the loops, `crowd.rs` the clients of the server that
//! `restart.rs` restarts, and `trial.rs` runs everything in turn.

use serde::{Deserialize, Serialize};

use crate::options::Output;

mod busy;
mod crowd;
pub(crate) mod experiment;
mod moves;
pub(crate) mod plot;
mod restart;
pub(crate) mod table;
mod topology;
mod trial;

/// Options of `superpoll-lab keep`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The parts to measure: move, wake, busy, restart or all
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub parts: String,
    /// Where idle connections are watched: nested, thread, process or all
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub topologies: String,
    /// Descriptors that leave and come back together, 1 to 253, with commas
    #[arg(long, value_name = "LIST", default_value = "1,16,253")]
    pub batch: String,
    /// Idle connections in addition to the busy ones, and of the restarted server; fewer where the
    /// limit of descriptors is lower [default: 9000, or 1000 if quick]
    #[arg(long, value_name = "N")]
    pub idle: Option<usize>,
    /// Requests to each loop in a round
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub requests: u64,
    /// Wake-ups of each loop in a round
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub samples: usize,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

crate::by_name::named! {
    /// A part of the experiment.
    pub(crate) enum Part {
        /// Leaving and coming back.
        Move = "move",
        /// A wake-up by a descriptor that is away.
        Wake = "wake",
        /// Requests, next to idle connections.
        Busy = "busy",
        /// A server's upgrade and crash.
        Restart = "restart",
    }
}

/// One figure of one topology, or of one way to restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// `move`, `wake`, `busy` or `restart`.
    pub part: String,
    /// The topology; `upgrade` or `crash` of a restart.
    pub subject: String,
    /// Descriptors that move together, or that are idle.
    pub descriptors: usize,
    /// The name of the figure.
    pub figure: String,
    /// `ns`, or `count`.
    pub unit: String,
    /// The value of the median round.
    pub median: f64,
    /// The value of the lowest round.
    pub least: f64,
    /// The value of the highest round.
    pub most: f64,
    /// Rounds measured.
    pub rounds: usize,
}
