//! `superpoll-lab wake`: how long a loop that has gone quiet takes to wake up.
//!
//! Some descriptors are busy for a while; then nothing happens for at least five milliseconds, and
//! one byte arrives on any of them. The measured time is from right before the write until the
//! subject has read the byte; `waking.rs` explains how. A blocked `poll` joins a wait queue per
//! descriptor and leaves all of them before it returns, which is what makes it slow here.
//! `superpoll-lab atr --latency` and `superpoll-lab mix --latency` have the same over the number of
//! descriptors.

use serde::{Deserialize, Serialize};

use crate::options::Output;
use crate::waking::Times;

pub(crate) mod experiment;
pub(crate) mod table;
mod trial;

/// Options of `superpoll-lab wake`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Descriptors
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub total: usize,
    /// How many descriptors were busy before
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub hot: usize,
    /// Wake-ups of each subject [default: 300, or 80 if quick]
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// Kinds of descriptors: pipe, unix, tcp or all
    #[arg(long, value_name = "LIST", default_value = "pipe")]
    pub kind: String,
    /// Pollers to measure, with commas, or all but the floor
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// One subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// Descriptors watched.
    pub total: usize,
    /// How many descriptors were busy before.
    pub hot: usize,
    /// The poller.
    pub subject: String,
    /// The measured figures.
    #[serde(flatten)]
    pub times: Times,
}
