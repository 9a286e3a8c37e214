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
//! descriptor more expensive, and the nested topology has no second thread. `moves.rs` and
//! `busy.rs` are the loops, `restart.rs` restarts the server with its clients, and `trial.rs` runs
//! everything in turn.

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::findings::{self, Row};
use crate::plot::{self, Plot};
use crate::table::Part;

mod busy;
mod moves;
mod restart;
mod trial;

crate::options::options! {
    /// Options of `superpoll-lab keep`.
    pub(crate) struct Options;

    /// The parts to measure: move, wake, busy, restart or all
    parts: String = LIST "all",
    /// Idle connections in addition to the busy ones, and of the restarted server; fewer where the
    /// limit of descriptors is lower [default: 9000, or 1000 if quick]
    idle: Option<usize> = N,
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
        let mut parts = vec![Part::plot("sit.svg", over_batches(rows))];
        parts.extend(findings::parts(rows, &HEADINGS, ["descriptors", "subject"]));
        parts
    }

    /// The targets that `superpoll-lab keep` measures.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let at = |row: &Row| match row.part.as_str() {
            "move" => format!("{} at a time", row.number),
            _ => row.subject.clone(),
        };
        let mut targets = Targets::new(rows, at);
        let is = |part: &'static str, figure: &'static str| move |row: &Row| row.is(part, figure);
        let leaves = is("move", "leave, main");
        let largest = rows.iter().filter(|row| leaves(row)).map(|row| row.number).max();
        let moved =
            |row: &Row| leaves(row) && row.subject == "process" && Some(row.number) == largest;
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
        Some(row.compared())
    }
}

/// The parts, each with the heading of its table.
const HEADINGS: [(&str, &str); 4] = [
    (
        "move",
        "processor time of leaving and coming back, for one descriptor (with the byte's read)",
    ),
    ("wake", "time from a write to a descriptor that is away until the main loop has read it"),
    (
        "busy",
        "requests of ten clients next to idle connections: time of one, processor time of one",
    ),
    ("restart", "a server with idle connections is upgraded, and killed"),
];

// The plot of `superpoll-lab keep`: the cost for one descriptor to leave, over the size of the
// batch.

/// A curve for each topology and side; none if only one size was measured.
pub(crate) fn over_batches(rows: &[Row]) -> Option<Plot> {
    let own: Vec<(String, (f64, f64))> = rows
        .iter()
        .filter(|row| row.part == "move" && row.median > 0.0)
        .map(|row| {
            let name = format!("{}: {}", row.subject, row.figure);
            (name, (row.number as f64, row.median))
        })
        .collect();
    let (title, labels) =
        ("leaving for a keeper and coming back", ["descriptors together", "cpu ns for one"]);
    plot::over_powers_of_ten(title, labels, &own, |(name, at)| Some((name.as_str(), *at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn batches_wake_ups_and_restarts_are_judged_at_their_worst() {
        let row = |part: &str, subject: &str, number, figure: &str, median| Row {
            part: part.to_owned(),
            subject: subject.to_owned(),
            number,
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
        let row = |subject: &str, number, figure: &str, unit: &str, median| Row {
            part: "move".to_owned(),
            subject: subject.to_owned(),
            number,
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
        let all = findings::parts(&rows, &HEADINGS, ["descriptors", "subject"]);
        assert_eq!(all.len(), 2);
        let text = table::text(&all[1..]);
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
        let row = |figure: &str, number, median| Row {
            part: "move".to_owned(),
            subject: "thread".to_owned(),
            number,
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
