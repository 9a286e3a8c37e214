//! `superpoll-lab files`: a server's processor time to send a file.
//!
//! A folder with one file, a small one or a long one, and clients that ask for it again and again
//! on connections that stay open: over HTTP/1, plain and encrypted, and over HTTP/2. The subjects
//! are `superpoll serve`'s server on each back-end with its default keys, nginx as a careful
//! operator configures it, Caddy, and a file server of hyper on tokio (`tokio.rs`).
//!
//! The server on tokio holds its files in memory, including the response heads, and looks at
//! nothing but the path and the ETag. Most authors of such a server take a ready-made service
//! instead, which opens the file for each request, on a thread that may block. But an author with
//! an eye on the processor time of a small file writes a server like this one, and a server that
//! looks for changes of its files has to be compared with one that saves itself even that.
//!
//! Each server lives in a process of its own on one processor (`server`). The load generator on
//! another (`server/web.rs`) keeps one request under way on each connection, or eight by HTTP/2,
//! compares every answer with the file, byte for byte, and takes the servers in turn, round by
//! round (`trial.rs`). The figure is the processor time of the server's process per request; ratios
//! are those of each round. All servers use the same plain congestion control, for which the
//! experiment has a network of its own where that is permitted: a congestion control that paces, as
//! bbr does, would add the cost of a timer to each long file. Where `strace` is installed, a
//! separate run lists the system calls by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::plot::{self, Plot};
use crate::server::trial::Figures;
use crate::server::web::Protocol;
use crate::statistics::Ratio;
use crate::table::{self, Part, Table};

#[cfg(feature = "http")]
mod tokio;
pub(crate) mod trial;

/// The file's name in its folder.
const NAME: &str = "file.bin";

crate::options::options! {
    /// Options of `superpoll-lab files`.
    pub(crate) struct Options;

    /// The lengths of the file, with commas
    bytes: String = LIST "1024,102400",
    /// http, https, h2 (encrypted too) or all, with commas
    protocol: String = LIST "all",
    /// Requests under way at each server, with commas: one on each connection, or eight by HTTP/2
    connections: String = LIST "64",
    /// Servers to measure, with commas, or all
    subjects: Option<String> = LIST,
}

/// One server with one file and one number of connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The server.
    pub subject: String,
    /// `http`, `https` or `h2`.
    #[serde(default = "http")]
    pub protocol: String,
    /// The length of the file.
    pub bytes: usize,
    /// Connections, each with one request under way, or eight by HTTP/2.
    pub connections: usize,
    /// The times of its rounds.
    #[serde(flatten)]
    pub figures: Figures,
    /// Processor time against that of nginx.
    pub nginx_ratio: Option<Ratio>,
    /// Processor time against that of hyper on tokio.
    pub hyper_ratio: Option<Ratio>,
    /// Processor time against that of Caddy.
    pub caddy_ratio: Option<Ratio>,
    /// The system calls that strace saw in them, by name, per request.
    pub strace_calls: BTreeMap<String, f64>,
    /// All of them.
    pub strace_calls_per_request: Option<f64>,
}

/// Returns the protocol of records without that field.
fn http() -> String {
    Protocol::Http.name().to_owned()
}

// The experiment `files`, for the command line and the report.

/// Our own servers that users are meant to run.
const OURS: [&str; 2] = ["superpoll-epoll", "superpoll-adaptive"];

/// The number of connections at which the targets apply.
const CONNECTIONS: usize = 64;

/// The comparison of a server with another.
type Against = fn(&Row) -> Option<Ratio>;

/// For each length: the server to compare with, and the highest ratio of processor time that meets
/// the target.
const AGAINST: [(usize, &str, Against, f64); 3] = [
    (1 << 10, "files, 1 KiB: CPU / nginx", |row| row.nginx_ratio, 0.50),
    (1 << 10, "files, 1 KiB: CPU / hyper on tokio", |row| row.hyper_ratio, 0.70),
    (100 << 10, "files, 100 KiB: CPU / nginx", |row| row.nginx_ratio, 0.90),
];

/// Calls of `epoll_ctl` for a request on a connection that stays open.
const EPOLL_CTL: f64 = 0.05;

/// Servers of static files.
#[derive(Debug)]
pub(crate) struct Files;

