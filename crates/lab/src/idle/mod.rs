//! `superpoll-lab idle`: the memory of a connection that does nothing.
//!
//! The experiment starts a server. Clients connect and make a connection of its kind: nothing at
//! all, one request over HTTP/1 (plain or encrypted) or HTTP/2, a long-poll without an answer, the
//! handshake of a WebSocket, a stream of server-sent events without a message, or one request
//! through a relay. Then they are silent. When the server's memory has settled, it is read from
//! `smaps_rollup`; after the same number of further connections, it is read a second time. The
//! figure is the difference per connection, so that one-time memory of the server does not count.
//! It is the memory that the process has to itself (`Private_Dirty`). It includes memory that the
//! allocator has obtained and does not give back, and for that reason connections come in two ways.
//! *One by one*: each client does its part before the next one connects. In a *burst*: all connect,
//! then all send their requests, then all get answers, so that a server has buffers for all of them
//! at the same time, and holes where the buffers were.
//!
//! The kernel's part is read for the whole machine (`Slab` of `/proc/meminfo`, the pages of
//! `/proc/net/sockstat`). It includes both ends of a connection and everything else that the
//! machine does meanwhile.
//!
//! Our servers are started as a user would start them, by this command (`server/program.rs`), with
//! default keys; nginx and haproxy take part where they are installed, and Caddy where Go is.
//! `service.rs` starts each server and its clients, `server/memory.rs` reads the memory, and
//! `trial.rs` runs the servers in turn. `superpoll-lab million` goes on until it meets a limit.

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::plot;
use crate::table::{self, Part, Table};

pub(crate) mod service;
pub(crate) mod trial;

crate::options::options! {
    /// Options of `superpoll-lab idle`.
    pub(crate) struct Options;

    /// Connections to each server [default: 9000 or as many as fit, 1000 if quick]
    connections: Option<usize> = N,
    /// How connections come: one-by-one, burst or all
    arrival: String = LIST "all",
    /// Servers and kinds of connections, with commas, or all
    subjects: Option<String> = LIST,
}

/// A figure over all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    /// The median round.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

/// One kind of connections to one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The server and the kind of connection.
    pub subject: String,
    /// The kind of connection: `silent`, `keep-alive`, `tls`, `h2`, `long-poll`, `websocket`,
    /// `events`, `relay`.
    pub kind: String,
    /// `one-by-one` or `burst`.
    pub arrival: String,
    /// Connections in total.
    pub connections: usize,
    /// The server's own memory per connection, over the second half of the connections, in bytes.
    pub user_bytes_per_connection: Spread,
    /// The same over the first half, including the server's one-time memory.
    pub first_half_bytes_per_connection: Spread,
    /// Memory above that of the start after all connections were closed, in bytes.
    pub left_bytes: f64,
    /// The kernel's slabs per connection, with both ends and everything else on this machine, in
    /// bytes.
    pub slab_bytes_per_connection: Spread,
    /// The kernel's pages for sockets per connection, with both ends and everything else on this
    /// machine, in bytes.
    pub socket_bytes_per_connection: Spread,
    /// Rounds measured, each with a server of its own.
    pub rounds: usize,
}

// The experiment `idle`, for the command line and the report.

/// Memory of connections that do nothing.
#[derive(Debug)]
pub(crate) struct Idle;

impl Experiment for Idle {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "idle";
    const TITLE: &'static str = "connections that do nothing";
    const METHOD: &'static str = "Bytes by connection, of the second half of the connections. User memory is what the server's \
             process has to itself; “left” what it has more than at its start after all connections were \
             closed. In a burst all clients of a half connect, then all ask, then all are answered. The \
             kernel's memory is that of both ends, and of whatever else the machine does.";
    const QUICK: &'static str = "idle --quick --arrival one-by-one --subjects superpoll-keep-alive,superpoll-websocket,superpoll-events,superpoll-relay,nginx-keep-alive,hyper-keep-alive";
    const FULL: &'static str = "idle";
    const MEASURED: &'static str =
        "memory of a connection that does nothing; the kernel's is that of both ends";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![Part::Picture("idle.svg", bars(rows)), Part::Table(connections(rows))]
    }

    /// The targets that `superpoll-lab idle` measures, in KiB of user memory.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| row.arrival.clone());
        for (subject, name, bound) in [
            ("superpoll-keep-alive", "keep-alive connection", 1.0),
            ("superpoll-long-poll", "long-poll", 2.0),
            ("superpoll-websocket", "WebSocket", 2.0),
            ("superpoll-events", "stream of server-sent events", 0.5),
            ("superpoll-relay", "relayed pair", 1.0),
        ] {
            let name = format!("idle: KiB of user memory of a {name}");
            let value = |row: &Row| Some(row.user_bytes_per_connection.median / 1024.0);
            targets.add(name, bound, |row| row.subject == subject, value);
        }
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(Figure {
            at: format!("{} {} {}, {}", row.connections, row.kind, row.arrival, row.subject),
            name: "user memory by connection, bytes".to_owned(),
            value: row.user_bytes_per_connection.median,
            low: row.user_bytes_per_connection.least,
            high: row.user_bytes_per_connection.most,
        })
    }
}

