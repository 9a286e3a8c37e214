//! `superpoll-lab keep`: the costs of a keeper, its savings, and the connections that it keeps.
//!
//! There are four parts. Each runs in every topology, in turns, round by round:
//!
//! - `move`: descriptors leave for the keeper and come back, in batches. The result is the
//!   processor time for one descriptor, of the main loop's thread and of the keeper's thread or
//!   process. Without a keeper no descriptor leaves; there the same wait, and the same wake-up,
//!   are the yardstick.
//! - `wake`: the time from a peer's write to a descriptor that is away until the main loop has read
//!   the byte.
//! - `busy`: ten clients send requests through a loop that also has thousands of idle connections.
//!   The result is the time of a request, and the processor time of both sides.
//! - `restart`: a web server with thousands of WebSockets and keep-alive connections is upgraded,
//!   and then killed. The result counts connections that did not live on, and messages that a
//!   subscriber missed or received twice. It also gives the time from the start of the new process
//!   until it has answered a request.
//!
//! Every loop is a process of its own, because a second thread makes each system call on a
//! descriptor more expensive, and the nested topology has no second thread. `topology.rs` makes the
//! pollers, `moves.rs` and `busy.rs` are the loops, `crowd.rs` the clients of the server that
//! `restart.rs` restarts, and `trial.rs` runs everything in turn.

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::options::Output;
use crate::plot::{self, Plot};
use crate::table::{self, Part, Table};

mod busy;
mod moves;
mod restart;
mod trial;

/// Options of `superpoll-lab keep`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The parts to measure: move, wake, busy, restart or all
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub parts: String,
    /// Where idle connections are watched: nested, thread, process or all
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub topologies: String,
    /// Descriptors that leave and come back together, 1 to 253, with commas
    #[arg(long, value_name = "LIST", default_value = "1,16,253")]
    pub batch: String,
    /// Idle connections in addition to the busy ones, and of the restarted server; fewer where the
    /// limit of descriptors is lower [default: 9000, or 1000 if quick]
    #[arg(long, value_name = "N")]
    pub idle: Option<usize>,
    /// Requests to each loop in a round
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub requests: u64,
    /// Wake-ups of each loop in a round
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub samples: usize,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

crate::by_name::named! {
    /// A part of the experiment.
    pub(crate) enum Stage {
        /// Leaving and coming back.
        Move = "move",
        /// A wake-up by a descriptor that is away.
        Wake = "wake",
        /// Requests, next to idle connections.
        Busy = "busy",
        /// A server's upgrade and crash.
        Restart = "restart",
    }
}

/// One figure of one topology, or of one way to restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// `move`, `wake`, `busy` or `restart`.
    pub part: String,
    /// The topology; `upgrade` or `crash` of a restart.
    pub subject: String,
    /// Descriptors that move together, or that are idle.
    pub descriptors: usize,
    /// The name of the figure.
    pub figure: String,
    /// `ns`, or `count`.
    pub unit: String,
    /// The value of the median round.
    pub median: f64,
    /// The value of the lowest round.
    pub least: f64,
    /// The value of the highest round.
    pub most: f64,
    /// Rounds measured.
    pub rounds: usize,
}

// The experiment `keep`, for the command line and the report; records call it `sit`.

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
        let tables = parts(rows)
            .into_iter()
            .flat_map(|(heading, table)| [Part::Heading(heading.to_owned()), Part::Table(table)]);
        [Part::plot("sit.svg", over_batches(rows))].into_iter().chain(tables).collect()
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

// The output of `superpoll-lab keep`: a table for each part, with a line for each topology.

/// The tables, each with its heading.
pub(crate) fn parts(rows: &[Row]) -> Vec<(&'static str, Table)> {
    let headings = [
        (
            Stage::Move,
            "processor time of leaving and coming back, for one descriptor (with the byte's read)",
        ),
        (
            Stage::Wake,
            "time from a write to a descriptor that is away until the main loop has read it",
        ),
        (
            Stage::Busy,
            "requests of ten clients next to idle connections: time of one, processor time of one",
        ),
        (Stage::Restart, "a server with idle connections is upgraded, and killed"),
    ];
    let part = |(part, heading): (Stage, &'static str)| {
        let own: Vec<&Row> = rows.iter().filter(|row| row.part == part.name()).collect();
        (!own.is_empty()).then(|| (heading, pivot(&own)))
    };
    headings.into_iter().filter_map(part).collect()
}

