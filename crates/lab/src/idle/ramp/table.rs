//! What `superpoll-lab idle --ramp` prints: a line for each step of each kind of connections.

use crate::idle::ramp::Row;
use crate::table::Table;

/// All of them.
pub fn steps(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "server",
        "connections",
        "processes",
        "user bytes",
        "slab bytes",
        "socket bytes",
        "machine bytes",
        "available MiB",
        "seconds",
        "ended by",
    ]);
    for row in rows {
        let bytes = |bytes: f64| format!("{bytes:.0}");
        table.row([
            row.subject.clone(),
            row.connections.to_string(),
            row.servers.to_string(),
            bytes(row.user_bytes_per_connection),
            bytes(row.slab_bytes_per_connection),
            bytes(row.socket_bytes_per_connection),
            bytes(row.machine_bytes_per_connection),
            (row.available_bytes >> 20).to_string(),
            format!("{:.1}", row.seconds),
            row.limit.clone().unwrap_or_default(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_its_figures_and_the_last_one_its_limit() {
        let row = Row {
            subject: "ours".to_owned(),
            connections: 2000,
            servers: 3,
            user_bytes_per_connection: 266.4,
            machine_bytes_per_connection: 9000.0,
            available_bytes: 5 << 20,
            limit: Some("descriptors".to_owned()),
            ..Row::default()
        };
        let text = steps(&[Row { limit: None, ..row.clone() }, row]).to_string();
        let lines: Vec<&str> = text.lines().collect();
        let last: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!(last, ["ours", "2000", "3", "266", "0", "0", "9000", "5", "0.0", "descriptors"]);
        assert!(lines[2].ends_with("0.0"), "{text}");
    }
}
