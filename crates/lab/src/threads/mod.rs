//! `superpoll-lab threads`: a thread for each descriptor, compared with event loops, over the ratio
//! of active to all.
//!
//! The hypothesis is Zed Shaw's, the last in "poll, epoll, science, and superpoll" (2010): if more
//! than about 0.6 of the descriptors are active, threads win, and below that, events win. A thread
//! that sleeps in a read makes no call to find its work and searches nothing. A loop pays for its
//! wait, but the wait gives everything that is ready to one thread that is awake.
//!
//! There are N pairs, A of them active. In each round each active pair gets a byte, which is read
//! once, and sent back on sockets. Two accounts are kept. *Clock* runs from before the first write
//! until the last byte was read. *Processor time* is that of all the subject's threads, plus the
//! extra time that the subject's waiting adds to the writer's writes: the writer does the work of
//! waking a thread. There are two places to run: *one* processor, which the subject shares with the
//! writer, so that all bytes of a round are there when the subject looks and nothing happens at the
//! same time; and *all* processors, where threads also gain from running in parallel.
//!
//! `counters.rs` is the memory that the writer and a subject share, `subject/` has the subjects,
//! and `block.rs` measures one subject in a process of its own: a process of a thousand threads
//! pays more for each descriptor that it looks up, and only threads should pay that price. Blocks
//! of all subjects take turns, and a ratio compares two blocks of the same turn.

use serde::{Deserialize, Serialize};

use crate::grouping;
use crate::options::Output;
use crate::statistics::Estimate;

mod block;
mod counters;
pub(crate) mod experiment;
mod figures;
pub(crate) mod plot;
mod subject;
pub(crate) mod table;
mod trial;

/// Options of `superpoll-lab threads`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Descriptors: numbers with commas
    #[arg(long, value_name = "N", default_value = "100,1000")]
    pub total: String,
    /// How many of them are active: numbers with commas (default: from one to all)
    #[arg(long, value_name = "LIST")]
    pub active: Option<String>,
    /// Where the active descriptors lie among all: end, spread, front or all
    #[arg(long, value_name = "LIST", default_value = "spread")]
    pub placement: String,
    /// Kinds of descriptors: pipe, unix, tcp or all
    #[arg(long, value_name = "LIST", default_value = "pipe")]
    pub kind: String,
    /// Where subjects run: on one processor (the writer's), on all, or both
    #[arg(long, value_name = "LIST", default_value = "one,all")]
    pub processors: String,
    /// The subjects, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// One subject at one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// Where the active descriptors lie.
    pub placement: String,
    /// Where the subject ran: on `one` processor, the writer's, or on `all`.
    pub processors: String,
    /// Descriptors.
    pub total: usize,
    /// How many of them were active in each round.
    pub active: usize,
    /// The subject.
    pub subject: String,
    /// `threads` or `events`.
    pub family: String,
    /// Threads of the subject's process.
    pub threads: u64,
    /// Blocks measured.
    pub blocks: usize,
    /// Rounds measured, in all blocks.
    pub rounds: usize,
    /// From before the first write until the last byte was read; the median block.
    pub clock_ns_per_round: f64,
    /// The quickest block.
    pub clock_ns_per_round_low: f64,
    /// The slowest block.
    pub clock_ns_per_round_high: f64,
    /// The subject's processor time per event; the median block.
    pub cpu_ns_per_event: f64,
    /// The extra cost of a write, compared with a write to a descriptor that no thread waits for;
    /// the median block.
    pub write_ns_per_event: f64,
    /// Both of these together; the median block.
    pub cost_ns_per_event: f64,
    /// The cheapest block.
    pub cost_ns_per_event_low: f64,
    /// The most expensive block.
    pub cost_ns_per_event_high: f64,
    /// Time on the clock, relative to the best event loop of the same turns: the median turn.
    pub clock_ratio: Option<f64>,
    /// The lowest turn.
    pub clock_ratio_low: Option<f64>,
    /// The highest turn.
    pub clock_ratio_high: Option<f64>,
    /// Processor time including the writer's share, relative to the best event loop: the median
    /// turn.
    pub cost_ratio: Option<f64>,
    /// The lowest turn.
    pub cost_ratio_low: Option<f64>,
    /// The highest turn.
    pub cost_ratio_high: Option<f64>,
    /// Time on the clock, as the ratio of the lowest deciles of the blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_decile: Option<Estimate>,
    /// Processor time including the writer's share, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_decile: Option<Estimate>,
    /// How often a thread went to sleep, per event.
    pub voluntary_switches_per_event: f64,
    /// How often a thread lost its processor to another thread, per event.
    pub involuntary_switches_per_event: f64,
    /// Private memory that the subject's set-up has touched, in bytes per descriptor.
    pub memory_per_descriptor: f64,
    /// By how much the kernel's stacks grew meanwhile, in bytes per descriptor. Threads of other
    /// processes count as well.
    pub kernel_stack_per_descriptor: f64,
    /// How long the set-up took, in nanoseconds per descriptor.
    pub set_up_ns_per_descriptor: f64,
}

impl Row {
    /// Ratio of active to all descriptors.
    pub(crate) fn atr(&self) -> f64 {
        self.active as f64 / self.total.max(1) as f64
    }

    /// Returns the headline of the time on the clock relative to the best event loop: from lowest
    /// deciles, or from medians in older records.
    pub(crate) fn clock(&self) -> Option<f64> {
        self.clock_decile.map(|ratio| ratio.value).or(self.clock_ratio)
    }
}

/// The sweeps in a record: all rows of one kind, total, placement and choice of processors.
pub(crate) fn sweeps(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    grouping::groups(rows, |row| {
        let processors = if row.processors == "one" { "one processor" } else { "all processors" };
        format!("{} {} {}, {processors}", row.kind, row.total, row.placement)
    })
}
