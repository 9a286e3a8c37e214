//! `superpoll-lab echo`: a server's processor time for a request that is nothing but input and
//! output.
//!
//! A thousand connections; on each, one short message is under way, to the server or back. The
//! server sends its input back, so the cost is that of the kernel's sockets and of the way to wait
//! for them: loops of C programmers on epoll and on io_uring (`sys/uring/echo.rs`), our poller and
//! our batch reader, our runtime with a task for each connection (`ours.rs`); and as many
//! competitors: pollers of Rust and of C, which all loops of pollers read and write like
//! (`drain.rs`), runtimes with a task for each connection, each in its file, and Go with a
//! goroutine.
//!
//! Each server lives in a process of its own on one processor and is given its end of every
//! connection when it starts (`server`). The load generator on another processor (`load.rs`) knows
//! what each answer must be, checks every byte of it, and sends the next request at once; it takes
//! the servers in turn, round by round (`trial.rs`). The figure is the processor time of the
//! server's process per request. The report gives the generator's own load as well: a server that
//! is quicker than the generator runs out of requests, sleeps, and finds fewer requests at a time
//! when it wakes up.

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::plot::{self, Plot};
use crate::server::trial::Figures;
use crate::statistics::Ratio;
use crate::table::{self, Part, Table};

#[cfg(feature = "rivals-rt")]
mod compio;
pub(crate) mod drain;
pub(crate) mod load;
#[cfg(feature = "rivals-rt")]
mod monoio;
pub(crate) mod ours;
#[cfg(feature = "rivals-rt")]
mod smol;
pub(crate) mod subject;
#[cfg(feature = "rivals-rt")]
pub(crate) mod tokio;
mod trial;

crate::options::options! {
    /// Options of `superpoll-lab echo`.
    pub(crate) struct Options;

    /// Connections to each server, with commas
    connections: String = LIST "1000",
    /// 1, 10, 100 and 1000 connections
    #[arg(conflicts_with = "connections")]
    sweep: bool,
    /// The length of a request
    bytes: usize = N 64,
    /// tcp, unix or all
    kind: String = LIST "tcp",
    /// Servers to measure, with commas, or all
    subjects: Option<String> = LIST,
}

/// One server with one number of connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The server.
    pub subject: String,
    /// `tcp` or `unix`.
    pub kind: String,
    /// Connections, each with one request under way.
    pub connections: usize,
    /// The length of a request.
    pub bytes: usize,
    /// The times of its rounds.
    #[serde(flatten)]
    pub figures: Figures,
    /// Processor time against that of the level-triggered epoll loop.
    pub raw_epoll_ratio: Option<Ratio>,
    /// Processor time against that of tokio.
    pub tokio_ratio: Option<Ratio>,
}

// The experiment `echo`, for the command line and the report.

/// The comparison of a server with another.
type Against = fn(&Row) -> Option<Ratio>;

/// The experiment with servers that echo their input.
#[derive(Debug)]
pub(crate) struct Echo;

impl Experiment for Echo {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "echo";
    const TITLE: &'static str = "cost of a request to an echo server";
    const METHOD: &'static str = "Each server echoes its input, on connections of which each has one short request \
             under way; every byte of every answer is checked. Measured is the processor time of the \
             server's process, which has a processor to itself; ratios are those of each round. \
             “Generator” is the share of its own processor that the load generator needs: at 100 % the \
             server has to wait for it, finds fewer requests at a time, and sleeps in between.";
    const QUICK: &'static str = "echo --quick --seconds 14";
    const FULL: &'static str = "echo --sweep --kind all --paced --seconds 120";
    const MEASURED: &'static str =
        "processor time of a server that echoes its input, for one request";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let plots = kinds(rows)
            .into_iter()
            .map(|kind| Part::plot(format!("echo-{kind}.svg"), over_connections(rows, kind)));
        plots.chain([Part::Table(servers(rows))]).collect()
    }

    /// Returns the targets that `superpoll-lab echo` measures, with a thousand TCP connections.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| format!("{} bytes", row.bytes));
        let against: [(&str, f64, Against); 2] = [
            ("raw epoll", 0.95, |row| row.raw_epoll_ratio),
            ("tokio", 0.92, |row| row.tokio_ratio),
        ];
        for subject in ["superpoll-rt-uring", "superpoll-reader-uring"] {
            let applies =
                |row: &Row| (&*row.subject, &*row.kind, row.connections) == (subject, "tcp", 1000);
            for (other, bound, ratio) in against {
                let name = format!("echo, 1000 TCP connections: CPU of {subject} / {other}");
                targets.add(name, bound, applies, |row| Some(ratio(row)?.headline().value));
            }
        }
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        let Row { subject, kind, connections, figures, .. } = row;
        Some(figures.compared(format!("{connections} connections by {kind}, {subject}")))
    }
}

// The output of `superpoll-lab echo`: for each kind and number of connections, a line per server.