/// Builds a line for each subject and number of descriptors, and a column for each figure.
fn pivot(rows: &[&Row]) -> Table {
    let mut figures: Vec<&str> = Vec::new();
    let mut lines: Vec<(usize, &str)> = Vec::new();
    for row in rows {
        if !figures.contains(&&*row.figure) {
            figures.push(&row.figure);
        }
        if !lines.contains(&(row.descriptors, &row.subject)) {
            lines.push((row.descriptors, &row.subject));
        }
    }
    lines.sort_by_key(|line| line.0);
    let names = ["descriptors", "subject"].into_iter();
    let mut table = Table::new(names.chain(figures.iter().copied()).chain(["rounds"])).names(2);
    for (descriptors, subject) in lines {
        let of = |figure: &str| {
            rows.iter().find(|row| {
                (row.descriptors, &*row.subject, &*row.figure) == (descriptors, subject, figure)
            })
        };
        let cells =
            figures.iter().map(|figure| of(figure).map_or_else(|| "-".to_owned(), |row| cell(row)));
        let rounds = figures.iter().find_map(|figure| of(figure)).map_or(0, |row| row.rounds);
        let names = [descriptors.to_string(), subject.to_owned()].into_iter();
        table.row(names.chain(cells).chain([rounds.to_string()]));
    }
    table
}

/// The median round, and the spread of all.
fn cell(row: &Row) -> String {
    let value =
        |number: f64| if row.unit == "ns" { table::time(number) } else { format!("{number:.0}") };
    let (median, least, most) = (value(row.median), value(row.least), value(row.most));
    if row.rounds < 2 || least == most { median } else { format!("{median} ({least}-{most})") }
}

// The plot of `superpoll-lab keep`: the cost for one descriptor to leave, over the size of the
// batch.

/// A curve for each topology and side; none if only one size was measured.
pub(crate) fn over_batches(rows: &[Row]) -> Option<Plot> {
    let own: Vec<(String, (f64, f64))> = rows
        .iter()
        .filter(|row| row.part == "move" && row.median > 0.0)
        .map(|row| {
            let name = format!("{}: {}", row.subject, row.figure);
            (name, (row.descriptors as f64, row.median))
        })
        .collect();
    let (title, labels) =
        ("leaving for a keeper and coming back", ["descriptors together", "cpu ns for one"]);
    plot::over_powers_of_ten(title, labels, &own, |(name, at)| Some((name.as_str(), *at)))
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

    #[test]
    fn each_topology_has_its_line_and_each_figure_its_column() {
        let row = |subject: &str, descriptors, figure: &str, unit: &str, median| Row {
            part: "move".to_owned(),
            subject: subject.to_owned(),
            descriptors,
            figure: figure.to_owned(),
            unit: unit.to_owned(),
            median,
            least: median / 2.0,
            most: median * 2.0,
            rounds: 3,
        };
        let rows = [
            row("thread", 16, "leave, main", "ns", 900.0),
            row("thread", 1, "leave, main", "ns", 1200.0),
            row("thread", 1, "away", "count", 4.0),
        ];
        let all = parts(&rows);
        assert_eq!(all.len(), 1);
        let text = all[0].1.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("leave, main") && lines[0].contains("away"), "{text}");
        let line = |number: &str| lines.iter().find(|line| line.starts_with(number)).unwrap();
        assert!(line("1 ").contains("1200 ns (600 ns-2400 ns)"), "{text}");
        assert!(line("1 ").contains("4 (2-8)"), "{text}");
        assert!(
            line("16").contains("900 ns (450 ns-1800 ns)") && line("16").contains(" -"),
            "{text}"
        );
    }

    #[test]
    fn each_side_has_a_curve() {
        let row = |figure: &str, descriptors, median| Row {
            part: "move".to_owned(),
            subject: "thread".to_owned(),
            descriptors,
            figure: figure.to_owned(),
            median,
            ..Row::default()
        };
        let rows = [
            row("leave, main", 1, 3000.0),
            row("leave, main", 10, 900.0),
            row("leave, keeper", 1, 2000.0),
            row("leave, keeper", 10, 700.0),
        ];
        let plot = over_batches(&rows).unwrap();
        let names: Vec<&str> = plot.curves.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names, ["thread: leave, main", "thread: leave, keeper"]);
        assert_eq!(plot.curves[0].points, [(0.0, 3000.0), (1.0, 900.0)]);
        assert!(over_batches(&rows[..1]).is_none());
    }
}
