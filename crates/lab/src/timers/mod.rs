//! `superpoll-lab timers`: the cost of a runtime's timers, and how late they are.
//!
//! Most timers of a server never end: they are limits on an event that comes in time. So the first
//! loads set timers and cancel them before their time: many at once, cancelled in the order in
//! which they were made or in another order; and one after the other, each cancelled before the
//! next is set. The last load lets timers end, each with a task that waits for it and reads the
//! clock.
//!
//! `load.rs` is the work, the same code over each runtime's future, and its proof: each timer holds
//! a waker until it is cancelled; a cancelled timer wakes no task; and each ending timer ends once
//! and never early. The runtimes take turns, round by round. The comparison is of processor time,
//! not of time: only the last load waits, and its waiting time is given.

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::plot::{self, Plot};
use crate::statistics::ToTokio;
use crate::table::{self, Part, Table};

mod load;
#[cfg(feature = "rivals-rt")]
mod tokio;
pub(crate) mod trial;

crate::options::options! {
    /// Options of `superpoll-lab timers`.
    pub(crate) struct Options;

    /// Timers set at once, with commas [default: 1000,10000,100000,1000000, or 10000,1000000 if
    /// quick]
    timers: Option<String> = LIST,
    /// Timers that end, within half a second
    ending: usize = N 10_000,
    /// Runtimes to measure, with commas, or all
    subjects: Option<String> = LIST,
}

/// One runtime under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The runtime.
    pub subject: String,
    /// The load: `in order`, `shuffled`, `one by one` (all cancelled) or `ending`.
    pub load: String,
    /// The number of timers at a time; for `one by one`, the number that follow each other.
    pub timers: usize,
    /// Processor time to set a timer, in the median round. None if it cannot be measured
    /// separately.
    pub insert_ns_median: Option<f64>,
    /// The same in the cheapest round.
    pub insert_ns_min: Option<f64>,
    /// Processor time to cancel a timer, in the median round.
    pub cancel_ns_median: Option<f64>,
    /// The same in the cheapest round.
    pub cancel_ns_min: Option<f64>,
    /// Processor time for the whole life of a timer, in the median round.
    pub timer_ns_median: f64,
    /// The same in the cheapest round.
    pub timer_ns_min: f64,
    /// The most expensive round less the cheapest.
    pub timer_ns_spread: f64,
    /// The median lateness.
    pub late_ns_p50: Option<f64>,
    /// The 99th percentile of the lateness.
    pub late_ns_p99: Option<f64>,
    /// The largest lateness.
    pub late_ns_max: Option<f64>,
    /// Rounds measured.
    pub rounds: usize,
    /// The cost relative to tokio's `current_thread` runtime.
    #[serde(flatten)]
    pub to_tokio: ToTokio,
    /// The time of a timer in each round, while the point is measured.
    #[serde(skip)]
    pub timer_ns: Vec<f64>,
}

// The experiment `timers`, for the command line and the report.

/// Timers.
#[derive(Debug)]
pub(crate) struct Timers;

impl Experiment for Timers {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "timers";
    const TITLE: &'static str = "set, cancelled, waited for";
    const METHOD: &'static str = "Nanoseconds of processor time for each timer. All are set and then taken back, in the order \
             in which they were made or in another, or each before the next is set. That each was there \
             and is gone is checked by the wakers that the runtime holds.";
    const QUICK: &'static str = "timers --quick --timers 10000,100000 --seconds 6";
    const FULL: &'static str = "timers --seconds 60";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![
            Part::plot("timers.svg", over_timers(rows)),
            Part::text("Set and taken back, ns of processor time for each:"),
            Part::Table(taken(rows)),
            Part::text("Set and waited for, by a task each, within half a second; none is early:"),
            Part::Table(ending(rows)),
        ]
    }

    /// The targets that `superpoll-lab timers` measures, with a million of them.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| row.load.clone());
        let name = "a million timers inserted and cancelled: CPU / tokio";
        let ours = |row: &Row| row.subject == "superpoll-rt" && row.timers == 1_000_000;
        targets.add(
            name,
            1.0,
            |row| ours(row) && row.insert_ns_median.is_some(),
            |row| row.to_tokio.headline(),
        );
        let name = "timers that end: CPU / tokio";
        let ends = |row: &Row| row.subject == "superpoll-rt" && row.late_ns_p50.is_some();
        targets.add(name, 1.1, ends, |row| row.to_tokio.headline());
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(Figure::of_cost(
            format!("{} {}, {}", row.timers, row.load, row.subject),
            "processor time by timer, ns",
            row.timer_ns_min,
            row.timer_ns_median,
        ))
    }
}

// The output of `superpoll-lab timers`: the timers that are cancelled, and those that end.

fn is_ending(row: &&Row) -> bool {
    row.late_ns_p50.is_some()
}