impl Experiment for Files {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "files";
    const TITLE: &'static str = "cost of sending a file";
    const METHOD: &'static str = "A file is asked for again and again on connections that stay open, each with one request \
             under way, or eight by HTTP/2 (“h2”); every byte of every answer is checked. Measured is the processor time of the \
             server's process, which has a processor to itself; ratios are those of each round. \
             “Generator” is the share of its own processor that the load generator needs. Calls are those \
             that strace sees in another run, in which the server is slower.";
    const QUICK: &'static str = "files --quick --seconds 18 --subjects superpoll-epoll,superpoll-adaptive,nginx,hyper-tokio";
    const FULL: &'static str = "files --paced --seconds 270";
    const MEASURED: &'static str = "processor time of a server for one request for a file";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let plots = loads(rows).into_iter().map(|(protocol, connections)| {
            let plot = over_bytes(rows, protocol, connections);
            Part::plot(format!("files-{protocol}-{connections}.svg"), plot)
        });
        plots.chain([Part::Table(servers(rows)), Part::Table(calls(rows))]).collect()
    }

    /// Returns the targets that `superpoll-lab files` measures, at 64 connections.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| row.subject.clone());
        let ours = |row: &Row, bytes: usize| {
            (row.bytes, row.connections) == (bytes, CONNECTIONS)
                && row.protocol == Protocol::Http.name()
                && OURS.contains(&&*row.subject)
        };
        for (bytes, name, of, bound) in AGAINST {
            let ratio = |row: &Row| Some(of(row)?.headline().value);
            targets.add(name, bound, |row| ours(row, bytes), ratio);
        }
        let name = "files, 1 KiB: epoll_ctl calls by request";
        let changes = |row: &Row| row.figures.epoll_ctl_per_request;
        targets.add(name, EPOLL_CTL, |row| ours(row, 1 << 10), changes);
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        let Row { subject, protocol, bytes, connections, figures, .. } = row;
        let at = format!("{bytes} bytes, {protocol}, {connections} connections, {subject}");
        Some(figures.compared(at))
    }
}

// The output of `superpoll-lab files`: for each file, a line per server, and their calls by name.

/// Returns the table of processor times.
pub(crate) fn servers(rows: &[Row]) -> Table {
    table::of(
        rows,
        3,
        &[
            ("bytes", |row| row.bytes.to_string()),
            ("by", |row| row.protocol.clone()),
            ("server", |row| row.subject.clone()),
            ("connections", |row| row.connections.to_string()),
            ("cpu us/request", |row| format!("{:.2}", row.figures.cpu_ns_per_request_median / 1e3)),
            ("least", |row| format!("{:.2}", row.figures.cpu_ns_per_request_min / 1e3)),
            ("spread", |row| format!("{:.2}", row.figures.cpu_spread / 1e3)),
            ("requests/s", |row| format!("{:.0}", row.figures.requests_per_second)),
            ("generator", |row| format!("{:.0} %", row.figures.generator_busy * 100.0)),
            ("/ nginx", |row| table::headline(row.nginx_ratio)),
            ("90 %", |row| table::interval(row.nginx_ratio)),
            ("median", |row| table::median(row.nginx_ratio)),
            ("/ hyper", |row| table::headline(row.hyper_ratio)),
            ("90 %", |row| table::interval(row.hyper_ratio)),
            ("median", |row| table::median(row.hyper_ratio)),
            ("/ Caddy", |row| table::headline(row.caddy_ratio)),
            ("90 %", |row| table::interval(row.caddy_ratio)),
            ("waits/request", |row| table::number(row.figures.waits_per_request, 3)),
            ("epoll_ctl/request", |row| table::number(row.figures.epoll_ctl_per_request, 3)),
            ("calls/request", |row| table::number(row.strace_calls_per_request, 3)),
        ],
    )
}

/// Returns the table of calls by name, where strace has counted them; it is empty where strace has
/// not.
pub(crate) fn calls(rows: &[Row]) -> Table {
    table::of(
        rows.iter().filter(|row| !row.strace_calls.is_empty()),
        5,
        &[
            ("bytes", |row| row.bytes.to_string()),
            ("by", |row| row.protocol.clone()),
            ("server", |row| row.subject.clone()),
            ("connections", |row| row.connections.to_string()),
            ("calls by request", |row| table::calls(&row.strace_calls)),
        ],
    )
}

// The plots of `superpoll-lab files`: processor time of a request over the length of the file.

/// Returns the protocols and numbers of connections that were measured, in their order.
fn loads(rows: &[Row]) -> Vec<(&str, usize)> {
    table::distinct(rows.iter().map(|row| (&*row.protocol, row.connections)))
}

