//! `superpoll-lab models`: four ways to learn which descriptors are ready, over the ratio of active
//! to all.
//!
//! A program that must not block on one descriptor has four ways to find out which are ready. It
//! can *try* all of them without blocking, make the kernel send *signals*, *ask* which are ready,
//! or *register* its requests and receive reports. Each way is here as the shortest loop that a C
//! programmer would write, one file each. The loops that ask with `poll` and `epoll` (either
//! trigger) are the raw loops of `superpoll-lab atr`. Everything else is as there: the same
//! harness, the same rounds in turn, each byte checked, the loop's own time and the additional cost
//! for the writers.
//!
//! Next to the times, the tables show three more figures: the system calls for an event; how often
//! the kernel had no room for one (the queue of signals, the queue of completions); and the share
//! of a processor that a loop takes while nothing happens, since in the timed rounds something is
//! always ready.
//!
//! Models that this kernel refuses, or that the limits of this process forbid, are left out, and
//! the record says why.

use serde::{Deserialize, Serialize};

use crate::grouping;
use crate::options::Output;
use crate::record::Figures;

mod aio;
mod claims;
pub(crate) mod experiment;
pub(crate) mod plot;
mod quiet;
mod select;
mod sigio;
mod sigio_plain;
mod spin;
pub(crate) mod table;
mod trial;
mod uring;
mod uring_read;

/// Options of `superpoll-lab models`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Descriptors: numbers with commas
    #[arg(long, value_name = "N", default_value = "1000")]
    pub total: String,
    /// How many of them are active: numbers with commas (default: from one to all)
    #[arg(long, value_name = "LIST")]
    pub active: Option<String>,
    /// Where the active descriptors lie among all: end, spread, front or all
    #[arg(long, value_name = "LIST", default_value = "end")]
    pub placement: String,
    /// Kinds of descriptors: pipe, unix, tcp or all
    #[arg(long, value_name = "LIST", default_value = "pipe")]
    pub kind: String,
    /// Loops to measure, with commas, or all
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub subjects: String,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

crate::by_name::named! {
    /// How a program learns that a descriptor is ready.
    pub(crate) enum Model {
        /// It reads, and the result tells.
        Try = "try",
        /// The kernel sends it signals.
        Signals = "signals",
        /// It asks the kernel.
        Ask = "ask",
        /// It registers its request with the kernel, and the kernel reports when data arrives.
        Register = "register",
    }
}

/// The subject that all are compared with; it knows beforehand which descriptors are ready, which
/// no program can.
const FLOOR: &str = "floor";

/// One loop at one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// Where the active descriptors lie.
    pub placement: String,
    /// Descriptors watched.
    pub total: usize,
    /// How many of them were active in each round.
    pub active: usize,
    /// `try`, `signals`, `ask` or `register`; `none` for the floor.
    pub model: String,
    /// The loop.
    pub subject: String,
    /// The share of a processor that it takes while nothing happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_processor_share: Option<f64>,
    /// The measured figures. Ratios are to the best of all loops at this point except the floor.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Row {
    /// Ratio of active to all descriptors.
    pub(crate) fn atr(&self) -> f64 {
        self.active as f64 / self.total.max(1) as f64
    }
}

/// The sweeps in a record: all rows of one kind, total and placement.
pub(crate) fn sweeps(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    grouping::groups(rows, |row| format!("{} {} {}", row.kind, row.total, row.placement))
}
