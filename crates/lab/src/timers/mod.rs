//! `superpoll-lab timers`: the cost of a runtime's timers, and how late they are.
//!
//! Most timers of a server never end: they are limits on an event that comes in time. So the first
//! loads set timers and cancel them before their time: many at once, cancelled in the order in
//! which they were made or in another order; and one after the other, each cancelled before the
//! next is set. The last load lets timers end, each with a task that waits for it and reads the
//! clock.
//!
//! `load.rs` is the work, the same code over each runtime's future, and its proof: each timer holds
//! a waker until it is cancelled; a cancelled timer wakes no task; and each ending timer ends once
//! and never early. `ours.rs` and `tokio.rs` are the runtimes, `subject.rs` has them by name. They
//! take turns, round by round. The comparison is of processor time, not of time: only the last load
//! waits, and its waiting time is given.

use serde::{Deserialize, Serialize};

use crate::options::Output;
use crate::statistics::ToTokio;

pub(crate) mod experiment;
mod load;
mod ours;
pub(crate) mod plot;
pub(crate) mod subject;
pub(crate) mod table;
#[cfg(feature = "rivals-rt")]
mod tokio;
mod trial;

/// Options of `superpoll-lab timers`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Timers set at once, with commas [default: 1000,10000,100000,1000000, or 10000,1000000 if
    /// quick]
    #[arg(long, value_name = "LIST")]
    pub timers: Option<String>,
    /// Timers that end, within half a second
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub ending: usize,
    /// Runtimes to measure, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// One runtime under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The runtime.
    pub subject: String,
    /// The load: `in order`, `shuffled`, `one by one` (all cancelled) or `ending`.
    pub load: String,
    /// The number of timers at a time; for `one by one`, the number that follow each other.
    pub timers: usize,
    /// Processor time to set a timer, in the median round. None if it cannot be measured
    /// separately.
    pub insert_ns_median: Option<f64>,
    /// The same in the cheapest round.
    pub insert_ns_min: Option<f64>,
    /// Processor time to cancel a timer, in the median round.
    pub cancel_ns_median: Option<f64>,
    /// The same in the cheapest round.
    pub cancel_ns_min: Option<f64>,
    /// Processor time for the whole life of a timer, in the median round.
    pub timer_ns_median: f64,
    /// The same in the cheapest round.
    pub timer_ns_min: f64,
    /// The most expensive round less the cheapest.
    pub timer_ns_spread: f64,
    /// The median lateness.
    pub late_ns_p50: Option<f64>,
    /// The 99th percentile of the lateness.
    pub late_ns_p99: Option<f64>,
    /// The largest lateness.
    pub late_ns_max: Option<f64>,
    /// Rounds measured.
    pub rounds: usize,
    /// The cost relative to tokio's `current_thread` runtime.
    #[serde(flatten)]
    pub to_tokio: ToTokio,
    /// The time of a timer in each round, while the point is measured.
    #[serde(skip)]
    pub timer_ns: Vec<f64>,
}
