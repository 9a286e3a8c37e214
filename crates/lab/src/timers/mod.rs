//! `superpoll-lab timers`: what a runtime's timers cost, and how late they are.
//!
//! Most timers of a server never end: they are limits on something that comes in time. So the first loads
//! set timers and take them back before their time: many at once, taken back in the order in which they were
//! made or in another; and one after the other, each taken back before the next is set. The last load lets
//! timers end, each with a task that waits for it and looks at the clock.
//!
//! `load.rs` is the work, the same code over each runtime's future, and its proof: each timer holds a waker
//! until it is taken back, none wakes anybody, and those that are to end do so once and never early.
//! `ours.rs` and `tokio.rs` are the runtimes, `subject.rs` has them by name. They take turns, round by round.
//! Processor time is compared, not time: nothing here waits but the last load, whose wait is given.

use serde::{Deserialize, Serialize};

use crate::options::Output;

pub mod experiment;
mod load;
mod ours;
pub mod plot;
pub(crate) mod subject;
pub mod table;
#[cfg(feature = "rivals-rt")]
mod tokio;
mod trial;

/// Options of `superpoll-lab timers`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Timers set at once, with commas [default: 1000,10000,100000,1000000, or 10000,1000000 if quick]
    #[arg(long, value_name = "LIST")]
    pub timers: Option<String>,
    /// Timers that are to end, within half a second
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub ending: usize,
    /// Runtimes to measure, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

crate::options::of_a_command!(Options);

/// One runtime under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The runtime.
    pub subject: String,
    /// What becomes of the timers: `in order`, `shuffled`, `one by one` (all taken back) or `ending`.
    pub load: String,
    /// How many there are at a time; of `one by one`, how many follow each other.
    pub timers: usize,
    /// Processor time to set one, in the middle round. None if that cannot be told apart.
    pub insert_ns_median: Option<f64>,
    /// The same in the cheapest round.
    pub insert_ns_min: Option<f64>,
    /// Processor time to take one back, in the middle round.
    pub cancel_ns_median: Option<f64>,
    /// The same in the cheapest round.
    pub cancel_ns_min: Option<f64>,
    /// Processor time for all that happens to one, in the middle round.
    pub timer_ns_median: f64,
    /// The same in the cheapest round.
    pub timer_ns_min: f64,
    /// The dearest round less the cheapest.
    pub timer_ns_spread: f64,
    /// How late half of them were, or less.
    pub late_ns_p50: Option<f64>,
    /// How late 99 of 100 were, or less.
    pub late_ns_p99: Option<f64>,
    /// How late the last was.
    pub late_ns_max: Option<f64>,
    /// Rounds measured.
    pub rounds: usize,
    /// The median against that of tokio.
    pub tokio_ratio: Option<f64>,
    /// The cheapest round against tokio's cheapest.
    pub tokio_ratio_min: Option<f64>,
}
