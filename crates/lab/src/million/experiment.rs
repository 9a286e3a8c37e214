//! The experiment `million`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::million::{Options, Round, Row, table, trial};
use crate::part::Part;
use crate::target::{Target, Targets};

/// As many idle connections as there can be.
#[derive(Debug)]
pub(crate) struct Million;

impl Experiment for Million {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "million";
    const TITLE: &'static str = "as many idle connections as there can be";
    const METHOD: &'static str = "Connections are spread over processes of the server, each with a keeper. When all are \
             parked, the anonymous memory of these processes and the kernel's slabs are read, less what \
             they were without connections. Then a message is published to all subscribers, a server is \
             killed and started again, and every connection has to answer, or to receive another \
             message, once. “Ended by” says why there are no more connections.";
    const QUICK: &'static str = "million --quick";
    const FULL: &'static str = "million";
    const IS_IN_ALL: bool = false;
    const MEASURED: &'static str = "idle connections, all at once";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![Part::Table(table::figures(rows))]
    }

    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row: &Row| row.kind.clone());
        let all = |_: &Row| true;
        let name = "million: bytes of user memory by connection, servers and keepers";
        targets.add(name, 400.0, all, |row| Some(user_bytes(row)));
        let name = "million: connections lost by a crash";
        targets.add(name, 0.0, all, |row| Some(row.crash?.lost as f64));
        let absent = |row: &Row, round: Round| row.connections.saturating_sub(round.received);
        let name = "million: connections without their message, or without an answer";
        targets.add(name, 0.0, all, |row| {
            let message = row.message.map_or(0, |message| absent(row, message));
            Some(message.max(absent(row, row.check)) as f64)
        });
        let name = "million: connections that received anything else";
        targets.add(name, 0.0, all, |row| {
            Some((row.message.map_or(0, |message| message.wrong) + row.check.wrong) as f64)
        });
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        let at = format!("{} connections, {}", row.connections, row.kind);
        Some(Figure::of_cost(
            at,
            "user memory by connection, bytes",
            user_bytes(row),
            user_bytes(row),
        ))
    }
}

fn user_bytes(row: &Row) -> f64 {
    row.server_bytes_per_connection + row.keeper_bytes_per_connection
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::million::Crash;

    #[test]
    fn every_connection_counts_and_both_processes_of_a_server() {
        let round = |received, wrong| Round { received, wrong, ..Round::default() };
        let kept = Row {
            kind: "keep-alive".to_owned(),
            connections: 10,
            server_bytes_per_connection: 300.0,
            keeper_bytes_per_connection: 150.0,
            check: round(10, 0),
            ..Row::default()
        };
        let sockets = Row {
            kind: "websocket".to_owned(),
            keeper_bytes_per_connection: 0.0,
            message: Some(round(9, 1)),
            crash: Some(Crash { connections: 5, lost: 2, seconds: 0.1 }),
            check: round(7, 1),
            ..kept.clone()
        };
        let targets = Million::targets(&[kept, sockets]);
        let found: Vec<(f64, &str, bool)> =
            targets.iter().map(|t| (t.measured, t.at.as_str(), t.is_kept())).collect();
        assert_eq!(
            found,
            [
                (450.0, "keep-alive", false),
                (2.0, "websocket", false),
                (3.0, "websocket", false),
                (2.0, "websocket", false),
            ]
        );
    }
}
