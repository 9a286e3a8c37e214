//! `superpoll-lab atr`: the cost of watching over the ratio of active to all descriptors.
//!
//! A number of descriptors is watched, and from one to all of them are active in every round. The
//! more descriptors are active, the better `poll` looks, because it pays for all of them anyway;
//! `epoll` pays for the active ones. The experiment plots the time of `poll` divided by that of
//! `epoll` over the ratio and finds where the quotient falls below one. It does so twice: for the
//! loop's own time, as this experiment was first done, and with the writers' cost included.

use serde::{Deserialize, Serialize};

use crate::options::Output;
use crate::record::Figures;
use crate::{grouping, statistics};

pub(crate) mod experiment;
pub(crate) mod plot;
pub(crate) mod table;
mod trial;

/// Options of `superpoll-lab atr`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Descriptors: numbers with commas, or "random" for several totals drawn from the seed
    /// [default: 1000; with --latency 10,100,1000,9900, or 10,1000 if quick]
    #[arg(long, value_name = "N")]
    pub total: Option<String>,
    /// How many descriptors are active: numbers with commas (default: from one to all)
    #[arg(long, value_name = "LIST")]
    pub active: Option<String>,
    /// Where the active descriptors lie among all: end, spread, front or all
    #[arg(long, value_name = "LIST", default_value = "end")]
    pub placement: String,
    /// Kinds of descriptors: pipe, unix, tcp or all
    #[arg(long, value_name = "LIST", default_value = "pipe")]
    pub kind: String,
    /// Pollers to measure, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Leaves out the short mixed load at the end
    #[arg(long)]
    pub no_mix: bool,
    /// Measures how long a blocked loop takes to wake up, over the totals; --active of them are
    /// busy before, one by default
    #[arg(long)]
    pub latency: bool,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// One subject at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// The placement of the active descriptors.
    pub placement: String,
    /// Descriptors watched.
    pub total: usize,
    /// How many descriptors were active in each round.
    pub active: usize,
    /// The poller.
    pub subject: String,
    /// The measured figures.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Row {
    /// Returns the ratio of active to all descriptors.
    pub(crate) fn atr(&self) -> f64 {
        self.active as f64 / self.total.max(1) as f64
    }
}

/// Returns the points of a curve: for each ratio, a value computed from the figures of two
/// subjects.
pub(crate) fn curve(
    rows: &[&Row],
    above: &str,
    below: &str,
    of: impl Fn(&Figures) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let value = |row: &&&Row| of(&row.figures);
    rows.iter()
        .filter(|row| row.subject == above)
        .filter_map(|row| {
            let other = rows.iter().find(|o| o.subject == below && o.active == row.active)?;
            Some((row.atr(), value(&row)? / value(&other)?))
        })
        .collect()
}

/// Returns the ratio at which `above` stops being slower than `below`.
pub(crate) fn break_even(
    rows: &[&Row],
    above: &str,
    below: &str,
    of: impl Fn(&Figures) -> Option<f64>,
) -> Option<f64> {
    let mut curve = curve(rows, above, below, of);
    curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    statistics::break_even(&curve)
}

/// Returns the sweeps in a record: all rows of one kind, total and placement.
pub(crate) fn sweeps(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    grouping::groups(rows, |row| format!("{} {} {}", row.kind, row.total, row.placement))
}
