//! The experiment `relay`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::part::Part;
use crate::relay::{Options, Row, plot, table, trial};
use crate::target::{Target, Targets};

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
             “keep-alive” leaves connections open; “bulk” are long answers, which relays splice. Those \
             called “waits” do not speculate: they watch each direction before they try it. Calls are \
             counted by the relay itself, and by strace in another run, in which the relay is slower.";
    const QUICK: &'static str = "relay --quick --load connection,one-by-one,http-connection --forwarded 400 --seconds 12 --subjects superpoll-epoll,superpoll-epoll-waits,haproxy";
    const FULL: &'static str = "relay --paced --seconds 150";
    const MEASURED: &'static str = "processor time of a relay for one request";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![
            Part::plot("relay.svg", plot::over_loads(rows)),
            Part::Table(table::relays(rows)),
            Part::text("System calls by name, for one request:"),
            Part::Table(table::calls(rows)),
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

#[cfg(test)]
mod tests {
    use super::*;
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
}