// The output of `superpoll-lab idle`: a line for each kind of connection to each server.

fn bytes(spread: Spread) -> String {
    format!("{:.0}", spread.median)
}

fn range(spread: Spread) -> String {
    format!("{:.0}-{:.0}", spread.least, spread.most)
}

/// The table of all rows.
pub(crate) fn connections(rows: &[Row]) -> Table {
    table::of(
        rows,
        2,
        &[
            ("server", |row| row.subject.clone()),
            ("arrival", |row| row.arrival.clone()),
            ("connections", |row| row.connections.to_string()),
            ("user bytes", |row| bytes(row.user_bytes_per_connection)),
            ("least-most", |row| range(row.user_bytes_per_connection)),
            ("first half", |row| bytes(row.first_half_bytes_per_connection)),
            ("left, KiB", |row| format!("{:.0}", row.left_bytes / 1024.0)),
            ("slab bytes", |row| bytes(row.slab_bytes_per_connection)),
            ("least-most", |row| range(row.slab_bytes_per_connection)),
            ("socket bytes", |row| bytes(row.socket_bytes_per_connection)),
        ],
    )
}

// The plot of `superpoll-lab idle`: bars of user memory per connection, on a logarithmic scale.

/// A bar for each row.
pub(crate) fn bars(rows: &[Row]) -> String {
    // From 16 bytes to 256 KiB.
    let share = |bytes: f64| ((bytes.max(16.0).log2() - 4.0) / 14.0).min(1.0);
    let heading = "user memory of an idle connection, in bytes (logarithmic)";
    let bars = rows.iter().map(|row| {
        let bytes = row.user_bytes_per_connection.median;
        (format!("{}, {}", row.subject, row.arrival), share(bytes), bytes)
    });
    plot::bars(heading, 250.0, bars)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idle::Spread;

    #[test]
    fn each_kind_is_judged_where_it_takes_most() {
        let row = |subject: &str, arrival: &str, median| Row {
            subject: subject.to_owned(),
            arrival: arrival.to_owned(),
            user_bytes_per_connection: Spread { median, ..Spread::default() },
            ..Row::default()
        };
        let targets = Idle::targets(&[
            row("superpoll-keep-alive", "one-by-one", 512.0),
            row("superpoll-keep-alive", "burst", 2048.0),
            row("superpoll-websocket", "burst", 1024.0),
            row("hyper-keep-alive", "burst", 10_240.0),
        ]);
        let kept: Vec<(f64, &str, bool)> =
            targets.iter().map(|t| (t.measured, t.at.as_str(), t.is_kept())).collect();
        assert_eq!(kept, [(2.0, "burst", false), (1.0, "burst", true)]);
    }

    #[test]
    fn each_kind_has_its_line() {
        let user = Spread { median: 812.4, least: 700.0, most: 900.0 };
        let row = Row {
            subject: "ours".to_owned(),
            arrival: "burst".to_owned(),
            connections: 4000,
            user_bytes_per_connection: user,
            left_bytes: 51_200.0,
            ..Row::default()
        };
        let text = connections(&[row]).to_string();
        let last = text.lines().last().unwrap();
        for part in ["ours", "burst", "4000", "812", "700-900", "50"] {
            assert!(last.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn each_row_has_a_bar_with_its_figure() {
        let row = |subject: &str, median| Row {
            subject: subject.to_owned(),
            arrival: "burst".to_owned(),
            user_bytes_per_connection: Spread { median, ..Spread::default() },
            ..Row::default()
        };
        let svg = bars(&[row("superpoll-tls", 9000.0), row("raw-epoll", 0.0)]);
        assert!(svg.starts_with("<svg") && svg.matches("<rect").count() == 2);
        assert!(svg.contains(">9000<") && svg.contains("width=\"0.0\""), "{svg}");
    }
}
