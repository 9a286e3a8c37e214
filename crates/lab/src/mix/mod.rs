//! `superpoll-lab mix`: loads on which neither `poll` nor `epoll` is right for all descriptors.
//!
//! A few busy descriptors among many idle ones, busy sets that move, and descriptors that are
//! active at random: where adapting pays, and its cost where it cannot pay. The rounds of such
//! loads differ, and a move costs in the round it happens in, so the figure of a block is the mean
//! over all its rounds, over whole periods of the load; minimum, median and spread are over blocks.

use serde::{Deserialize, Serialize};

use crate::grouping;
use crate::options::Output;
use crate::record::Figures;

pub(crate) mod experiment;
pub(crate) mod plot;
pub(crate) mod table;
pub(crate) mod trial;

/// Options of `superpoll-lab mix`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Busy/idle descriptors, with commas [default: 50/950,200/9600,1000/8800, or 50/950 if quick]
    #[arg(long, value_name = "LIST")]
    pub size: Option<String>,
    /// Loads: mixed, shift, random, worst or all; shift and random use the first size
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub load: String,
    /// The busy set moves after this many rounds
    #[arg(long, value_name = "LIST", default_value = "10,15,20,30,50,100,300,1000")]
    pub shift: String,
    /// Each descriptor is active with this probability
    #[arg(long, value_name = "LIST", default_value = "0.1,0.25,0.5,0.75")]
    pub chance: String,
    /// Kinds of descriptors: pipe, unix, tcp or all
    #[arg(long, value_name = "LIST", default_value = "pipe")]
    pub kind: String,
    /// Pollers to measure, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Measures how long a blocked loop takes to wake up, over the sizes of mixed loads
    #[arg(long)]
    pub latency: bool,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// One subject under one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// Busy descriptors; zero where all are alike.
    pub hot: usize,
    /// The remaining descriptors.
    pub cold: usize,
    /// After how many rounds the busy set moves; zero: never.
    pub shift_every: usize,
    /// The poller.
    pub subject: String,
    /// The load in words.
    pub load: String,
    /// Its family: mixed, shift, random or worst.
    pub family: String,
    /// How many were active in a round, on average.
    pub mean_active: f64,
    /// The measured figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Returns the loads of a record: all rows of one kind and load.
pub(crate) fn loads(rows: &[Row]) -> Vec<((&str, &str), Vec<&Row>)> {
    grouping::groups(rows, |row| (row.kind.as_str(), row.load.as_str()))
}
