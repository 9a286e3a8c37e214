//! `superpoll-lab relay`: the cost to pass a connection on, with and without speculation, compared
//! with haproxy, nginx and Caddy.
//!
//! Text 003 (haproxy's *merge speculative I/O into polled I/O*) counted the system calls of 10,000
//! forwarded connections. This experiment does so again. A relay stands between clients and an
//! origin. Its calls for each connection are counted by name, by its own counters and, where
//! `strace` is installed, by the kernel's. Next to them stands the processor time, which is the
//! purpose of saving calls.
//!
//! Four loads are of bytes (`load`): a new connection for each request, which the origin closes
//! after its answer, of many clients or of a single client; requests on connections that stay open;
//! and bulk, long answers that a relay should splice. Two are of HTTP, with a reverse proxy in
//! place of the relay: a client's connection for each request, which the proxy closes, and
//! connections that stay open; in both, proxies keep their connections to the origin. Four have TLS
//! between clients and the proxy: a connection for each request, with a full handshake or one that
//! resumes a session, and HTTP/1 and HTTP/2 on connections that stay open. The difference between
//! `https-full` and `http-connection` is the cost of a handshake. One epoll loop on one processor
//! plays all clients and the origin, and checks each byte on both sides. The relays are ours on
//! each back-end, with and without speculation, and haproxy, nginx and Caddy where they are
//! installed (`peers.rs`). Each runs in a process of its own on another processor; they take turns,
//! round by round (`trial.rs`). Congestion control is the same plain algorithm in all of them; for
//! this the experiment has a network of its own where permitted. An algorithm that paces, like bbr,
//! would add a timer's share to every figure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
pub(crate) use crate::relay::peers::kernel_name;
use crate::server::trial::Figures;
use crate::statistics::Ratio;
use crate::table::{self, Part, Table};

mod load;
pub(crate) mod peers;
pub(crate) mod strace;
mod trial;

crate::options::options! {
    /// Options of `superpoll-lab relay`.
    pub(crate) struct Options;

    /// connection (one for each request), one-by-one (the same with a single client), keep-alive,
    /// bulk, http-connection, http-keep-alive, https-full and https-resumed (a handshake for each),
    /// https-keep-alive, h2, or all, with commas
    load: String = LIST "all",
    /// Connections at a time where each request has its own
    connections: usize = N 128,
    /// Connections that are kept open; by HTTP/2 an eighth, each with eight requests under way
    keep_alive: usize = N 64,
    /// Connections that are counted, and traced with strace
    forwarded: u64 = N 10_000,
    /// The length of an answer; a request has 100 bytes, or a little more as HTTP
    bytes: usize = N 200,
    /// The length of an answer in bulk, in MiB
    mebibytes: usize = N 64,
    /// Relays to measure, with commas, or all
    subjects: Option<String> = LIST,
}

/// One relay under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The relay.
    pub subject: String,
    /// `connection`, `one-by-one`, `keep-alive`, `bulk`, `http-connection`, `http-keep-alive`,
    /// `https-full`, `https-resumed`, `https-keep-alive` or `h2`.
    pub load: String,
    /// Connections at a time, with one request under way on each, or eight by HTTP/2.
    pub connections: usize,
    /// The length of an answer.
    pub bytes: usize,
    /// The figures of its rounds.
    #[serde(flatten)]
    pub figures: Figures,
    /// Connections of the origin per request: below one where a proxy reuses its connections.
    pub origin_connections_per_request: f64,
    /// Processor time relative to haproxy, which splices in bulk.
    pub haproxy_ratio: Option<Ratio>,
    /// Processor time relative to nginx.
    pub nginx_ratio: Option<Ratio>,
    /// Processor time relative to Caddy.
    pub caddy_ratio: Option<Ratio>,
    /// Processor time relative to the same relay without speculation.
    pub waits_ratio: Option<Ratio>,
    /// System calls per request, by the relay's own counters.
    pub calls_per_request: Option<f64>,
    /// The same by name.
    pub calls: BTreeMap<String, f64>,
    /// System calls per request during the trace, by the relay's own counters.
    pub calls_per_traced_request: Option<f64>,
    /// System calls per request, by `strace -c`.
    pub strace_calls_per_request: Option<f64>,
    /// The same by name.
    pub strace_calls: BTreeMap<String, f64>,
}

// The experiment `relay`, for the command line and the report.

/// Our relays that are meant for use.
const OURS: [&str; 2] = ["superpoll-epoll", "superpoll-adaptive"];

/// For each load and number of connections, the maximum ratio of processor time to haproxy's.
const AGAINST_HAPROXY: [(&str, usize, f64); 5] = [
    ("connection", 128, 0.80),
    ("keep-alive", 64, 0.85),
    ("bulk", 4, 0.60),
    ("http-keep-alive", 64, 0.80),
    ("http-connection", 128, 0.85),
];

/// The maximum ratio of processor time to nginx's, as a proxy on connections that stay open.
const AGAINST_NGINX: f64 = 0.90;

/// The maximum of system calls per request when each request has a connection of its own.
const CALLS: f64 = 11.5;

