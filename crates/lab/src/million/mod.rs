//! `superpoll-lab million`: as many idle connections at once as the machine allows.
//!
//! A process may have only so many descriptors, so the connections are spread over many processes
//! of `superpoll serve`, each with a keeper, and as many processes of clients. Every process of
//! clients connects to one server, from an address of its own (127.0.1.1 and up), which has all
//! ports to itself. First come connections that have sent one request and stay open, then, in a
//! second pass with new processes, subscribers of a channel by WebSocket; other kinds on request.
//!
//! When all connections are parked, memory and processor time are read. Then a message is published
//! to all subscribers, a server is killed and started again with the same keeper, and every
//! connection must answer, or receive another message, once. The folder `/proc/PID/fd` is never
//! read: a look there makes the kernel hold memory for each descriptor.
//!
//! `server/fleet.rs` has the servers and their keepers, `server/crowd.rs` the clients. `trial.rs`
//! finds the limit and takes all connections of each kind through the steps.

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::idle::service::Kind;
use crate::table::{self, Part, Table};

mod trial;

crate::options::options! {
    /// Options of `superpoll-lab million`.
    pub(crate) struct Options;

    /// Connections at once [default: as many as the machine allows, or 300 if quick]
    connections: Option<usize> = N,
    /// Kinds of connections, one after the other: keep-alive, websocket, events, long-poll or all
    #[arg(long = "kind")]
    kinds: String = LIST "keep-alive,websocket",
    /// Processes of the server, and of clients [default: as many as the connections need, or 2 if
    /// quick]
    processes: Option<usize> = N,
    /// Start servers without keepers, and kill none
    no_keeper: bool,
}

/// The kinds of connections.
const KINDS: [Kind; 4] = [Kind::KeepAlive, Kind::WebSocket, Kind::Events, Kind::LongPoll];

/// The findings on one kind of connections. Servers and keepers are counted apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The kind of connections.
    pub kind: String,
    /// Connections that were open at once.
    pub connections: usize,
    /// The number of connections that the run asked for.
    pub asked: usize,
    /// Why there were no more: `asked`, `memory`, `files`, `processes`, `watches`, `descriptors`,
    /// `time`, `interrupted` or `refused`.
    pub limit: String,
    /// Processes of the server, and of clients.
    pub processes: usize,
    /// How long all connections took to open and to be parked, in seconds.
    pub seconds: f64,
    /// Anonymous memory of the servers above that without connections, by connection, in bytes.
    pub server_bytes_per_connection: f64,
    /// The same of the keepers.
    pub keeper_bytes_per_connection: f64,
    /// Anonymous memory of all servers, in bytes.
    pub server_bytes: u64,
    /// Anonymous memory of all keepers, in bytes.
    pub keeper_bytes: u64,
    /// The kernel's slabs above those without connections, by pair of sockets, in bytes.
    pub slab_bytes_per_pair: f64,
    /// Processor time of the servers to open, answer and park a connection, in nanoseconds.
    pub server_ns_per_connection: f64,
    /// The same of the keepers.
    pub keeper_ns_per_connection: f64,
    /// The message that was published before the crash; absent for connections without a channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Round>,
    /// The crash; absent without keepers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<Crash>,
    /// The check of every connection at the end: a request on each, or a message to each.
    pub check: Round,
}

/// A message to all connections, or a request on each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Connections that received the message or the answer exactly once.
    pub received: usize,
    /// Connections that received anything else.
    pub wrong: usize,
    /// The time from the beginning until the last connection had it, in seconds.
    pub seconds: f64,
    /// Processor time of the servers and keepers, by connection, in nanoseconds.
    pub server_ns_per_connection: f64,
}

/// A server that was killed and started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Crash {
    /// Connections of the server that was killed.
    pub connections: usize,
    /// Connections of all servers that were lost by the end of the check.
    pub lost: usize,
    /// The time from the kill until the next server has answered a request, in seconds.
    pub seconds: f64,
}

// The experiment `million`, for the command line and the report.

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
        vec![Part::Table(figures(rows))]
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

// The output of `superpoll-lab million`: a line for each figure, and a column for each kind.

