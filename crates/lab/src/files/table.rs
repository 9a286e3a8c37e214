//! What `superpoll-lab files` prints: for each file its servers, a line each, and their calls by name.

use crate::echo::Ratio;
use crate::files::Row;
use crate::table::{self, Table};

/// Calls that are made less often than once in so many requests are left out of the table.
const RARE: f64 = 0.005;

/// Processor time.
pub fn servers(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "bytes",
        "server",
        "connections",
        "cpu us/request",
        "least",
        "spread",
        "requests/s",
        "generator",
        "/ nginx",
        "10-90 %",
        "/ hyper",
        "10-90 %",
        "waits/request",
        "epoll_ctl/request",
        "calls/request",
    ])
    .names(2);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.3}"));
    for row in rows {
        let [nginx, nginx_spread] = ratio(row.nginx_ratio);
        let [hyper, hyper_spread] = ratio(row.hyper_ratio);
        table.row([
            row.bytes.to_string(),
            row.subject.clone(),
            row.connections.to_string(),
            format!("{:.2}", row.cpu_ns_per_request_median / 1e3),
            format!("{:.2}", row.cpu_ns_per_request_min / 1e3),
            format!("{:.2}", row.cpu_spread / 1e3),
            format!("{:.0}", row.requests_per_second),
            format!("{:.0} %", row.generator_busy * 100.0),
            nginx,
            nginx_spread,
            hyper,
            hyper_spread,
            number(row.waits_per_request),
            number(row.epoll_ctl_per_request),
            number(row.strace_calls_per_request),
        ]);
    }
    table
}

fn ratio(ratio: Option<Ratio>) -> [String; 2] {
    let spread = ratio.map(|ratio| format!("{:.2}-{:.2}", ratio.low, ratio.high));
    [table::ratio(ratio.map(|ratio| ratio.median)), spread.unwrap_or_else(|| "-".to_owned())]
}

/// Calls by name, where strace has counted them; no lines where it has not.
pub fn calls(rows: &[Row]) -> Table {
    let mut table = Table::new(["bytes", "server", "connections", "calls by request"]).names(4);
    for row in rows.iter().filter(|row| !row.strace_calls.is_empty()) {
        let mut calls: Vec<_> =
            row.strace_calls.iter().filter(|(_, count)| **count >= RARE).collect();
        calls.sort_by(|one, other| other.1.total_cmp(one.1));
        let words: Vec<String> =
            calls.into_iter().map(|(name, count)| format!("{name} {count:.2}")).collect();
        table.row([
            row.bytes.to_string(),
            row.subject.clone(),
            row.connections.to_string(),
            words.join(", "),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_server_has_its_line_and_what_is_unknown_a_dash() {
        let row = |subject: &str, median: Option<f64>| Row {
            subject: subject.to_owned(),
            bytes: 1024,
            connections: 64,
            cpu_ns_per_request_median: 4321.0,
            nginx_ratio: median.map(|median| Ratio { median, low: 0.51, high: 0.62 }),
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
}