/// Relays and proxies.
#[derive(Debug)]
pub(crate) struct Relay;

impl Experiment for Relay {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "relay";
    const TITLE: &'static str = "cost of forwarding a connection";
    const METHOD: &'static str = "A relay stands between clients and an origin, in a process and on a processor of its own. \
             “connection” is a new connection for each request, which the origin closes after its answer, and \
             “one-by-one” the same with a single client; \
             “keep-alive” leaves connections open; “bulk” are long answers, which relays splice. With TLS, \
             “https-full” and “https-resumed” have a handshake for each request, and “h2” is HTTP/2 to an \
             origin of HTTP/1. Those \
             called “waits” do not speculate: they watch each direction before they try it. Calls are \
             counted by the relay itself, and by strace in another run, in which the relay is slower.";
    const QUICK: &'static str = "relay --quick --load connection,one-by-one,http-connection --forwarded 400 --seconds 12 --subjects superpoll-epoll,superpoll-epoll-waits,haproxy";
    const FULL: &'static str = "relay --paced --seconds 250";
    const MEASURED: &'static str = "processor time of a relay for one request";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![
            Part::Table(relays(rows)),
            Part::text("System calls by name, for one request:"),
            Part::Table(calls(rows)),
            Part::List("What speculation saves of three calls:", overall(rows)),
        ]
    }

    /// The targets that `superpoll-lab relay` measures.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| row.subject.clone());
        let ours = |row: &Row, load: &str, connections: usize| {
            (&*row.load, row.connections) == (load, connections) && OURS.contains(&&*row.subject)
        };
        for (load, connections, bound) in AGAINST_HAPROXY {
            let ratio = |row: &Row| Some(row.haproxy_ratio?.headline().value);
            let name = format!("relay, {load}: CPU / haproxy");
            targets.add(name, bound, |row| ours(row, load, connections), ratio);
        }
        let keep_alive = |row: &Row| ours(row, "http-keep-alive", 64);
        let ratio = |row: &Row| Some(row.nginx_ratio?.headline().value);
        targets.add("relay, http-keep-alive: CPU / nginx", AGAINST_NGINX, keep_alive, ratio);
        let connection = |row: &Row| ours(row, "connection", 128);
        targets.add("relay, connection: system calls", CALLS, connection, |r| r.calls_per_request);
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        let Row { subject, load, connections, figures, .. } = row;
        Some(figures.compared(format!("{load}, {connections} connections, {subject}")))
    }
}

// The output of `superpoll-lab relay`: the processor time of each relay under each load, and its
// calls by name.

/// The table of processor time.
pub(crate) fn relays(rows: &[Row]) -> Table {
    table::of(
        rows,
        2,
        &[
            ("load", |row| row.load.clone()),
            ("relay", |row| row.subject.clone()),
            ("connections", |row| row.connections.to_string()),
            ("cpu us/request", |row| format!("{:.2}", row.figures.cpu_ns_per_request_median / 1e3)),
            ("least", |row| format!("{:.2}", row.figures.cpu_ns_per_request_min / 1e3)),
            ("requests/s", |row| format!("{:.0}", row.figures.requests_per_second)),
            ("load busy", |row| format!("{:.2}", row.figures.generator_busy)),
            ("to origin/request", |row| format!("{:.2}", row.origin_connections_per_request)),
            ("/ haproxy", |row| table::headline(row.haproxy_ratio)),
            ("90 %", |row| table::interval(row.haproxy_ratio)),
            ("median", |row| table::median(row.haproxy_ratio)),
            ("/ nginx", |row| table::headline(row.nginx_ratio)),
            ("90 %", |row| table::interval(row.nginx_ratio)),
            ("median", |row| table::median(row.nginx_ratio)),
            ("/ Caddy", |row| table::headline(row.caddy_ratio)),
            ("90 %", |row| table::interval(row.caddy_ratio)),
            ("/ without speculation", |row| table::headline(row.waits_ratio)),
            ("90 %", |row| table::interval(row.waits_ratio)),
            ("median", |row| table::median(row.waits_ratio)),
            ("calls/request", |row| table::number(row.calls_per_request, 2)),
            ("traced", |row| table::number(row.calls_per_traced_request, 2)),
            ("by strace", |row| table::number(row.strace_calls_per_request, 2)),
        ],
    )
}

/// The table of calls by name, as the relay counts them and as strace does.
pub(crate) fn calls(rows: &[Row]) -> Table {
    let mut table = Table::new(["load", "relay", "counted by", "calls by request"]).names(4);
    for row in rows {
        for (by, calls) in [("itself", &row.calls), ("strace", &row.strace_calls)] {
            if !calls.is_empty() {
                table.row([
                    row.load.clone(),
                    row.subject.clone(),
                    by.to_owned(),
                    table::calls(calls),
                ]);
            }
        }
    }
    table
}

/// The calls that the text about speculation counts, each with its names in a trace.
const COUNTED: [(&str, &[&str]); 3] = [
    ("epoll_wait", &["epoll_wait", "epoll_pwait", "epoll_pwait2"]),
    ("recvfrom", &["recvfrom", "read", "recvmsg"]),
    ("epoll_ctl", &["epoll_ctl"]),
];

