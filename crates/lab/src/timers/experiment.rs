//! The experiment `timers`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::part::Part;
use crate::target::{Target, Targets};
use crate::timers::{Options, Row, plot, table, trial};

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
            Part::plot("timers.svg", plot::over_timers(rows)),
            Part::text("Set and taken back, ns of processor time for each:"),
            Part::Table(table::taken(rows)),
            Part::text("Set and waited for, by a task each, within half a second; none is early:"),
            Part::Table(table::ending(rows)),
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
}
