//! `superpoll-lab http`: the cost of a web server's runtime, with the same hyper on each.
//!
//! A server answers every request with the same thirteen bytes, so the cost is that of hyper, the
//! runtime below it and the kernel. hyper, its settings and the service are the same code for all;
//! each family of subjects differs in one file: our runtime on each back-end, tokio, and as the
//! lower bound an epoll loop that answers canned bytes and hardly looks at the request.
//!
//! Each server lives in a process of its own on one processor (`server`); one load generator on
//! another (`server/web.rs`) keeps one request in flight on each connection, checks each answer and
//! takes the servers in turn, round by round (`trial.rs`). The figure is the processor time of the
//! server's process per request: unlike requests per second it does not depend on how fast the
//! generator is.

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::plot::{self, Plot};
use crate::server::trial::Figures;
use crate::statistics::ToTokio;
use crate::table::{self, Part, Table};

#[cfg(feature = "http")]
mod ours;
pub(crate) mod raw_epoll;
#[cfg(feature = "http")]
pub(crate) mod tokio;
#[cfg(feature = "http")]
pub(crate) mod trial;

/// The body of every answer.
pub(crate) const BODY: &[u8; 13] = b"Hello, World!";

/// Whether the servers are built in: feature `http`.
pub const BUILT_IN: bool = cfg!(feature = "http");

crate::options::options! {
    /// Options of `superpoll-lab http`.
    pub(crate) struct Options;

    /// Connections to each server, with commas
    connections: String = LIST "64",
    /// Servers to measure, with commas, or all
    subjects: Option<String> = LIST,
}

/// One server with one number of connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The server.
    pub subject: String,
    /// Connections, each with one request in flight.
    pub connections: usize,
    /// The times of its rounds.
    #[serde(flatten)]
    pub figures: Figures,
    /// The cost relative to tokio's `current_thread` runtime.
    #[serde(flatten)]
    pub to_tokio: ToTokio,
}

// The experiment `http`, for the command line and the report.

/// Web servers.
#[derive(Debug)]
pub(crate) struct Http;

impl Experiment for Http {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "http";
    const TITLE: &'static str = "cost of a request to a web server";
    const METHOD: &'static str = "hyper answers thirteen bytes over HTTP/1 on connections that stay open, each with one \
             request in flight; only the runtime below it differs. Measured is the processor time of the \
             server's process, which has a processor to itself. “raw-epoll” answers canned bytes and is \
             the lower bound. Requests per second depend on the load generator too.";
    const QUICK: &'static str = "http --quick --seconds 8";
    const FULL: &'static str = "http --connections 1,64,1000 --seconds 90";
    const MEASURED: &'static str = "processor time of a web server for one request";
    #[cfg(feature = "http")]
    const RUN: Run<Self> = crate::http::trial::run;
    #[cfg(not(feature = "http"))]
    const RUN: Run<Self> = |_| {
        let text = "superpoll-lab http is not built in: build with --features http";
        Err(crate::error::Error::usage(text))
    };

    fn parts(rows: &[Row]) -> Vec<Part> {
        let plot = Part::plot("http.svg", over_connections(rows));
        vec![plot, Part::Table(servers(rows))]
    }

    /// Returns the targets that `superpoll-lab http` measures, at 64 connections.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| row.subject.clone());
        let ours = ["superpoll-rt-epoll", "superpoll-rt-adaptive"];
        let applies = |row: &Row| row.connections == 64 && ours.contains(&&*row.subject);
        targets.add("http: CPU / tokio", 0.95, applies, |row| row.to_tokio.headline());
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(row.figures.compared(format!("{} connections, {}", row.connections, row.subject)))
    }
}

// The output of `superpoll-lab http`: for each number of connections, a line per server.

/// Returns the table of all servers.
pub(crate) fn servers(rows: &[Row]) -> Table {
    table::of(
        rows,
        1,
        &[
            ("server", |row| row.subject.clone()),
            ("connections", |row| row.connections.to_string()),
            ("cpu ns/request", |row| format!("{:.0}", row.figures.cpu_ns_per_request_median)),
            ("least", |row| format!("{:.0}", row.figures.cpu_ns_per_request_min)),
            ("spread", |row| format!("{:.0}", row.figures.cpu_spread)),
            ("requests/s", |row| format!("{:.0}", row.figures.requests_per_second)),
            ("waits/request", |row| table::number(row.figures.waits_per_request, 3)),
            ("epoll_ctl/request", |row| table::number(row.figures.epoll_ctl_per_request, 3)),
            ("/ tokio", |row| table::ratio(row.to_tokio.headline())),
            ("90 %", |row| row.to_tokio.tokio_decile.map_or_else(String::new, table::span)),
            ("median", |row| table::ratio(row.to_tokio.tokio_ratio)),
        ],
    )
}

// The plot of `superpoll-lab http`: processor time of a request over the number of connections.

/// Plots a curve for each server; `None` if only one number of connections was measured.
pub(crate) fn over_connections(rows: &[Row]) -> Option<Plot> {
    let labels = ["connections", "server's cpu ns per request"];
    plot::over_powers_of_ten("one request in flight on each connection", labels, rows, |row| {
        let time = row.figures.cpu_ns_per_request_median;
        Some((row.subject.as_str(), (row.connections as f64, time)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::trial::Figures;
    use crate::statistics::ToTokio;

    #[test]
    fn web_servers_are_judged_at_64_connections() {
        let row = |subject: &str, connections, tokio_ratio| Row {
            subject: subject.to_owned(),
            connections,
            to_tokio: ToTokio { tokio_ratio, ..ToTokio::default() },
            ..Row::default()
        };
        let rows = [
            row("raw-epoll", 64, Some(0.2)),
            row("superpoll-rt-epoll", 64, Some(0.94)),
            row("superpoll-rt-adaptive", 64, Some(0.96)),
            row("superpoll-rt-poll", 64, Some(2.0)),
            row("superpoll-rt-adaptive", 1, Some(3.0)),
        ];
        let targets = Http::targets(&rows);
        assert_eq!((targets.len(), targets[0].measured), (1, 0.96));
        assert!(!targets[0].is_kept() && Http::targets(&rows[..2])[0].is_kept());
        assert!(Http::targets(&[row("superpoll-rt-epoll", 64, None)]).is_empty());
    }

    #[test]
    fn each_server_has_a_line_and_unknown_values_a_dash() {
        let row = |subject: &str, waits_per_request| Row {
            subject: subject.to_owned(),
            connections: 64,
            figures: Figures {
                cpu_ns_per_request_median: 4321.0,
                waits_per_request,
                ..Figures::default()
            },
            ..Row::default()
        };
        let text = servers(&[row("tokio", None), row("ours", Some(0.25))]).to_string();
        let line =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(line("tokio").contains("4321") && line("tokio").contains('-'), "{text}");
        assert!(line("ours").contains("0.250"), "{text}");
    }

    #[test]
    fn several_numbers_of_connections_are_drawn() {
        let row = |connections, cpu_ns_per_request_median| Row {
            subject: "tokio".to_owned(),
            connections,
            figures: Figures { cpu_ns_per_request_median, ..Figures::default() },
            ..Row::default()
        };
        let rows = [row(1, 9000.0), row(100, 7000.0)];
        let plot = over_connections(&rows).unwrap();
        assert_eq!(plot.curves[0].points, [(0.0, 9000.0), (2.0, 7000.0)]);
        assert!(plot.svg().unwrap().contains("connections"));
        assert!(over_connections(&rows[..1]).is_none());
    }
}
