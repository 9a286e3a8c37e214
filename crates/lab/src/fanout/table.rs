//! The output of `superpoll-lab fanout`: a line for each server and kind of subscribers.

use crate::fanout::Row;
use crate::table::{self, Table};

/// Returns the table of deliveries.
pub(crate) fn deliveries(rows: &[Row]) -> Table {
    table::of(
        rows,
        2,
        &[
            ("server", |row| row.subject.clone()),
            ("subscribers by", |row| row.transport.clone()),
            ("number", |row| row.subscribers.to_string()),
            ("cpu ns/delivery", |row| format!("{:.0}", row.cpu_ns_per_delivery_median)),
            ("least", |row| format!("{:.0}", row.cpu_ns_per_delivery_min)),
            ("/ nchan", |row| table::headline(row.nchan_ratio)),
            ("90 %", |row| table::interval(row.nchan_ratio)),
            ("median", |row| table::median(row.nchan_ratio)),
            ("all have it, p50", |row| table::time(row.all_ns_p50)),
            ("p99", |row| table::time(row.all_ns_p99)),
            ("load busy", |row| format!("{:.0} %", 100.0 * row.figures.generator_busy)),
        ],
    )
}

/// Returns the table of subscribers: memory and connects.
pub(crate) fn subscribers(rows: &[Row]) -> Table {
    table::of(
        rows,
        2,
        &[
            ("server", |row| row.subject.clone()),
            ("subscribers by", |row| row.transport.clone()),
            ("number", |row| row.subscribers.to_string()),
            ("PSS, KiB each", |row| kibibytes(row.pss_bytes_per_subscriber)),
            ("first half", |row| kibibytes(row.first_half_pss_bytes_per_subscriber)),
            ("connect, cpu us", |row| format!("{:.1}", row.connect_cpu_ns_median / 1e3)),
            ("least", |row| format!("{:.1}", row.connect_cpu_ns_low / 1e3)),
            ("/ nchan", |row| table::headline(row.connect_nchan_ratio)),
            ("90 %", |row| table::interval(row.connect_nchan_ratio)),
        ],
    )
}

fn kibibytes(bytes: f64) -> String {
    format!("{:.2}", bytes / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Ratio;

    #[test]
    fn each_server_has_its_line_in_both_tables() {
        let row = Row {
            subject: "ours".to_owned(),
            transport: "sse".to_owned(),
            subscribers: 2000,
            cpu_ns_per_delivery_median: 6400.4,
            nchan_ratio: Some(Ratio { median: 0.61, low: 0.5, high: 0.7, decile: None }),
            all_ns_p50: 13_600_000.0,
            pss_bytes_per_subscriber: 256.0,
            connect_cpu_ns_median: 35_200.0,
            ..Row::default()
        };
        let rows = [row];
        for (table, parts) in [
            (deliveries(&rows), ["ours", "sse", "2000", "6400", "0.61", "0.50-0.70", "13.6 ms"]),
            (subscribers(&rows), ["ours", "sse", "2000", "0.25", "35.2", "-", "0.00"]),
        ] {
            let text = table.to_string();
            let last = text.lines().last().unwrap();
            for part in parts {
                assert!(last.contains(part), "{part} is missing in {text}");
            }
        }
    }
}
