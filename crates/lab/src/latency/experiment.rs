//! The experiments `atr-latency` and `mix-latency`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::latency::{Row, plot, sweeps, table, trial};
use crate::part::Part;
use crate::{atr, mix};

/// Blocked loops, over the descriptors of [`Atr`](crate::atr::experiment::Atr).
#[derive(Debug)]
pub(crate) struct AtrLatency;

impl Experiment for AtrLatency {
    type Options = atr::Options;
    type Row = Row;
    const NAME: &'static str = "atr-latency";
    const TITLE: &'static str = "a blocked loop, by how many it watches";
    const METHOD: &'static str = "Some descriptors are busy for a while, one of them or as many as were asked for. Then \
             nothing happens for five milliseconds, the loop sleeps, and a child process on another \
             processor writes one byte to any descriptor. Measured is the time from right before the \
             write until the byte is read. “Awake” counts wake-ups that are left out because the loop was \
             not seen asleep before the write.";
    const QUICK: &'static str = "atr --latency --quick --seconds 10";
    const FULL: &'static str = "atr --latency --seconds 120";
    const MEASURED: &'static str = "time from a write until a blocked loop has read it";
    const RUN: Run<Self> = trial::of_atr;

    fn parts(rows: &[Row]) -> Vec<Part> {
        parts(Self::NAME, rows)
    }

    fn figure(row: &Row) -> Option<Figure> {
        wake_up(row)
    }
}

/// Blocked loops, over the sizes of [`Mix`](crate::mix::experiment::Mix).
#[derive(Debug)]
pub(crate) struct MixLatency;

impl Experiment for MixLatency {
    type Options = mix::Options;
    type Row = Row;
    const NAME: &'static str = "mix-latency";
    const TITLE: &'static str = "a blocked loop, by busy and idle ones";
    const METHOD: &'static str = "Busy descriptors and a few of the idle ones have bytes for a while, so that they are placed. \
             Then nothing happens for five milliseconds, the loop sleeps, and a child process on another \
             processor writes one byte to any descriptor. Measured is the time from right before the \
             write until the byte is read. “Awake” counts wake-ups that are left out because the loop was \
             not seen asleep before the write.";
    const QUICK: &'static str = "mix --latency --quick --seconds 6";
    const FULL: &'static str = "mix --latency --seconds 90";
    const MEASURED: &'static str = "time from a write until a blocked loop has read it";
    const RUN: Run<Self> = trial::of_mix;

    fn parts(rows: &[Row]) -> Vec<Part> {
        parts(Self::NAME, rows)
    }

    fn figure(row: &Row) -> Option<Figure> {
        wake_up(row)
    }
}

/// Returns a plot for each kind and load, and all figures.
fn parts(experiment: &str, rows: &[Row]) -> Vec<Part> {
    let plots = sweeps(rows).into_iter().map(|(name, rows)| {
        let stem = name.replace(", ", "-").replace(' ', "-");
        Part::plot(format!("{experiment}-{stem}.svg"), plot::over_total(&name, &rows))
    });
    plots.chain([Part::Table(table::wake_ups(rows))]).collect()
}

/// Returns the median of a subject with a number of descriptors.
fn wake_up(row: &Row) -> Option<Figure> {
    let at = format!("{} {} busy of {}, {}", row.kind, row.hot, row.total, row.subject);
    Some(row.times.figure(at))
}
