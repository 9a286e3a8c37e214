//! Three experiments with a loop that blocks: how long it takes to wake up.
//!
//! The other experiments with pollers measure a loop that always finds something. These measure the
//! loop that waits. Descriptors are busy for a while, so that an adaptive subject has placed them;
//! then nothing happens for at least five milliseconds, and one byte arrives on any of them. The
//! measured time is from right before the write until the subject has read the byte; `waking.rs`
//! explains how, and ensures that the loop sleeps before the byte is written. Wake-ups of a loop
//! that was still awake are counted and left out. A blocked `poll` joins a wait queue for each
//! descriptor and leaves all of them before it returns, so it is slow here.
//!
//! `superpoll-lab wake` has one number of descriptors. `superpoll-lab atr --latency` has several
//! totals (`--total`, with `--active` of them busy, one unless asked for more), and `superpoll-lab
//! mix --latency` has its busy and idle ones (`--size`). All subjects are woken on the same
//! descriptors, drawn from the seed, in blocks that take turns; each gets the same number of
//! wake-ups.

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::plot::{self, Plot};
use crate::table::{self, Part, Table};
use crate::waking::Times;
use crate::{atr, mix};

mod trial;

crate::options::options! {
    /// Options of `superpoll-lab wake`.
    pub(crate) struct Options;

    /// Descriptors
    total: usize = N 1000,
    /// How many descriptors were busy before
    hot: usize = N 200,
    /// Wake-ups of each subject [default: 300, or 80 if quick]
    samples: Option<usize> = N,
    /// Kinds of descriptors: pipe, unix, tcp or all
    kind: String = LIST "pipe",
    /// Pollers to measure, with commas, or all but the floor
    subjects: Option<String> = LIST,
}

/// One subject with one number of descriptors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// The load before the quiet: the placement of the busy descriptors, or `mixed`; empty in an
    /// older record of `wake`, as the optional figures are absent there.
    #[serde(default)]
    pub load: String,
    /// Descriptors watched.
    pub total: usize,
    /// How many descriptors were busy before.
    pub hot: usize,
    /// The poller.
    pub subject: String,
    /// The figures of all wake-ups.
    #[serde(flatten)]
    pub times: Times,
    /// Wake-ups left out because the loop was not seen asleep before the write.
    pub awake: Option<usize>,
    /// The 99th percentile; the slowest wake-up if there are fewer than fifty.
    pub wake_ns_p99: Option<f64>,
    /// The slowest.
    pub wake_ns_max: Option<f64>,
    /// The 99th percentile against that of the better epoll, as the median is in `times`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ratio: Option<f64>,
}

/// Returns the groups of rows that a record compares with each other: the rows of one kind, and of
/// one load unless each size has its own load.
pub(crate) fn sweeps(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    table::groups(rows, |row| format!("{} {}", row.kind, row.load))
}

/// See [`Experiment::MEASURED`].
const MEASURED: &str = "time from a write until a blocked loop has read it";

// The experiments, for the command line and the report.

/// Blocked loops, over the descriptors of [`Atr`](crate::atr::Atr).
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
    const MEASURED: &'static str = MEASURED;
    const RUN: Run<Self> = trial::of_atr;

    fn parts(rows: &[Row]) -> Vec<Part> {
        parts(Self::NAME, rows)
    }

    fn figure(row: &Row) -> Option<Figure> {
        wake_up(row)
    }
}

/// Blocked loops, over the sizes of [`Mix`](crate::mix::Mix).
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
    const MEASURED: &'static str = MEASURED;
    const RUN: Run<Self> = trial::of_mix;

    fn parts(rows: &[Row]) -> Vec<Part> {
        parts(Self::NAME, rows)
    }

    fn figure(row: &Row) -> Option<Figure> {
        wake_up(row)
    }
}

/// Loops that have gone quiet.
#[derive(Debug)]
pub(crate) struct Wake;

impl Experiment for Wake {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "wake";
    const TITLE: &'static str = "a loop that has gone quiet";
    const METHOD: &'static str = "Some descriptors were busy; then nothing happens for five milliseconds, and a child process \
             on another processor writes one byte to any of them. Measured is the time from right before \
             the write until the byte is read.";
    const QUICK: &'static str = "wake --quick";
    const FULL: &'static str = "wake --kind all";
    const MEASURED: &'static str = MEASURED;
    const RUN: Run<Self> = trial::of_wake;

    fn parts(rows: &[Row]) -> Vec<Part> {
        parts(Self::NAME, rows)
    }

    /// Returns the targets that `superpoll-lab wake` measures.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| row.kind.clone());
        for (subject, bound) in [("adaptive", 1.10), ("uring", 1.0), ("adaptive-uring", 1.0)] {
            let name = format!("blocked loop: p50 wake-up of {subject} / epoll");
            targets.add(name, bound, |row| row.subject == subject, |row| row.times.p50_ratio);
        }
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        wake_up(row)
    }
}

/// Returns a plot for each kind and load, and all figures.
fn parts(experiment: &str, rows: &[Row]) -> Vec<Part> {
    let plots = sweeps(rows).into_iter().map(|(name, rows)| {
        let stem = name.replace(", ", "-").replace(' ', "-");
        Part::plot(format!("{experiment}-{stem}.svg"), over_total(&name, &rows))
    });
    plots.chain([Part::Table(wake_ups(rows))]).collect()
}

