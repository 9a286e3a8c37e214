//! `superpoll-lab ring`: N pipes in a ring, with a task between neighbouring pipes that passes on
//! the bytes it reads.
//!
//! One byte, or K of them, goes round for M laps: the work of a chat server or of a pipeline of
//! coroutines, reduced to passing bytes on. With one byte in flight only one task can ever run.
//! Then the figure is the way from a write to the task that waits for it: the runtime's queue, its
//! poller and its system calls. With more bytes in flight a poller can return more than one event
//! at a time.
//!
//! `course.rs` is the work and its proof. `subject.rs` has the runtimes and pollers, each in a file
//! of its own (the C libraries share one); tasks are the same for all runtimes (`tasks.rs`), and
//! the loops over pollers do the same with a ready pipe (`passing.rs`). `stage.rs` measures one
//! subject, `remote.rs` gives it a process of its own. All subjects are set up once per point and
//! then run some laps in turn, round by round, so that drift hits all alike.

use serde::{Deserialize, Serialize};

use crate::options::Output;
use crate::statistics::{Estimate, ToTokio};

#[cfg(feature = "rivals-c")]
mod c_loops;
#[cfg(feature = "rivals-rt")]
mod compio;
mod course;
pub(crate) mod experiment;
mod floor;
mod go;
#[cfg(feature = "rival-mio")]
mod mio;
#[cfg(feature = "rivals-rt")]
mod monoio;
mod ours;
mod passing;
pub(crate) mod plot;
#[cfg(feature = "rival-polling")]
mod polling;
mod raw_epoll;
mod remote;
#[cfg(feature = "rivals-rt")]
mod smol;
mod stage;
pub(crate) mod subject;
pub(crate) mod table;
mod tasks;
#[cfg(feature = "rivals-rt")]
mod tokio;
mod trial;

/// Options of `superpoll-lab ring`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Pipes in the ring, with commas
    #[arg(long, value_name = "LIST", default_value = "1000")]
    pub total: String,
    /// Bytes in flight: numbers, or shares of the pipes if written with a point (0.1)
    #[arg(long, value_name = "LIST", default_value = "1")]
    pub in_flight: String,
    /// In addition to the first of both, other numbers of pipes (2 to 4900) and other shares (0.01
    /// to 1.0)
    #[arg(long, conflicts_with_all = ["total", "in_flight"])]
    pub sweep: bool,
    /// Laps of each byte in each round [default: as many as fit into the time]
    #[arg(long, value_name = "M")]
    pub laps: Option<u64>,
    /// Our runtime on this back-end only: select, poll, epoll, adaptive or uring
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// Runtimes to measure, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// One subject at one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The runtime.
    pub subject: String,
    /// Pipes.
    pub total: usize,
    /// Bytes that went round at a time.
    pub in_flight: usize,
    /// Laps of each byte in a round.
    pub laps: u64,
    /// Time for one byte to pass one pipe, in the quickest round.
    pub ns_per_hop_min: f64,
    /// The same in the median round.
    pub ns_per_hop_median: f64,
    /// The slowest round less the quickest.
    pub ns_per_hop_spread: f64,
    /// Processor time of all threads, in the cheapest round.
    pub cpu_ns_per_hop_min: f64,
    /// All system calls. None where only reads and writes can be counted.
    pub syscalls_per_hop: Option<f64>,
    /// Reads, including those that found nothing, as the kernel counts them; without reads that a
    /// ring (`io_uring`) carries.
    pub reads_per_hop: Option<f64>,
    /// Writes, likewise.
    pub writes_per_hop: Option<f64>,
    /// The number of bytes that a read returned: more than one where bytes have met.
    pub bytes_per_read: f64,
    /// Hops in a second, from the median.
    pub hops_per_second: f64,
    /// Rounds measured.
    pub rounds: usize,
    /// The cost relative to tokio's `current_thread` runtime.
    #[serde(flatten)]
    pub to_tokio: ToTokio,
    /// The median relative to that of the raw epoll loop.
    pub raw_epoll_ratio: Option<f64>,
    /// The quickest round relative to the raw epoll loop's quickest.
    pub raw_epoll_ratio_min: Option<f64>,
    /// The ratio of the lowest deciles to that of the raw epoll loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_epoll_decile: Option<Estimate>,
    /// The time of a hop in each round, while the point is measured.
    #[serde(skip)]
    pub ns_per_hop: Vec<f64>,
}

impl Row {
    /// Returns the headline of the time relative to the raw epoll loop's: from lowest deciles, or
    /// from medians in older records.
    pub(crate) fn to_raw_epoll(&self) -> Option<f64> {
        self.raw_epoll_decile.map(|ratio| ratio.value).or(self.raw_epoll_ratio)
    }
}
