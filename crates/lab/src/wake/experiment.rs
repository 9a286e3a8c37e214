//! The experiment `wake`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::part::Part;
use crate::target::{Target, Targets};
use crate::wake::{Options, Row, table, trial};

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
        vec![Part::Table(table::wake_ups(rows))]
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
