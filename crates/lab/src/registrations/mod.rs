//! `superpoll-lab registrations`: what it costs to begin and to end watching a descriptor.
//!
//! `epoll_ctl` takes one descriptor per call. Would many per call be cheaper? There are two ways to have that:
//! changes of an epoll set can be queued in an io_uring and made in one call (`IORING_OP_EPOLL_CTL`), and the
//! ring can watch by itself, with a poll for each descriptor. Both are here, beside plain `epoll_ctl` and our
//! own back-ends, over the number of descriptors in a batch.
//!
//! A round registers all descriptors, batch by batch, each of which the kernel knows before the next begins;
//! then changes what all are watched for; then ends all registrations. Each of the three parts ends with a
//! look at what is ready, so that work which a change leaves for the next wait is counted. Between the parts,
//! untimed, a byte is written to some of the descriptors, drawn anew for each round: it must not be reported
//! while only priority data is of interest, must be reported by these and no others after the change, and not
//! any more after the end. Registries take turns round by round, on the same
//! descriptors, of which each is watched by one at a time.
//!
//! What is compared is processor time, of all threads, so that work handed to a thread of the kernel's is
//! not lost sight of. `subject.rs` has the registries by name, a file for each.

use serde::{Deserialize, Serialize};

use crate::options::Output;

mod epoll_set;
pub mod experiment;
mod ours;
pub mod plot;
mod raw_epoll;
mod registry;
mod ring_epoll;
mod ring_poll;
mod round;
mod subject;
pub mod table;
mod trial;

pub use subject::{BATCHED, YARDSTICK};

/// Options of `superpoll-lab registrations`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Descriptors of a batch, with commas [default: 1,4,16,64,256, as far as there are so many]
    #[arg(long, value_name = "LIST")]
    pub batch: Option<String>,
    /// Descriptors that are registered in a round, in batches
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub total: usize,
    /// Kinds of descriptors: pipe, unix, tcp or all
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub kind: String,
    /// Registries to measure, with commas, or all; raw-epoll always takes part
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

crate::options::of_a_command!(Options);

/// One registry at one point. Times are per descriptor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// Descriptors of a batch.
    pub batch: usize,
    /// The registry.
    pub subject: String,
    /// Descriptors registered in a round.
    pub total: usize,
    /// Processor time to register, in the middle round.
    pub register_ns_median: f64,
    /// The same in the cheapest round.
    pub register_ns_min: f64,
    /// Processor time to change the interest, in the middle round.
    pub modify_ns_median: f64,
    /// The same in the cheapest round.
    pub modify_ns_min: f64,
    /// Processor time to deregister, in the middle round.
    pub deregister_ns_median: f64,
    /// The same in the cheapest round.
    pub deregister_ns_min: f64,
    /// Processor time to register and deregister, in the middle round.
    pub both_ns_median: f64,
    /// The same in the cheapest round.
    pub both_ns_min: f64,
    /// Time to register and deregister, in the middle round.
    pub wall_ns_median: f64,
    /// System calls to register and deregister.
    pub calls: f64,
    /// Rounds measured.
    pub rounds: usize,
    /// Processor time to register and deregister against `epoll_ctl`: the middle one of the rounds' ratios.
    pub ratio: Option<f64>,
    /// One round in ten has a ratio below this.
    pub ratio_low: Option<f64>,
    /// One round in ten has a ratio above this.
    pub ratio_high: Option<f64>,
    /// The ratio of the cheapest rounds.
    pub ratio_min: Option<f64>,
    /// The middle one of the ratios of time.
    pub wall_ratio: Option<f64>,
    /// The same as `ratio`, of registering alone.
    pub register_ratio: Option<f64>,
    /// The same as `ratio`, of changing the interest.
    pub modify_ratio: Option<f64>,
    /// The same as `ratio`, of deregistering alone.
    pub deregister_ratio: Option<f64>,
}
