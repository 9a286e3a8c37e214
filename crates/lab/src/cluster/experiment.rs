//! The experiment `cluster`, for the command line and the report.

use crate::cluster::{Fault, Options, Row, table, trial};
use crate::experiment::{Experiment, Figure, Run};
use crate::part::Part;
use crate::target::{Target, Targets};

/// Several servers with the messages of one Redis.
#[derive(Debug)]
pub(crate) struct Cluster;

impl Experiment for Cluster {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "cluster";
    const TITLE: &'static str = "channels of several servers through faults";
    const METHOD: &'static str = "Three servers have a channel whose messages are in Redis. Subscribers by WebSocket, \
             server-sent events and long-poll are spread over them; each server has a publisher, which \
             sends each message until it is confirmed. A part fails meanwhile. Every subscriber \
             checks each message: “lost” counts messages that a subscriber lacks without having been \
             told, “missed” counts subscribers that were told. Of each figure there is that of the \
             middle round, and the spread of all.";
    const QUICK: &'static str = "cluster --quick";
    const FULL: &'static str = "cluster";
    const IS_IN_ALL: bool = false;
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let tables = table::parts(rows).into_iter();
        tables
            .flat_map(|(heading, table)| [Part::Heading(heading.to_owned()), Part::Table(table)])
            .collect()
    }

    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row: &Row| row.subject.clone());
        let is = |part: &'static str, figure: &'static str| {
            move |row: &Row| row.part == part && row.figure == figure
        };
        // The promise holds for every round.
        for name in ["lost", "doubled", "reordered"] {
            let about = format!("cluster: messages {name}");
            targets.add(about, 0.0, is("fault", name), |row| Some(row.most));
        }
        let destroys = |row: &Row| {
            Fault::ALL.iter().any(|fault| fault.destroys() && fault.name() == row.subject)
        };
        let told = |row: &Row| is("fault", "missed")(row) && !destroys(row);
        let name = "cluster: subscribers that were told of missed messages without a reason";
        targets.add(name, 0.0, told, |row| Some(row.most));
        let name = "cluster: ms from a publication to the last subscriber of another server, p99";
        targets.add(name, 60.0, is("delay", "p99"), |row| Some(row.median / 1e6));
        let name = "cluster: us of processor time that Redis adds to a publication";
        let difference = is("processor", "difference");
        targets.add(name, 60.0, difference, |row| Some(row.median / 1e3));
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(Figure {
            at: format!("{} of {}, {}", row.part, row.subscribers, row.subject),
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
    fn the_worst_round_is_judged_and_missed_only_where_messages_are_kept() {
        let row = |part: &str, subject: &str, figure: &str, median: f64, most: f64| Row {
            part: part.to_owned(),
            subject: subject.to_owned(),
            figure: figure.to_owned(),
            median,
            most,
            ..Row::default()
        };
        let targets = Cluster::targets(&[
            row("fault", "redis", "lost", 0.0, 2.0),
            row("fault", "flush", "lost", 0.0, 0.0),
            row("fault", "flush", "missed", 90.0, 90.0),
            row("fault", "cut", "missed", 0.0, 0.0),
            row("delay", "last", "p99", 59e6, 70e6),
            row("processor", "a publication", "difference", 61e3, 61e3),
        ]);
        let kept: Vec<(f64, &str, bool)> =
            targets.iter().map(|t| (t.measured, t.at.as_str(), t.is_kept())).collect();
        assert_eq!(
            kept,
            [
                (2.0, "redis", false),
                (0.0, "cut", true),
                (59.0, "last", true),
                (61.0, "a publication", false),
            ]
        );
    }
}
