//! `superpoll-lab registrations`: the cost to begin and to end watching a descriptor.
//!
//! `epoll_ctl` takes one descriptor per call. Would many per call be cheaper? There are two ways to
//! do that: changes of an epoll set can be queued in an io_uring and made in one call
//! (`IORING_OP_EPOLL_CTL`), and the ring can watch by itself, with a poll for each descriptor. Both
//! are here, next to plain `epoll_ctl` and our own back-ends, over the number of descriptors in a
//! batch.
//!
//! A round has three parts. First it registers all descriptors, batch by batch; the kernel knows
//! each batch before the next begins. Then it changes the interest of all. Then it ends all
//! registrations. Each part ends with a check for ready descriptors, so that work which a change
//! leaves for the next wait is counted. Between the parts, untimed, the round writes a byte to some
//! of the descriptors, drawn anew for each round. The byte must not be reported while only priority
//! data is of interest. After the change, it must be reported by these descriptors and by no
//! further ones. After the end, it must not be reported any more. Registries take turns round by
//! round, on the same descriptors; only one registry watches a descriptor at a time.
//!
//! The comparison is of processor time over all threads, so that it includes work handed to a
//! kernel thread. `subject.rs` has the registries by name; an epoll set, a ring and our
//! poller have a file each.

use serde::{Deserialize, Serialize};

use crate::options::Output;
use crate::statistics::Estimate;

mod epoll_set;
pub(crate) mod experiment;
mod ours;
pub(crate) mod plot;
mod registry;
mod ring_poll;
mod round;
mod subject;
pub(crate) mod table;
mod trial;

pub(crate) use subject::{BATCHED, YARDSTICK};

/// Options of `superpoll-lab registrations`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Descriptors of a batch, with commas [default: those of 1,4,16,64,256 that do not exceed the
    /// total]
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

/// One registry at one point. Times are per descriptor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// Descriptors of a batch.
    pub batch: usize,
    /// The registry.
    pub subject: String,
    /// Descriptors registered in a round.
    pub total: usize,
    /// Processor time to register, in the median round.
    pub register_ns_median: f64,
    /// The same in the cheapest round.
    pub register_ns_min: f64,
    /// Processor time to change the interest, in the median round.
    pub modify_ns_median: f64,
    /// The same in the cheapest round.
    pub modify_ns_min: f64,
    /// Processor time to deregister, in the median round.
    pub deregister_ns_median: f64,
    /// The same in the cheapest round.
    pub deregister_ns_min: f64,
    /// Processor time to register and deregister, in the median round.
    pub both_ns_median: f64,
    /// The same in the cheapest round.
    pub both_ns_min: f64,
    /// Time to register and deregister, in the median round.
    pub wall_ns_median: f64,
    /// System calls to register and deregister.
    pub calls: f64,
    /// Rounds measured.
    pub rounds: usize,
    /// Processor time to register and deregister, relative to `epoll_ctl`: the median of the
    /// rounds' ratios.
    pub ratio: Option<f64>,
    /// One round in ten has a ratio below this.
    pub ratio_low: Option<f64>,
    /// One round in ten has a ratio above this.
    pub ratio_high: Option<f64>,
    /// The ratio of the cheapest rounds.
    pub ratio_min: Option<f64>,
    /// The ratio of the lowest deciles of the rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_decile: Option<Estimate>,
    /// The median of the ratios of time.
    pub wall_ratio: Option<f64>,
    /// The same as `ratio`, of registering alone.
    pub register_ratio: Option<f64>,
    /// The same as `ratio`, of changing the interest.
    pub modify_ratio: Option<f64>,
    /// The same as `ratio`, of deregistering alone.
    pub deregister_ratio: Option<f64>,
}

impl Row {
    /// Returns the headline of `ratio`: from lowest deciles, or from medians in older records.
    pub(crate) fn headline(&self) -> Option<Estimate> {
        let of_rounds = |value| Estimate {
            value,
            low: self.ratio_low.unwrap_or(value),
            high: self.ratio_high.unwrap_or(value),
        };
        self.ratio_decile.or(self.ratio.map(of_rounds))
    }
}
