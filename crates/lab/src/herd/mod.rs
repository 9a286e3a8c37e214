//! `superpoll-lab herd`: the cost of a connection when many processes wait for it.
//!
//! N processes wait for one listening socket, each perhaps for a thousand duplicates of it as well.
//! A client connects without blocking over the loopback device, so that the kernel does all of the
//! server's part, including the wake-ups, before the call returns: the time of the call is the
//! price of the crowd. The report also gives the number of woken waiters, by the kernel's count of
//! their sleeps, and how evenly the connections were spread (Jain's index). Connections come one
//! after another, each when all waiters are asleep again.
//!
//! The client's work between two connections grows with the herd. It checks whether each process
//! sleeps, which takes tens of milliseconds for thousands; after that its own caches are colder,
//! and the other processor sleeps more deeply, than after microseconds. This has nothing to do with
//! the method of waiting, so there is a control, `epoll-alone`: one process waits for the listener,
//! and as many processes as in the herd sleep elsewhere. `/ alone` is the ratio to it.
//!
//! `method/` has the methods of waiting; `crowd.rs` starts and watches the waiters. For the
//! duplicates, the control is duplicates of an empty pipe: the same number of descriptors, without
//! any that the connection concerns.

use serde::{Deserialize, Serialize};

use crate::options::Output;

mod crowd;
pub(crate) mod experiment;
mod method;
pub(crate) mod plot;
mod shortage;
pub(crate) mod table;
mod trial;

/// Options of `superpoll-lab herd`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Waiting processes (or engines), with commas [default: 1,16,256,1024,4096,16384, or 1,16,64
    /// if quick]
    #[arg(long, value_name = "LIST")]
    pub processes: Option<String>,
    /// Duplicates of the listener that each waits for as well; with any, a control with as many
    /// duplicates of a pipe is measured too
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub dups: usize,
    /// Connections to each herd [default: as many as fit into the time, at most 500]
    #[arg(long, value_name = "N")]
    pub connects: Option<usize>,
    /// Ways to wait, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// The most processes that are started at a time.
pub(crate) const MOST_PROCESSES: usize = 16_384;

/// One method of waiting with one number of waiters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The method.
    pub subject: String,
    /// Waiting processes, or engines of our runtime.
    pub processes: usize,
    /// The requested number of waiters; it is larger than `processes` where a limit did not allow
    /// that many.
    #[serde(default)]
    pub asked: usize,
    /// Descriptors that each waits for besides the listener.
    pub dups: usize,
    /// The object that the duplicates refer to: `listener` or `pipe`.
    pub dups_of: String,
    /// Connections measured.
    pub connects: usize,
    /// The shortest time of a non-blocking `connect(2)`.
    pub connect_ns_min: f64,
    /// The median time.
    pub connect_ns_median: f64,
    /// The 99th percentile of the time.
    pub connect_ns_p99: f64,
    /// The median relative to that of the fewest waiters of the same method.
    pub median_ratio: Option<f64>,
    /// The median relative to that of one waiter among as many processes that sleep elsewhere.
    pub alone_ratio: Option<f64>,
    /// Waiters that were woken by a connection, on average.
    pub woken_per_connect: f64,
    /// Connections of the waiter that got the fewest.
    pub accepts_min: u64,
    /// Connections of the waiter that got the most.
    pub accepts_max: u64,
    /// Waiters that got any.
    pub accepting: usize,
    /// Jain's fairness index of the connections: 1 if all got the same number, 1/N if one waiter
    /// got everything.
    pub jain: f64,
    /// The best value that Jain's index could have with this few connections.
    pub jain_best: f64,
}

/// Jain's fairness index: the square of the sum, divided by the sum of the squares times the
/// number.
pub(crate) fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|&count| count as f64).sum();
    let squares: f64 = counts.iter().map(|&count| (count as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (counts.len() as f64 * squares) }
}