/// Returns a line for each load with the calls of a relay compared with those of the same relay
/// without speculation: by strace, or by their own counters where there is no strace.
fn overall(rows: &[Row]) -> Vec<String> {
    let line = |row: &Row| {
        let waits = rows.iter().find(|other| {
            other.subject == format!("{}-waits", row.subject)
                && (&other.load, other.connections) == (&row.load, row.connections)
        })?;
        let is_traced = !row.strace_calls.is_empty() && !waits.strace_calls.is_empty();
        let of = |row: &Row, names: &[&str]| -> f64 {
            let calls = if is_traced { &row.strace_calls } else { &row.calls };
            names.iter().filter_map(|name| calls.get(*name)).sum()
        };
        let saved = COUNTED.iter().map(|(name, names)| match of(waits, names) {
            before if before < 0.005 => format!("no {name} either way"),
            before => format!("{:+.1} % {name}", (of(row, names) / before - 1.0) * 100.0),
        });
        let saved = saved.collect::<Vec<_>>().join(", ");
        Some(format!("{}, {}: overall: {saved}", row.load, row.subject))
    };
    rows.iter().filter_map(line).collect()
}

// The plot of `superpoll-lab relay`: processor time of each relay under each load, relative to
// haproxy.

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::trial::Figures;
    use crate::statistics::Ratio;

    #[test]
    fn each_load_is_judged_at_its_connections() {
        let ratio = |median| Ratio { median, low: median, high: median, ..Ratio::default() };
        let row = |subject: &str, load: &str, connections, median| Row {
            subject: subject.to_owned(),
            load: load.to_owned(),
            connections,
            haproxy_ratio: Some(ratio(median)),
            calls_per_request: Some(20.0 * median),
            ..Row::default()
        };
        let rows = [
            row("superpoll-epoll", "connection", 128, 0.8),
            row("superpoll-adaptive", "connection", 128, 0.7),
            row("superpoll-poll", "connection", 128, 3.0),
            row("superpoll-epoll", "connection", 1, 3.0),
            row("superpoll-epoll", "bulk", 4, 0.7),
            row("superpoll-epoll", "http-keep-alive", 64, 0.79),
            row("superpoll-adaptive", "http-keep-alive", 64, 0.81),
            row("superpoll-epoll", "http-connection", 128, 0.84),
            Row {
                nginx_ratio: Some(ratio(0.89)),
                ..row("superpoll-epoll", "http-keep-alive", 64, 0.1)
            },
        ];
        let targets = Relay::targets(&rows);
        let kept: Vec<_> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        let expected =
            [(0.8, true), (0.7, false), (0.81, false), (0.84, true), (0.89, true), (16.0, false)];
        assert_eq!(kept, expected);
        assert!(Relay::targets(&[]).is_empty());
    }

    #[test]
    fn a_line_says_what_speculation_saves_overall() {
        let row = |subject: &str, calls: &[(&str, f64)]| Row {
            subject: subject.to_owned(),
            load: "one-by-one".to_owned(),
            strace_calls: calls.iter().map(|&(name, count)| (name.to_owned(), count)).collect(),
            ..Row::default()
        };
        let rows = [
            row("ours", &[("epoll_wait", 4.0), ("epoll_pwait2", 1.0), ("read", 2.0)]),
            row("ours-waits", &[("epoll_wait", 6.0), ("read", 2.5), ("epoll_ctl", 4.0)]),
            row("nginx", &[("epoll_wait", 6.0)]),
        ];
        let line =
            "one-by-one, ours: overall: -16.7 % epoll_wait, -20.0 % recvfrom, -100.0 % epoll_ctl";
        assert_eq!(overall(&rows), [line]);
        assert!(overall(&rows[..1]).is_empty());
    }

    #[test]
    fn relays_have_a_line_and_their_calls_one_for_each_counter() {
        let calls_of = |pairs: &[(&str, f64)]| {
            pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        let ours = Row {
            subject: "superpoll-epoll".to_owned(),
            load: "connection".to_owned(),
            figures: Figures { cpu_ns_per_request_median: 43_210.0, ..Figures::default() },
            haproxy_ratio: Some(Ratio { median: 0.8, low: 0.7, high: 0.9, decile: None }),
            calls_per_request: Some(12.3),
            calls: calls_of(&[("close", 2.0), ("read", 4.0), ("fcntl", 0.001)]),
            strace_calls: calls_of(&[("read", 4.01)]),
            ..Row::default()
        };
        let rows = [ours, Row { subject: "nginx".to_owned(), ..Row::default() }];
        let text = relays(&rows).to_string();
        assert!(
            text.contains("43.21") && text.contains("0.80") && text.contains("12.30"),
            "{text}"
        );
        let text = calls(&rows).to_string();
        assert!(text.contains("read 4.00, close 2.00\n") && text.contains("read 4.01"), "{text}");
        assert!(!text.contains("nginx") && !text.contains("fcntl"), "{text}");
    }
}
