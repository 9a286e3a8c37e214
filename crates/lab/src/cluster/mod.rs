//! `superpoll-lab cluster`: several servers with the messages of one Redis, and faults of each
//! part.
//!
//! Three `superpoll serve` have a channel whose log is in Redis (`broker = true`). Thousands of
//! subscribers by WebSocket, server-sent events and long-poll are spread evenly over them, and each
//! server has a publisher. While messages are published a part fails. Then every subscriber must
//! have each message once, in one order, or must have been told that it has missed some, and that
//! only where a fault destroys messages.
//!
//! `publisher.rs` has the publishers, `crowd.rs` runs the subscribers with their checks. `redis.rs`
//! starts the log, `site.rs` puts the programs together and makes them fail, and `trial.rs` runs
//! everything in turn and judges a round.

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::findings::{self, Row};
use crate::table::Part;

mod crowd;
mod publisher;
mod redis;
mod site;
mod trial;

/// The channel of all subscribers.
const CHANNEL: &str = "/c";

/// A channel without a broker, for comparison.
const LOCAL: &str = "/local";

/// How many servers there are.
const SERVERS: usize = 3;

crate::options::options! {
    /// Options of `superpoll-lab cluster`.
    pub(crate) struct Options;

    /// The parts that fail: none, gateway, redis, stop, flush, cut, reply, promote, partition or
    /// all
    faults: String = LIST "all",
    /// Subscribers of all servers together [default: 3000, or 150 if quick]
    subscribers: Option<usize> = N,
}

crate::by_name::named! {
    /// A fault.
    pub(crate) enum Fault {
        /// Nothing fails.
        None = "none",
        /// A server is killed and started again.
        Gateway = "gateway",
        /// Redis is killed and started again with its data.
        Redis = "redis",
        /// Redis is stopped for a while.
        Stop = "stop",
        /// Redis loses all data.
        Flush = "flush",
        /// All connections to Redis are cut, again and again.
        Cut = "cut",
        /// Publishers close connections before the answer.
        Reply = "reply",
        /// Redis is killed, and a replica that lacks messages is promoted.
        Promote = "promote",
        /// A server can reach neither Redis nor clients.
        Partition = "partition",
    }
}

impl Fault {
    /// Returns whether it may destroy confirmed messages, so that subscribers are told.
    pub(crate) fn destroys(self) -> bool {
        matches!(self, Fault::Flush | Fault::Promote)
    }
}

// The experiment `cluster`, for the command line and the report.

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
    const IS_STRICT: bool = true;
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        findings::parts(rows, &HEADINGS, ["subscribers", "of"])
    }

    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row: &Row| row.subject.clone());
        let is = |part: &'static str, figure: &'static str| move |row: &Row| row.is(part, figure);
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
        Some(row.compared())
    }
}

/// The parts, each with the heading of its table.
const HEADINGS: [(&str, &str); 3] = [
    ("fault", "subscribers of three servers while a part fails"),
    (
        "delay",
        "time from a publication at one server to the last subscriber of the others; processor time for it",
    ),
    ("processor", "processor time of a server for a publication, without subscribers"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

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

    #[test]
    fn each_fault_has_its_line_and_each_figure_its_column() {
        let row = |part: &str, subject: &str, figure: &str, unit: &str, most| Row {
            part: part.to_owned(),
            subject: subject.to_owned(),
            number: 90,
            figure: figure.to_owned(),
            unit: unit.to_owned(),
            most,
            rounds: 3,
            ..Row::default()
        };
        let rows = [
            row("fault", "redis", "lost", "count", 0.0),
            row("fault", "redis", "reconnects", "count", 4.0),
            row("fault", "flush", "lost", "count", 2.0),
            row("delay", "to the last subscriber", "p99", "ns", 900.0),
        ];
        let all = Cluster::parts(&rows);
        assert_eq!(all.len(), 4);
        let text = table::text(&all[..2]);
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap();
        assert!(line("redis").contains("0 (0-4)"), "{text}");
        assert!(line("flush").contains("0 (0-2)") && line("flush").contains(" -"), "{text}");
        assert!(table::text(&all[2..]).contains("900 ns"));
    }
}
