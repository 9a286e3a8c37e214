//! What `superpoll-lab relay` prints: the processor time of each relay under each load, and its calls by name.

use std::collections::BTreeMap;

use crate::relay::{Ratio, Row};
use crate::table::{self, Table};

/// Calls that are made less often than once in so many requests are left out of the table.
const RARE: f64 = 0.005;

/// Processor time.
pub fn relays(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "load",
        "relay",
        "connections",
        "cpu us/request",
        "least",
        "requests/s",
        "load busy",
        "to origin/request",
        "/ haproxy",
        "/ nginx",
        "/ without speculation",
        "calls/request",
        "traced",
        "by strace",
    ])
    .names(2);
    let ratio = |ratio: Option<Ratio>| table::ratio(ratio.map(|ratio| ratio.median));
    let calls =
        |calls: Option<f64>| calls.map_or_else(|| "-".to_owned(), |calls| format!("{calls:.2}"));
    for row in rows {
        table.row([
            row.load.clone(),
            row.subject.clone(),
            row.connections.to_string(),
            format!("{:.2}", row.cpu_ns_per_request_median / 1e3),
            format!("{:.2}", row.cpu_ns_per_request_min / 1e3),
            format!("{:.0}", row.requests_per_second),
            format!("{:.2}", row.generator_busy),
            format!("{:.2}", row.origin_connections_per_request),
            ratio(row.haproxy_ratio),
            ratio(row.nginx_ratio),
            ratio(row.waits_ratio),
            calls(row.calls_per_request),
            calls(row.calls_per_traced_request),
            calls(row.strace_calls_per_request),
        ]);
    }
    table
}

/// Calls by name, as the relay counts them and as strace does.
pub fn calls(rows: &[Row]) -> Table {
    let mut table = Table::new(["load", "relay", "counted by", "calls by request"]).names(4);
    for row in rows {
        for (by, calls) in [("itself", &row.calls), ("strace", &row.strace_calls)] {
            if !calls.is_empty() {
                table.row([row.load.clone(), row.subject.clone(), by.to_owned(), line(calls)]);
            }
        }
    }
    table
}

fn line(calls: &BTreeMap<String, f64>) -> String {
    let mut calls: Vec<_> = calls.iter().filter(|(_, count)| **count >= RARE).collect();
    calls.sort_by(|one, other| other.1.total_cmp(one.1));
    let words: Vec<String> =
        calls.into_iter().map(|(name, count)| format!("{name} {count:.2}")).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_have_a_line_and_their_calls_one_for_each_who_counted() {
        let calls_of = |pairs: &[(&str, f64)]| {
            pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        let ours = Row {
            subject: "superpoll-epoll".to_owned(),
            load: "connection".to_owned(),
            cpu_ns_per_request_median: 43_210.0,
            haproxy_ratio: Some(Ratio { median: 0.8, low: 0.7, high: 0.9 }),
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
