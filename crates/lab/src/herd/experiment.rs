//! The experiments `herd` and `herd-dups`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::herd::{Options, Row, plot, table, trial};
use crate::part::Part;
use crate::target::{self, Target, Targets};

/// Many waiters for one connection.
#[derive(Debug)]
pub(crate) struct Herd;

impl Experiment for Herd {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "herd";
    const TITLE: &'static str = "many wait for one connection";
    const METHOD: &'static str = "Processes wait for one listening socket (or engines of our runtime, in one process), and a \
             client connects without blocking: the time of that call holds the kernel's work for all who \
             wait. “Woken” counts how often they went back to sleep. Jain's index is 1 if all got the \
             same number of connections; “best” is what it could be with so few.";
    const QUICK: &'static str = "herd --quick --processes 1,64 --seconds 20 --subjects select,poll,epoll,epoll-alone,epoll-exclusive,accept,reuseport,superpoll-rt-exclusive";
    const FULL: &'static str = "herd --processes 1,1024,16384 --seconds 210";
    const MEASURED: &'static str =
        "time of a connect() while others wait, and how many of them it wakes";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![
            Part::plot("herd.svg", plot::over_processes(rows, "listener")),
            Part::Table(table::herds(rows)),
        ]
    }

    /// The targets that `superpoll-lab herd` measures, for the methods that promise to spare the
    /// herd.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let sparing = [
            "superpoll-rt-exclusive",
            "superpoll-rt-reuseport",
            "superpoll-uring-exclusive",
            "superpoll-rt-uring-exclusive",
            "engines-exclusive",
            "engines-reuseport",
            "engines-hand-off",
            "engines-uring-exclusive",
        ];
        let mut targets = Targets::new(rows, |row| format!("{} of {}", row.subject, row.processes));
        let ours = |row: &Row| sparing.contains(&row.subject.as_str());
        let name = "herd: connect() / that with the fewest waiters";
        targets.add(name, 1.5, ours, |row| row.median_ratio);
        // A single waiter is no herd, and by another method than the control's it may cost more or
        // less.
        let name = "herd: connect() / that with one waiter among as many processes";
        targets.add(name, 1.5, |row| ours(row) && row.processes > 1, |row| row.alone_ratio);
        // A hand-over wakes two: the engine that accepts and the engine that serves.
        let woken = |row: &Row| ours(row) && row.subject != "engines-hand-off";
        let name = "herd: waiters woken by a connection";
        targets.add(name, 1.05, woken, |row| Some(row.woken_per_connect));
        // With few connections per waiter the fairness index says nothing.
        let many = |row: &Row| ours(row) && row.connects >= 10 * row.processes;
        targets.add("herd: 1 - Jain's index", 0.1, many, |row| Some(1.0 - row.jain));
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(connect(row))
    }
}

/// Many waiters for one connection, each with many duplicates of the listener.
#[derive(Debug)]
pub(crate) struct HerdDups;

impl Experiment for HerdDups {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "herd-dups";
    const TITLE: &'static str = "many wait, and each for many duplicates of the listener";
    const METHOD: &'static str = "As herd, but each process waits for many duplicates of the listening socket as well. The control waits for \
             as many duplicates of an empty pipe, which have nothing to do with the connection.";
    const QUICK: &'static str = "herd --quick --dups 200 --processes 64 --seconds 6 --subjects select,epoll,epoll-exclusive";
    const FULL: &'static str = "herd --dups 1019 --processes 256,1024 --seconds 270";
    const MEASURED: &'static str =
        "time of a connect() while others wait, and how many of them it wakes";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![
            Part::plot("herd-dups.svg", plot::over_processes(rows, "listener")),
            Part::plot("herd-dups-control.svg", plot::over_processes(rows, "pipe")),
            Part::Table(table::herds(rows)),
            Part::Heading("Targets".to_owned()),
            Part::Table(target::table(&Herd::targets(rows))),
        ]
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(connect(row))
    }
}

/// The time of a connection to a herd.
fn connect(row: &Row) -> Figure {
    Figure {
        at: format!(
            "{} wait, {} duplicates of a {}, {}",
            row.processes, row.dups, row.dups_of, row.subject
        ),
        name: "connect(), ns".to_owned(),
        value: row.connect_ns_median,
        low: row.connect_ns_min,
        high: row.connect_ns_p99,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn herds_are_judged_where_they_are_to_be_spared() {
        let row = |subject: &str, connects, woken_per_connect, jain| Row {
            subject: subject.to_owned(),
            processes: 4,
            connects,
            median_ratio: Some(1.6),
            alone_ratio: Some(1.2),
            woken_per_connect,
            jain,
            ..Row::default()
        };
        let targets = Herd::targets(&[
            row("epoll", 100, 4.0, 0.3),
            row("superpoll-rt-exclusive", 100, 1.0, 0.95),
            row("superpoll-rt-reuseport", 5, 1.0, 0.4),
            row("engines-hand-off", 100, 1.9, 0.85),
        ]);
        let kept: Vec<bool> = targets.iter().map(Target::is_kept).collect();
        assert_eq!(kept, [false, true, true, false]);
        assert_eq!(targets[3].at, "engines-hand-off of 4");
    }
}
