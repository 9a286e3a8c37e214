//! The output of `superpoll-lab idle`: a line for each kind of connection to each server.

use crate::idle::{Row, Spread};
use crate::table::{self, Table};

fn bytes(spread: Spread) -> String {
    format!("{:.0}", spread.median)
}

fn range(spread: Spread) -> String {
    format!("{:.0}-{:.0}", spread.least, spread.most)
}

/// The table of all rows.
pub(crate) fn connections(rows: &[Row]) -> Table {
    table::of(
        rows,
        2,
        &[
            ("server", |row| row.subject.clone()),
            ("arrival", |row| row.arrival.clone()),
            ("connections", |row| row.connections.to_string()),
            ("user bytes", |row| bytes(row.user_bytes_per_connection)),
            ("least-most", |row| range(row.user_bytes_per_connection)),
            ("first half", |row| bytes(row.first_half_bytes_per_connection)),
            ("left, KiB", |row| format!("{:.0}", row.left_bytes / 1024.0)),
            ("slab bytes", |row| bytes(row.slab_bytes_per_connection)),
            ("least-most", |row| range(row.slab_bytes_per_connection)),
            ("socket bytes", |row| bytes(row.socket_bytes_per_connection)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_line() {
        let user = Spread { median: 812.4, least: 700.0, most: 900.0 };
        let row = Row {
            subject: "ours".to_owned(),
            arrival: "burst".to_owned(),
            connections: 4000,
            user_bytes_per_connection: user,
            left_bytes: 51_200.0,
            ..Row::default()
        };
        let text = connections(&[row]).to_string();
        let last = text.lines().last().unwrap();
        for part in ["ours", "burst", "4000", "812", "700-900", "50"] {
            assert!(last.contains(part), "{part} is missing in {text}");
        }
    }
}
