//! `superpoll-lab atr --latency` and `superpoll-lab mix --latency`: how long a blocked loop takes
//! to wake up, by the number of watched descriptors.
//!
//! The other views of these experiments measure a loop that always finds something. This one
//! measures the loop that waits. Descriptors are busy for a while as in the experiment's load, so
//! that an adaptive subject has placed them; then all are quiet, the loop blocks, and one byte
//! arrives on any of them. `waking.rs` does that and ensures that the loop sleeps before the byte
//! is written; wake-ups of a loop that was still awake are counted and left out.
//!
//! The sizes are the totals of `atr` (`--total`, with `--active` of them busy, one unless asked for
//! more) and the busy and idle ones of `mix` (`--size`). All subjects are woken on the same
//! descriptors, drawn from the seed, in blocks that take turns; each gets the same number of
//! wake-ups.

use serde::{Deserialize, Serialize};

use crate::grouping;
use crate::waking::Times;

pub(crate) mod experiment;
pub(crate) mod plot;
pub(crate) mod table;
mod trial;

/// One subject with one number of descriptors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// The load before the quiet: the placement of the busy descriptors, or `mixed`.
    pub load: String,
    /// Descriptors watched.
    pub total: usize,
    /// How many descriptors were busy before.
    pub hot: usize,
    /// The poller.
    pub subject: String,
    /// The figures that `superpoll-lab wake` has, too.
    #[serde(flatten)]
    pub times: Times,
    /// Wake-ups left out because the loop was not seen asleep before the write.
    pub awake: usize,
    /// The 99th percentile; the slowest wake-up if there are fewer than fifty.
    pub wake_ns_p99: f64,
    /// The slowest.
    pub wake_ns_max: f64,
    /// The 99th percentile against that of the better epoll, as the median is in `times`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ratio: Option<f64>,
}

/// Returns the groups of rows that a record compares with each other: the rows of one kind, and of
/// one load unless each size has its own load.
pub(crate) fn sweeps(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    grouping::groups(rows, |row| format!("{} {}", row.kind, row.load))
}
