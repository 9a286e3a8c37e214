//! The experiment `keep`, for the command line and the report; records call it `sit`.

use crate::experiment::{Experiment, Figure, Run};
use crate::keep::{Options, Row, plot, table, trial};
use crate::part::Part;
use crate::target::{Target, Targets};

/// Keepers.
#[derive(Debug)]
pub(crate) struct Keep;

impl Experiment for Keep {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "sit";
    const TITLE: &'static str = "idle connections and their keeper";
    const METHOD: &'static str = "Idle descriptors are watched by the loop's own epoll set (nested), a second thread or \
             another process. Of each figure there is that of the middle round, and the spread of all. \
             “Main” is the processor time of the main loop's thread, “keeper” that of the keeper's \
             thread or process.";
    const QUICK: &'static str = "keep --quick --repetitions 3 --seconds 24";
    const FULL: &'static str = "keep --seconds 120";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let tables = table::parts(rows)
            .into_iter()
            .flat_map(|(heading, table)| [Part::Heading(heading.to_owned()), Part::Table(table)]);
        [Part::plot("sit.svg", plot::over_batches(rows))].into_iter().chain(tables).collect()
    }

    /// The targets that `superpoll-lab keep` measures.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let at = |row: &Row| match row.part.as_str() {
            "move" => format!("{} at a time", row.descriptors),
            _ => row.subject.clone(),
        };
        let mut targets = Targets::new(rows, at);
        let is = |part: &'static str, figure: &'static str| {
            move |row: &Row| row.part == part && row.figure == figure
        };
        let leaves = is("move", "leave, main");
        let largest = rows.iter().filter(|row| leaves(row)).map(|row| row.descriptors).max();
        let moved =
            |row: &Row| leaves(row) && row.subject == "process" && Some(row.descriptors) == largest;
        let name = "keep: us of the main loop to move one of a batch to the process";
        targets.add(name, 3.0, moved, |row| Some(row.median / 1e3));
        let woken = |row: &Row| is("wake", "p50")(row) && row.subject != "nested";
        let name = "keep: us from a write until the main loop has read it, p50";
        targets.add(name, 50.0, woken, |row| Some(row.median / 1e3));
        // The promise holds for every round.
        for name in ["dropped", "lost", "doubled"] {
            let all = is("restart", name);
            let name = format!("keep: connections or messages {name}");
            targets.add(name, 0.0, all, |row| Some(row.most));
        }
        let name = "keep: ms from a server's start until it answers";
        targets.add(name, 200.0, is("restart", "first answer"), |row| Some(row.median / 1e6));
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(Figure {
            at: format!("{} of {}, {}", row.part, row.descriptors, row.subject),
            name: format!("{}, {}", row.figure, row.unit),
            value: row.median,
            low: row.least,
            high: row.most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_wake_ups_and_restarts_are_judged_at_their_worst() {
        let row = |part: &str, subject: &str, descriptors, figure: &str, median| Row {
            part: part.to_owned(),
            subject: subject.to_owned(),
            descriptors,
            figure: figure.to_owned(),
            median,
            most: median + 1.0,
            ..Row::default()
        };
        let targets = Keep::targets(&[
            row("move", "process", 1, "leave, main", 9000.0),
            row("move", "process", 253, "leave, main", 2500.0),
            row("move", "thread", 253, "leave, main", 5000.0),
            row("wake", "nested", 1000, "p50", 90_000.0),
            row("wake", "thread", 1000, "p50", 40_000.0),
            row("wake", "process", 1000, "p50", 60_000.0),
            row("restart", "upgrade", 9000, "dropped", -1.0),
            row("restart", "crash", 9000, "lost", 0.0),
            row("restart", "crash", 9000, "first answer", 150e6),
            row("restart", "upgrade", 9000, "first answer", 120e6),
        ]);
        let kept: Vec<(f64, &str, bool)> =
            targets.iter().map(|t| (t.measured, t.at.as_str(), t.is_kept())).collect();
        assert_eq!(
            kept,
            [
                (2.5, "253 at a time", true),
                (60.0, "process", false),
                (0.0, "upgrade", true),
                (1.0, "crash", false),
                (150.0, "crash", true),
            ]
        );
    }
}