/// Returns the table of all servers.
pub(crate) fn servers(rows: &[Row]) -> Table {
    table::of(
        rows,
        2,
        &[
            ("server", |row| row.subject.clone()),
            ("kind", |row| row.kind.clone()),
            ("connections", |row| row.connections.to_string()),
            ("cpu ns/request", |row| format!("{:.0}", row.figures.cpu_ns_per_request_median)),
            ("least", |row| format!("{:.0}", row.figures.cpu_ns_per_request_min)),
            ("spread", |row| format!("{:.0}", row.figures.cpu_spread)),
            ("requests/s", |row| format!("{:.0}", row.figures.requests_per_second)),
            ("generator", |row| format!("{:.0} %", row.figures.generator_busy * 100.0)),
            ("waits/request", |row| table::number(row.figures.waits_per_request, 3)),
            ("epoll_ctl/request", |row| table::number(row.figures.epoll_ctl_per_request, 3)),
            ("/ raw-epoll", |row| table::headline(row.raw_epoll_ratio)),
            ("90 %", |row| table::interval(row.raw_epoll_ratio)),
            ("median", |row| table::median(row.raw_epoll_ratio)),
            ("/ tokio", |row| table::headline(row.tokio_ratio)),
            ("90 %", |row| table::interval(row.tokio_ratio)),
            ("median", |row| table::median(row.tokio_ratio)),
        ],
    )
}

// The plots of `superpoll-lab echo`: processor time of a request, over the number of connections.

/// Plots a curve for each server, for one kind of sockets; `None` if only one number of connections
/// was measured.
pub(crate) fn over_connections(rows: &[Row], kind: &str) -> Option<Plot> {
    let own: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
    let title = format!("one request under way on each connection, {kind}");
    plot::over_powers_of_ten(title, ["connections", "server's cpu ns per request"], &own, |row| {
        let time = row.figures.cpu_ns_per_request_median;
        Some((row.subject.as_str(), (row.connections as f64, time)))
    })
}

/// Returns the kinds of sockets, in the order of their rows.
pub(crate) fn kinds(rows: &[Row]) -> Vec<&str> {
    table::distinct(rows.iter().map(|row| row.kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::trial::Figures;
    use crate::statistics::Ratio;

    #[test]
    fn echo_servers_are_judged_at_a_thousand_tcp_connections() {
        let row = |subject: &str, kind: &str, connections, raw, tokio: Option<f64>| {
            let ratio = |median| Ratio { median, ..Ratio::default() };
            Row {
                subject: subject.to_owned(),
                kind: kind.to_owned(),
                connections,
                raw_epoll_ratio: Some(ratio(raw)),
                tokio_ratio: tokio.map(ratio),
                ..Row::default()
            }
        };
        let rows = [
            row("superpoll-rt-uring", "tcp", 1000, 0.96, Some(0.91)),
            row("superpoll-rt-uring", "tcp", 10, 3.0, Some(3.0)),
            row("superpoll-rt-uring", "unix", 1000, 3.0, Some(3.0)),
            row("superpoll-rt-epoll", "tcp", 1000, 3.0, Some(3.0)),
            row("superpoll-reader-uring", "tcp", 1000, 0.9, None),
        ];
        let kept: Vec<(f64, bool)> =
            Echo::targets(&rows).iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.96, false), (0.91, true), (0.9, true)]);
    }

    #[test]
    fn each_server_has_a_line_and_unknown_values_a_dash() {
        let row = |subject: &str, waits_per_request, tokio_ratio| Row {
            subject: subject.to_owned(),
            connections: 64,
            figures: Figures {
                cpu_ns_per_request_median: 4321.0,
                generator_busy: 0.98,
                waits_per_request,
                ..Figures::default()
            },
            tokio_ratio,
            ..Row::default()
        };
        let ratio = Ratio { median: 0.93, low: 0.9, high: 1.01, decile: None };
        let text =
            servers(&[row("raw", None, None), row("ours", Some(0.25), Some(ratio))]).to_string();
        let line =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(line("raw").contains("4321") && line("raw").ends_with("  -"), "{text}");
        for part in ["0.250", "0.93  0.90-1.01", "98 %"] {
            assert!(line("ours").contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn several_numbers_of_connections_are_drawn_for_each_kind() {
        let row = |kind: &str, connections, cpu_ns_per_request_median| Row {
            subject: "raw-epoll".to_owned(),
            kind: kind.to_owned(),
            connections,
            figures: Figures { cpu_ns_per_request_median, ..Figures::default() },
            ..Row::default()
        };
        let rows = [row("tcp", 1, 9000.0), row("tcp", 100, 7000.0), row("unix", 1, 3000.0)];
        assert_eq!(kinds(&rows), ["tcp", "unix"]);
        let plot = over_connections(&rows, "tcp").unwrap();
        assert_eq!(plot.curves[0].points, [(0.0, 9000.0), (2.0, 7000.0)]);
        assert!(plot.svg().unwrap().contains("connections"));
        assert!(over_connections(&rows, "unix").is_none());
    }
}
