//! The output of `superpoll-lab idle --ramp`: a line for each step of each kind of connection.

use crate::idle::ramp::Row;
use crate::table::{self, Table};

/// The table of all steps.
pub(crate) fn steps(rows: &[Row]) -> Table {
    table::of(
        rows,
        1,
        &[
            ("server", |row| row.subject.clone()),
            ("connections", |row| row.connections.to_string()),
            ("processes", |row| row.servers.to_string()),
            ("user bytes", |row| format!("{:.0}", row.user_bytes_per_connection)),
            ("slab bytes", |row| format!("{:.0}", row.slab_bytes_per_connection)),
            ("socket bytes", |row| format!("{:.0}", row.socket_bytes_per_connection)),
            ("machine bytes", |row| format!("{:.0}", row.machine_bytes_per_connection)),
            ("available MiB", |row| (row.available_bytes >> 20).to_string()),
            ("seconds", |row| format!("{:.1}", row.seconds)),
            ("ended by", |row| row.limit.clone().unwrap_or_default()),
        ],
    )
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