/// Plots a curve for each server with this protocol and number of connections; `None` if only one
/// file was measured.
fn over_bytes(rows: &[Row], protocol: &str, connections: usize) -> Option<Plot> {
    let is_own = |row: &&Row| (&*row.protocol, row.connections) == (protocol, connections);
    let own: Vec<&Row> = rows.iter().filter(is_own).collect();
    let title = format!("files by {protocol}: {connections} connections");
    plot::over_powers_of_ten(title, ["bytes", "server's cpu us per request"], &own, |row| {
        let time = row.figures.cpu_ns_per_request_median / 1e3;
        Some((row.subject.as_str(), (row.bytes as f64, time)))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::server::trial::Figures;
    use crate::statistics::Ratio;

    #[test]
    fn each_length_is_judged_at_64_connections() {
        let row = |subject: &str, bytes, connections, nginx: f64, hyper: f64| Row {
            subject: subject.to_owned(),
            protocol: http(),
            bytes,
            connections,
            nginx_ratio: Some(Ratio { median: nginx, ..Ratio::default() }),
            hyper_ratio: Some(Ratio { median: hyper, ..Ratio::default() }),
            figures: Figures { epoll_ctl_per_request: Some(0.1 * nginx), ..Figures::default() },
            ..Row::default()
        };
        let rows = [
            row("superpoll-epoll", 1024, 64, 0.45, 0.69),
            row("superpoll-adaptive", 1024, 64, 0.44, 0.71),
            row("superpoll-poll", 1024, 64, 3.0, 3.0),
            row("superpoll-epoll", 1024, 1, 3.0, 3.0),
            row("superpoll-epoll", 4096, 64, 3.0, 3.0),
            row("superpoll-epoll", 102_400, 64, 0.91, 3.0),
            Row { protocol: "https".to_owned(), ..row("superpoll-epoll", 1024, 64, 3.0, 3.0) },
        ];
        let targets = Files::targets(&rows);
        let kept: Vec<_> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.45, true), (0.71, false), (0.91, false), (0.1 * 0.45, true)]);
        assert!(Files::targets(&[]).is_empty());
        let alone = Row { nginx_ratio: None, hyper_ratio: None, ..rows[0].clone() };
        assert_eq!(Files::targets(&[alone]).len(), 1);
    }

    #[test]
    fn each_server_has_a_line_and_unknown_values_a_dash() {
        let row = |subject: &str, median: Option<f64>| Row {
            subject: subject.to_owned(),
            bytes: 1024,
            connections: 64,
            figures: Figures { cpu_ns_per_request_median: 4321.0, ..Figures::default() },
            nginx_ratio: median.map(|median| Ratio { median, low: 0.51, high: 0.62, decile: None }),
            strace_calls: BTreeMap::from([("read".to_owned(), 1.0), ("stat".to_owned(), 0.001)]),
            ..Row::default()
        };
        let rows = [row("superpoll-epoll", Some(0.57)), row("alone", None)];
        let text = servers(&rows).to_string();
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap().to_owned();
        assert!(line("superpoll-epoll").contains("4.32"), "{text}");
        assert!(line("superpoll-epoll").contains("0.51-0.62"), "{text}");
        assert!(line("alone").contains(" -"), "{text}");
        let text = calls(&rows).to_string();
        assert!(text.contains("read 1.00") && !text.contains("stat"), "{text}");
        assert!(calls(&[Row::default()]).rows().is_empty());
    }

    #[test]
    fn several_lengths_are_drawn() {
        let row = |bytes, connections, cpu_ns_per_request_median| Row {
            subject: "nginx".to_owned(),
            protocol: http(),
            bytes,
            connections,
            figures: Figures { cpu_ns_per_request_median, ..Figures::default() },
            ..Row::default()
        };
        let rows = [row(10, 64, 9000.0), row(1000, 64, 7000.0), row(10, 1, 5000.0)];
        assert_eq!(loads(&rows), [("http", 64), ("http", 1)]);
        let plot = over_bytes(&rows, "http", 64).unwrap();
        assert_eq!(plot.curves[0].points, [(1.0, 9.0), (3.0, 7.0)]);
        assert!(plot.svg().unwrap().contains("bytes"));
        assert!(over_bytes(&rows, "http", 1).is_none() && over_bytes(&rows, "h2", 64).is_none());
    }
}
