//! The output of `superpoll-lab atr --latency` and `superpoll-lab mix --latency`: a line for each
//! subject and number of descriptors.

use crate::latency::Row;
use crate::table::{self, Table};

/// Returns the table of all wake-ups.
pub(crate) fn wake_ups(rows: &[Row]) -> Table {
    table::of(
        rows,
        3,
        &[
            ("kind", |row| row.kind.clone()),
            ("load", |row| row.load.clone()),
            ("subject", |row| row.subject.clone()),
            ("descriptors", |row| row.total.to_string()),
            ("busy", |row| row.hot.to_string()),
            ("p50", |row| table::time(row.times.wake_ns_p50)),
            ("p90", |row| table::time(row.times.wake_ns_p90)),
            ("p99", |row| table::time(row.wake_ns_p99)),
            ("slowest", |row| table::time(row.wake_ns_max)),
            ("p50 / epoll", |row| table::ratio(row.times.p50_ratio)),
            ("p99 / epoll", |row| table::ratio(row.p99_ratio)),
            ("wake-ups", |row| row.times.samples.to_string()),
            ("awake", |row| row.awake.to_string()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waking::Times;

    #[test]
    fn each_subject_has_a_line_and_unknown_values_a_dash() {
        let row = Row {
            kind: "pipe".to_owned(),
            load: "mixed".to_owned(),
            subject: "poll".to_owned(),
            total: 1000,
            hot: 50,
            times: Times {
                samples: 77,
                wake_ns_p50: 25_000.0,
                p50_ratio: Some(3.0),
                ..Times::default()
            },
            awake: 3,
            wake_ns_p99: 950.0,
            ..Row::default()
        };
        let text = wake_ups(&[row]).to_string();
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        let start = ["pipe", "mixed", "poll", "1000", "50", "25.0", "us"];
        assert_eq!(last[..7], start, "{text}");
        assert_eq!(last[last.len() - 4..], ["3.00", "-", "77", "3"], "{text}");
    }
}
