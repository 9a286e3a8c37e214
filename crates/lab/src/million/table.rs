//! The output of `superpoll-lab million`: a line for each figure, and a column for each kind.

use crate::million::{Round, Row};
use crate::table::{self, Table};

/// A line: the name of a figure, and its value where there is one.
type Line = (&'static str, fn(&Row) -> Option<String>);

const LINES: [Line; 21] = [
    ("connections at once", |row| Some(row.connections.to_string())),
    ("ended by", |row| Some(row.limit.clone())),
    ("processes of the server", |row| Some(row.processes.to_string())),
    ("seconds to open and park them", |row| Some(format!("{:.1}", row.seconds))),
    ("user bytes of a server, by connection", |row| bytes(row.server_bytes_per_connection)),
    ("user bytes of a keeper, by connection", |row| bytes(row.keeper_bytes_per_connection)),
    ("user MiB of all servers", |row| mebibytes(row.server_bytes)),
    ("user MiB of all keepers", |row| mebibytes(row.keeper_bytes)),
    ("slab bytes, by pair", |row| bytes(row.slab_bytes_per_pair)),
    ("server time to open and park one", |row| time(row.server_ns_per_connection)),
    ("keeper time to park one", |row| time(row.keeper_ns_per_connection)),
    ("message: connections that have it once", |row| Some(row.message?.received.to_string())),
    ("message: wrong", |row| Some(row.message?.wrong.to_string())),
    ("message: until the last has it", |row| until(row.message)),
    ("message: server time, by connection", |row| time(row.message?.server_ns_per_connection)),
    ("crash: connections of the killed server", |row| Some(row.crash?.connections.to_string())),
    ("crash: connections lost", |row| Some(row.crash?.lost.to_string())),
    ("crash: until the next answers", |row| time(row.crash?.seconds * 1e9)),
    ("check: connections that answer", |row| Some(row.check.received.to_string())),
    ("check: wrong", |row| Some(row.check.wrong.to_string())),
    ("check: until the last has answered", |row| until(Some(row.check))),
];

fn bytes(bytes: f64) -> Option<String> {
    Some(format!("{bytes:.0}"))
}

fn mebibytes(bytes: u64) -> Option<String> {
    Some(format!("{:.1}", bytes as f64 / f64::from(1 << 20)))
}

fn time(nanoseconds: f64) -> Option<String> {
    Some(table::time(nanoseconds))
}

fn until(round: Option<Round>) -> Option<String> {
    time(round?.seconds * 1e9)
}

/// The table of all kinds; figures that no kind has are left out.
pub(crate) fn figures(rows: &[Row]) -> Table {
    let kinds = rows.iter().map(|row| row.kind.as_str());
    let mut table = Table::new(["figure"].into_iter().chain(kinds)).names(1);
    for (name, cell) in LINES {
        let cells: Vec<Option<String>> = rows.iter().map(cell).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            table.row([name.to_owned()].into_iter().chain(cells));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::million::Crash;

    #[test]
    fn each_kind_has_its_column_and_figures_that_are_absent_a_dash() {
        let kept = Row {
            kind: "keep-alive".to_owned(),
            connections: 7,
            limit: "files".to_owned(),
            server_bytes: 3 << 19,
            ..Row::default()
        };
        let round = Round { received: 5, seconds: 0.25, ..Round::default() };
        let sockets = Row { kind: "websocket".to_owned(), message: Some(round), ..kept.clone() };
        let text = figures(&[kept.clone(), sockets]).to_string();
        let line = |name: &str| {
            let found = text.lines().find(|line| line.starts_with(name));
            found.unwrap_or_else(|| panic!("{name} is missing in {text}")).split_at(name.len()).1
        };
        let words = |name: &str| line(name).split_whitespace().collect::<Vec<_>>();
        assert_eq!(words("connections at once"), ["7", "7"]);
        assert_eq!(words("ended by"), ["files", "files"]);
        assert_eq!(words("user MiB of all servers"), ["1.5", "1.5"]);
        assert_eq!(words("message: connections that have it once"), ["-", "5"]);
        assert_eq!(words("message: until the last has it"), ["-", "250.0", "ms"]);
        assert!(!text.contains("crash"), "{text}");
        let crash = Some(Crash { connections: 4, lost: 1, seconds: 0.1 });
        let text = figures(&[Row { crash, ..kept }]).to_string();
        assert!(text.contains("crash: connections lost"), "{text}");
    }
}
