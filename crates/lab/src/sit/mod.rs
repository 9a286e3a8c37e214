//! `superpoll-lab sit`: what a babysitter costs, what it saves, and what it keeps.
//!
//! Four parts, each in every topology, in turns, round by round:
//!
//! - `move`: descriptors leave for the babysitter and come back, in batches. Measured is the processor time of the main
//!   loop's thread, and that of the babysitter's thread or process, for one descriptor. Without a babysitter nobody
//!   leaves; there the same wait, and the same wake-up, are the yardstick.
//! - `wake`: the time from a peer's write to a descriptor that is away until the main loop has read the byte.
//! - `busy`: ten clients ask and are answered through a loop that thousands of idle connections belong to; the time of a
//!   request, and the processor time of both sides.
//! - `restart`: a web server with thousands of WebSockets and keep-alive connections is upgraded, and then killed.
//!   Counted are connections that did not live on, messages that a subscriber missed or heard twice, and the time from
//!   the start of the new process until it has answered a request.
//!
//! Every loop is a process of its own, because a second thread makes each system call on a descriptor dearer, and the
//! nested topology has none. `topology.rs` makes the pollers, `moves.rs` and `busy.rs` are the loops, `crowd.rs` the
//! clients of the server that `restart.rs` starts again, and `trial.rs` has all take turns.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::options::Output;
use crate::record::Record;

mod busy;
mod crowd;
mod moves;
pub mod plot;
mod restart;
pub mod table;
mod topology;
mod trial;

/// Options of `superpoll-lab sit`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// What to measure: move, wake, busy, restart or all
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub parts: String,
    /// Who watches what is idle: nested, thread, process or all
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub topologies: String,
    /// Descriptors that leave and come back together, 1 to 253, with commas
    #[arg(long, value_name = "LIST", default_value = "1,16,253")]
    pub batch: String,
    /// Idle connections beside the busy ones, and of the server that is started again; fewer where the limit of
    /// descriptors is lower [default: 9000, or 1000 if quick]
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

impl Default for Options {
    /// What the command line has without options.
    fn default() -> Options {
        Options {
            parts: "all".to_owned(),
            topologies: "all".to_owned(),
            batch: "1,16,253".to_owned(),
            idle: None,
            requests: 10_000,
            samples: 100,
            output: Output::default(),
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Leaving and coming back.
    Move,
    /// A wake-up by one that is away.
    Wake,
    /// Requests beside idle connections.
    Busy,
    /// A server's upgrade and crash.
    Restart,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 4] = [Part::Move, Part::Wake, Part::Busy, Part::Restart];

    /// Its name in tables and records.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Move => "move",
            Part::Wake => "wake",
            Part::Busy => "busy",
            Part::Restart => "restart",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One figure of one topology, or of one way to start again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `move`, `wake`, `busy` or `restart`.
    pub part: String,
    /// The topology; `upgrade` or `crash` of a restart.
    pub subject: String,
    /// Descriptors that move together, or that are idle.
    pub descriptors: usize,
    /// What it is.
    pub figure: String,
    /// `ns`, or `count`.
    pub unit: String,
    /// That of the middle round.
    pub median: f64,
    /// That of the round with the least.
    pub least: f64,
    /// That of the round with the most.
    pub most: f64,
    /// Rounds measured.
    pub rounds: usize,
}

/// Runs the experiment.
///
/// # Errors
///
/// [`Error::Usage`](crate::Error::Usage) for options that make no sense;
/// [`Error::Work`](crate::Error::Work) if a byte is lost, or if nobody leaves for a babysitter; otherwise what a poller,
/// a babysitter or a server says.
pub fn run(options: &Options) -> Result<Record<Row>> {
    trial::run(options)
}
