//! The output of `superpoll-lab relay`: the processor time of each relay under each load, and its
//! calls by name.

use crate::relay::Row;
use crate::table::{self, Table};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::turns::Figures;
    use crate::statistics::Ratio;

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