/// A line: the name of a figure, and its value where there is one.
type Line = (&'static str, fn(&Row) -> Option<String>);

const LINES: [Line; 21] = [
    ("connections at once", |row| Some(row.connections.to_string())),
    ("ended by", |row| Some(row.limit.clone())),
    ("processes of the server", |row| Some(row.processes.to_string())),
    ("seconds to open and park them", |row| Some(format!("{:.1}", row.seconds))),
    ("user bytes of a server, by connection", |row| bytes(row.server_bytes_per_connection)),
    ("user bytes of a keeper, by connection", |row| bytes(row.keeper_bytes_per_connection)),
    ("user MiB of all servers", |row| mebibytes(row.server_bytes)),
    ("user MiB of all keepers", |row| mebibytes(row.keeper_bytes)),
    ("slab bytes, by pair", |row| bytes(row.slab_bytes_per_pair)),
    ("server time to open and park one", |row| time(row.server_ns_per_connection)),
    ("keeper time to park one", |row| time(row.keeper_ns_per_connection)),
    ("message: connections that have it once", |row| Some(row.message?.received.to_string())),
    ("message: wrong", |row| Some(row.message?.wrong.to_string())),
    ("message: until the last has it", |row| until(row.message)),
    ("message: server time, by connection", |row| time(row.message?.server_ns_per_connection)),
    ("crash: connections of the killed server", |row| Some(row.crash?.connections.to_string())),
    ("crash: connections lost", |row| Some(row.crash?.lost.to_string())),
    ("crash: until the next answers", |row| time(row.crash?.seconds * 1e9)),
    ("check: connections that answer", |row| Some(row.check.received.to_string())),
    ("check: wrong", |row| Some(row.check.wrong.to_string())),
    ("check: until the last has answered", |row| until(Some(row.check))),
];

fn bytes(bytes: f64) -> Option<String> {
    Some(format!("{bytes:.0}"))
}

fn mebibytes(bytes: u64) -> Option<String> {
    Some(format!("{:.1}", bytes as f64 / f64::from(1 << 20)))
}

fn time(nanoseconds: f64) -> Option<String> {
    Some(table::time(nanoseconds))
}

fn until(round: Option<Round>) -> Option<String> {
    time(round?.seconds * 1e9)
}

/// The table of all kinds; figures that no kind has are left out.
pub(crate) fn figures(rows: &[Row]) -> Table {
    let kinds = rows.iter().map(|row| row.kind.as_str());
    let mut table = Table::new(["figure"].into_iter().chain(kinds)).names(1);
    for (name, cell) in LINES {
        let cells: Vec<Option<String>> = rows.iter().map(cell).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            table.row([name.to_owned()].into_iter().chain(cells));
        }
    }
    table
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

    #[test]
    fn each_kind_has_its_column_and_figures_that_are_absent_a_dash() {
        let kept = Row {
            kind: "keep-alive".to_owned(),
            connections: 7,
            limit: "files".to_owned(),
            server_bytes: 3 << 19,
            ..Row::default()
        };
        let round = Round { received: 5, seconds: 0.25, ..Round::default() };
        let sockets = Row { kind: "websocket".to_owned(), message: Some(round), ..kept.clone() };
        let text = figures(&[kept.clone(), sockets]).to_string();
        let line = |name: &str| {
            let found = text.lines().find(|line| line.starts_with(name));
            found.unwrap_or_else(|| panic!("{name} is missing in {text}")).split_at(name.len()).1
        };
        let words = |name: &str| line(name).split_whitespace().collect::<Vec<_>>();
        assert_eq!(words("connections at once"), ["7", "7"]);
        assert_eq!(words("ended by"), ["files", "files"]);
        assert_eq!(words("user MiB of all servers"), ["1.5", "1.5"]);
        assert_eq!(words("message: connections that have it once"), ["-", "5"]);
        assert_eq!(words("message: until the last has it"), ["-", "250.0", "ms"]);
        assert!(!text.contains("crash"), "{text}");
        let crash = Some(Crash { connections: 4, lost: 1, seconds: 0.1 });
        let text = figures(&[Row { crash, ..kept }]).to_string();
        assert!(text.contains("crash: connections lost"), "{text}");
    }
}