/// The timers that are cancelled, by load and number.
pub(crate) fn taken(rows: &[Row]) -> Table {
    table::of(
        rows.iter().filter(|row| !is_ending(row)),
        3,
        &[
            ("load", |row| row.load.clone()),
            ("timers", |row| row.timers.to_string()),
            ("runtime", |row| row.subject.clone()),
            ("insert", |row| table::number(row.insert_ns_median, 0)),
            ("least", |row| table::number(row.insert_ns_min, 0)),
            ("cancel", |row| table::number(row.cancel_ns_median, 0)),
            ("least", |row| table::number(row.cancel_ns_min, 0)),
            ("both", |row| format!("{:.0}", row.timer_ns_median)),
            ("least", |row| format!("{:.0}", row.timer_ns_min)),
            ("spread", |row| format!("{:.0}", row.timer_ns_spread)),
            ("/ tokio", |row| table::ratio(row.to_tokio.headline())),
            ("90 %", |row| row.to_tokio.tokio_decile.map_or_else(String::new, table::span)),
            ("median", |row| table::ratio(row.to_tokio.tokio_ratio)),
        ],
    )
}

/// The timers that end.
pub(crate) fn ending(rows: &[Row]) -> Table {
    table::of(
        rows.iter().filter(is_ending),
        1,
        &[
            ("runtime", |row| row.subject.clone()),
            ("timers", |row| row.timers.to_string()),
            ("cpu ns", |row| format!("{:.0}", row.timer_ns_median)),
            ("least", |row| format!("{:.0}", row.timer_ns_min)),
            ("/ tokio", |row| table::ratio(row.to_tokio.headline())),
            ("median", |row| table::ratio(row.to_tokio.tokio_ratio)),
            ("late, p50", |row| row.late_ns_p50.map_or_else(|| "-".to_owned(), table::time)),
            ("p99", |row| row.late_ns_p99.map_or_else(|| "-".to_owned(), table::time)),
            ("most", |row| row.late_ns_max.map_or_else(|| "-".to_owned(), table::time)),
        ],
    )
}

// The plot of `superpoll-lab timers`: the cost of a timer over the number of timers.

/// A curve for each runtime and order in which all are cancelled; none if there is only one number.
pub(crate) fn over_timers(rows: &[Row]) -> Option<Plot> {
    let named: Vec<(String, &Row)> = rows
        .iter()
        .filter(|row| row.insert_ns_median.is_some())
        .map(|row| (format!("{}, {}", row.subject, row.load), row))
        .collect();
    let labels = ["timers at a time", "cpu ns for each"];
    plot::over_powers_of_ten("timers set and taken back", labels, &named, |(name, row)| {
        Some((name.as_str(), (row.timers as f64, row.timer_ns_median)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::ToTokio;

    #[test]
    fn timers_are_judged_by_the_million() {
        let row = |load: &str, timers, tokio_ratio, insert_ns_median| Row {
            subject: "superpoll-rt".to_owned(),
            load: load.to_owned(),
            timers,
            to_tokio: ToTokio { tokio_ratio, ..ToTokio::default() },
            insert_ns_median,
            ..Row::default()
        };
        let rows = [
            row("in order", 1_000_000, Some(0.7), Some(1.0)),
            row("shuffled", 1_000_000, Some(0.9), Some(1.0)),
            row("shuffled", 1000, Some(2.0), Some(1.0)),
            row("one by one", 1_000_000, Some(3.0), None),
        ];
        let targets = Timers::targets(&rows);
        assert_eq!((targets.len(), targets[0].measured), (1, 0.9));
        assert!(targets[0].is_kept() && targets[0].at == "shuffled");
        assert!(Timers::targets(&rows[2..]).is_empty());
    }

    #[test]
    fn expired_timers_have_their_own_table() {
        let row = |load: &str, late_ns_p50| Row {
            subject: "superpoll-rt".to_owned(),
            load: load.to_owned(),
            timers: 77,
            timer_ns_median: 123.0,
            late_ns_p50,
            ..Row::default()
        };
        let rows = [row("in order", None), row("ending", Some(56_700.0))];
        assert_eq!((taken(&rows).rows().len(), ending(&rows).rows().len()), (1, 1));
        let text = format!("{}{}", taken(&rows), ending(&rows));
        assert!(text.contains("in order") && text.contains("56.7 us"), "{text}");
    }

    #[test]
    fn several_numbers_of_timers_are_drawn() {
        let row = |timers, timer_ns_median| Row {
            subject: "tokio".to_owned(),
            load: "shuffled".to_owned(),
            timers,
            timer_ns_median,
            insert_ns_median: Some(1.0),
            ..Row::default()
        };
        let rows = [row(10, 90.0), row(1000, 120.0)];
        let plot = over_timers(&rows).unwrap();
        assert_eq!(plot.curves[0].points, [(1.0, 90.0), (3.0, 120.0)]);
        assert!(plot.svg().unwrap().contains("tokio, shuffled"));
        assert!(over_timers(&rows[..1]).is_none());
    }
}
