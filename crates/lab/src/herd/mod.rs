//! `superpoll-lab herd`: what a connection costs when many wait for it.
//!
//! N processes wait for one listening socket, each perhaps for a thousand duplicates of it as well. A
//! client connects without blocking over the loopback device, so that the kernel does all of the server's
//! part, waking included, before the call returns: its time is the price of the crowd. Reported besides
//! are how many were woken, by the kernel's count of their sleeps, and how evenly the connections were
//! spread (Jain's index). Connections come one after the other, each when all are asleep again.
//!
//! What the client does between two connections grows with the herd: it looks whether each process sleeps,
//! tens of milliseconds for thousands, after which its own caches and the other processor's sleep are deeper
//! than after microseconds. That has nothing to do with who waits for what, so there is a control,
//! `epoll-alone`: one process waits for the listener, and as many as in the herd sleep elsewhere. `/ alone`
//! is the ratio to it.
//!
//! `way/` are the ways of waiting, `crowd.rs` starts and watches the waiters. Duplicates of an empty pipe
//! in their place are the control: the same number of descriptors, none of which the connection concerns.

use serde::{Deserialize, Serialize};

use crate::options::Output;

mod crowd;
pub mod experiment;
pub mod plot;
mod shortage;
pub mod table;
mod trial;
mod way;

/// Options of `superpoll-lab herd`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Waiting processes (or engines), with commas [default: 1,16,256,1024,4096,16384, or 1,16,64 if quick]
    #[arg(long, value_name = "LIST")]
    pub processes: Option<String>,
    /// Duplicates of the listener that each waits for as well; with any, a control with as many of a
    /// pipe is measured too
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub dups: usize,
    /// Connections to each herd [default: what fits into the time, at most 500]
    #[arg(long, value_name = "N")]
    pub connects: Option<usize>,
    /// Ways to wait, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

crate::options::of_a_command!(Options);

/// No more processes than this are started at a time.
pub const MOST_PROCESSES: usize = 16_384;

/// One way of waiting by so many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The way.
    pub subject: String,
    /// Waiting processes, or engines of our runtime.
    pub processes: usize,
    /// As many were asked for; more than there are where a limit did not allow them.
    #[serde(default)]
    pub asked: usize,
    /// Descriptors that each waits for besides the listener.
    pub dups: usize,
    /// Of what these are duplicates: `listener` or `pipe`.
    pub dups_of: String,
    /// Connections measured.
    pub connects: usize,
    /// Time of a non-blocking `connect(2)`, the quickest.
    pub connect_ns_min: f64,
    /// Half were quicker.
    pub connect_ns_median: f64,
    /// Of a hundred, 99 were quicker.
    pub connect_ns_p99: f64,
    /// The median against that with the fewest waiters of the same way.
    pub median_ratio: Option<f64>,
    /// The median against that of one waiter among as many processes that sleep elsewhere.
    pub alone_ratio: Option<f64>,
    /// Waiters that were woken by a connection, on average.
    pub woken_per_connect: f64,
    /// Connections of the waiter that got the fewest.
    pub accepts_min: u64,
    /// Connections of the waiter that got the most.
    pub accepts_max: u64,
    /// Waiters that got any.
    pub accepting: usize,
    /// Jain's fairness index of the connections: 1 if all got the same, 1/N if one got everything.
    pub jain: f64,
    /// The best that Jain's index could be with so few connections.
    pub jain_best: f64,
}

/// Jain's fairness index: the square of the sum over the sum of the squares, times the number.
pub fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|&count| count as f64).sum();
    let squares: f64 = counts.iter().map(|&count| (count as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (counts.len() as f64 * squares) }
}
