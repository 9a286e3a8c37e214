//! The output of `superpoll-lab ring`: for each point its subjects, one line each.

use crate::grouping;
use crate::ring::Row;
use crate::table::{self, Table};

/// The points of a record, each with its rows, in the order in which they were measured.
pub(crate) fn points(rows: &[Row]) -> Vec<((usize, usize), Vec<&Row>)> {
    grouping::groups(rows, |row| (row.total, row.in_flight))
}

/// Formats a number of bytes in flight in words.
pub(crate) fn bytes(in_flight: usize) -> String {
    format!("{in_flight} byte{} in flight", if in_flight == 1 { "" } else { "s" })
}

/// A point in words.
pub(crate) fn name(total: usize, in_flight: usize) -> String {
    format!("{total} pipes, {}", bytes(in_flight))
}

/// The subjects of one point.
pub(crate) fn point(rows: &[&Row]) -> Table {
    table::of(
        rows,
        1,
        &[
            ("subject", |row| row.subject.clone()),
            ("ns/hop", |row| format!("{:.0}", row.ns_per_hop_median)),
            ("least", |row| format!("{:.0}", row.ns_per_hop_min)),
            ("spread", |row| format!("{:.0}", row.ns_per_hop_spread)),
            ("cpu/hop", |row| format!("{:.0}", row.cpu_ns_per_hop_min)),
            ("syscalls/hop", |row| table::number(row.syscalls_per_hop, 2)),
            ("reads/hop", |row| table::number(row.reads_per_hop, 2)),
            ("bytes/read", |row| format!("{:.2}", row.bytes_per_read)),
            ("hops/s", |row| format!("{:.0}", row.hops_per_second)),
            ("/ tokio", |row| table::ratio(row.to_tokio.headline())),
            ("90 %", |row| row.to_tokio.tokio_decile.map_or_else(String::new, table::span)),
            ("median", |row| table::ratio(row.to_tokio.tokio_ratio)),
            ("/ raw epoll", |row| table::ratio(row.to_raw_epoll())),
            ("90 %", |row| row.raw_epoll_decile.map_or_else(String::new, table::span)),
            ("median", |row| table::ratio(row.raw_epoll_ratio)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_point_has_its_table() {
        let row = |total, in_flight, subject: &str| Row {
            subject: subject.to_owned(),
            total,
            in_flight,
            ns_per_hop_median: 1234.0,
            ..Row::default()
        };
        let rows = [row(10, 1, "one"), row(20, 2, "one"), row(10, 1, "two")];
        let [(first, both), (second, _)] = &points(&rows)[..] else { panic!("two points") };
        assert_eq!(name(first.0, first.1), "10 pipes, 1 byte in flight");
        assert_eq!(name(second.0, second.1), "20 pipes, 2 bytes in flight");
        let text = point(both).to_string();
        assert!(text.contains("two") && text.contains("1234"), "{text}");
    }
}