/// Returns the median of a subject with a number of descriptors.
fn wake_up(row: &Row) -> Option<Figure> {
    let at = format!("{} {} busy of {}, {}", row.kind, row.hot, row.total, row.subject);
    Some(row.times.figure(at))
}

/// Returns the table of all wake-ups: a line for each subject and number of descriptors.
pub(crate) fn wake_ups(rows: &[Row]) -> Table {
    fn optional(text: Option<String>) -> String {
        text.unwrap_or_else(|| "-".to_owned())
    }
    table::of(
        rows,
        3,
        &[
            ("kind", |row| row.kind.clone()),
            ("load", |row| row.load.clone()),
            ("subject", |row| row.subject.clone()),
            ("descriptors", |row| row.total.to_string()),
            ("busy", |row| row.hot.to_string()),
            ("p50", |row| table::time(row.times.wake_ns_p50)),
            ("p90", |row| table::time(row.times.wake_ns_p90)),
            ("p99", |row| optional(row.wake_ns_p99.map(table::time))),
            ("slowest", |row| optional(row.wake_ns_max.map(table::time))),
            ("least", |row| table::time(row.times.wake_ns_min)),
            ("p50 / epoll", |row| table::ratio(row.times.p50_ratio)),
            ("p99 / epoll", |row| table::ratio(row.p99_ratio)),
            ("wake-ups", |row| row.times.samples.to_string()),
            ("awake", |row| optional(row.awake.map(|awake| awake.to_string()))),
        ],
    )
}

/// Plots two curves for each subject, the median and, thin, the 99th percentile; `None` if there is
/// one size only.
pub(crate) fn over_total(name: &str, rows: &[&Row]) -> Option<Plot> {
    let at = |of: fn(&Row) -> Option<f64>| {
        plot::curves(rows, |row| Some((row.subject.as_str(), (row.total as f64, of(row)?))))
    };
    let (medians, mut tails) = (at(|row| Some(row.times.wake_ns_p50)), at(|row| row.wake_ns_p99));
    for tail in &mut tails {
        tail.thin = true;
    }
    let named = |percentile: &str, mut curves: Vec<plot::Curve>| {
        for curve in &mut curves {
            curve.name = format!("{}, {percentile}", curve.name);
        }
        curves
    };
    let curves = [named("p50", medians), named("p99", tails)].concat();
    Plot::of(
        format!("from a write until a blocked loop has read it ({name})"),
        "descriptors",
        "ns",
        curves,
    )
    .drawn_over_powers_of_ten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subject_has_a_line_and_unknown_values_a_dash() {
        let row = Row {
            kind: "pipe".to_owned(),
            load: "mixed".to_owned(),
            subject: "poll".to_owned(),
            total: 1000,
            hot: 50,
            times: Times {
                samples: 77,
                wake_ns_p50: 25_000.0,
                p50_ratio: Some(3.0),
                ..Times::default()
            },
            awake: Some(3),
            wake_ns_p99: Some(950.0),
            ..Row::default()
        };
        let text = wake_ups(&[row]).to_string();
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        let start = ["pipe", "mixed", "poll", "1000", "50", "25.0", "us"];
        assert_eq!(last[..7], start, "{text}");
        assert_eq!(last[last.len() - 4..], ["3.00", "-", "77", "3"], "{text}");
    }

    #[test]
    fn each_subject_has_its_median_and_its_tail_in_one_colour() {
        let row = |subject: &str, total, p50, p99| Row {
            subject: subject.to_owned(),
            total,
            times: Times { wake_ns_p50: p50, ..Times::default() },
            wake_ns_p99: Some(p99),
            ..Row::default()
        };
        let rows = [
            row("poll", 1000, 50.0, 90.0),
            row("poll", 10, 5.0, 9.0),
            row("epoll-lt", 10, 4.0, 8.0),
            row("epoll-lt", 1000, 4.0, 8.0),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let plot = over_total("pipe mixed", &rows).unwrap();
        let names: Vec<&str> = plot.curves.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names, ["poll, p50", "epoll-lt, p50", "poll, p99", "epoll-lt, p99"]);
        assert_eq!(plot.curves[2].points, [(1.0, 9.0), (3.0, 90.0)]);
        assert_eq!(plot.curves[2].colour, plot.curves[0].colour);
        assert!(plot.curves[2].thin && !plot.curves[0].thin);
        assert!(over_total("pipe mixed", &rows[1..3]).is_none());
    }

    #[test]
    fn a_figure_that_an_older_record_does_not_have_is_no_zero() {
        let mut row = serde_json::to_value(Row::default()).unwrap();
        row.as_object_mut().unwrap().remove("wake_ns_p99");
        let older: Row = serde_json::from_value(row.clone()).unwrap();
        assert_eq!(older.wake_ns_p99, None);
        row.as_object_mut().unwrap().remove("hot");
        let error = serde_json::from_value::<Row>(row).unwrap_err().to_string();
        assert!(error.contains("hot"), "{error}");
    }

    #[test]
    fn blocked_loops_are_judged_by_back_end() {
        let row = |subject: &str, p50_ratio| Row {
            kind: "pipe".to_owned(),
            subject: subject.to_owned(),
            times: Times { p50_ratio: Some(p50_ratio), ..Times::default() },
            ..Row::default()
        };
        let rows = [row("adaptive", 1.05), row("uring", 1.05), row("poll", 9.0)];
        let kept: Vec<bool> = Wake::targets(&rows).iter().map(Target::is_kept).collect();
        assert_eq!(kept, [true, false]);
    }
}
