//! `superpoll-lab wake`: how long a loop that has gone quiet takes to wake up.
//!
//! Some descriptors are busy for a while; then nothing happens for at least five milliseconds, and
//! one byte arrives on any of them. The measured time is from right before the write until the
//! subject has read the byte; `waking.rs` explains how. A blocked `poll` joins a wait queue per
//! descriptor and leaves all of them before it returns, which is what makes it slow here.
//! `superpoll-lab atr --latency` and `superpoll-lab mix --latency` have the same over the number of
//! descriptors.

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::table::{self, Part, Table};
use crate::waking::Times;

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

// The experiment `wake`, for the command line and the report.

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
    const MEASURED: &'static str = "time from a write until a blocked loop has read it";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![Part::Table(wake_ups(rows))]
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
        let at = format!("{} {} of {} busy before, {}", row.kind, row.hot, row.total, row.subject);
        Some(row.times.figure(at))
    }
}

// The output of `superpoll-lab wake`: a line for each kind and subject.

/// Returns the table of wake-up times.
pub(crate) fn wake_ups(rows: &[Row]) -> Table {
    table::of(
        rows,
        2,
        &[
            ("kind", |row| row.kind.clone()),
            ("subject", |row| row.subject.clone()),
            ("p50", |row| table::time(row.times.wake_ns_p50)),
            ("p90", |row| table::time(row.times.wake_ns_p90)),
            ("least", |row| table::time(row.times.wake_ns_min)),
            ("p50 / epoll", |row| table::ratio(row.times.p50_ratio)),
            ("wake-ups", |row| row.times.samples.to_string()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waking::Times;

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
