//! What `superpoll-lab idle` prints: a line for each kind of connections to each server.

use crate::idle::{Row, Spread};
use crate::table::Table;

/// All of them.
pub fn connections(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "server",
        "arrival",
        "connections",
        "user bytes",
        "least-most",
        "first half",
        "left, KiB",
        "slab bytes",
        "least-most",
        "socket bytes",
    ])
    .names(2);
    for row in rows {
        let bytes = |spread: Spread| format!("{:.0}", spread.median);
        let range = |spread: Spread| format!("{:.0}-{:.0}", spread.least, spread.most);
        table.row([
            row.subject.clone(),
            row.arrival.clone(),
            row.connections.to_string(),
            bytes(row.user_bytes_per_connection),
            range(row.user_bytes_per_connection),
            bytes(row.first_half_bytes_per_connection),
            format!("{:.0}", row.left_bytes / 1024.0),
            bytes(row.slab_bytes_per_connection),
            range(row.slab_bytes_per_connection),
            bytes(row.socket_bytes_per_connection),
        ]);
    }
    table
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
