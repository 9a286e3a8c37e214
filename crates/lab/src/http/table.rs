//! The output of `superpoll-lab http`: for each number of connections, a line per server.

use crate::http::Row;
use crate::table::{self, Table};

/// Returns the table of all servers.
pub(crate) fn servers(rows: &[Row]) -> Table {
    table::of(
        rows,
        1,
        &[
            ("server", |row| row.subject.clone()),
            ("connections", |row| row.connections.to_string()),
            ("cpu ns/request", |row| format!("{:.0}", row.figures.cpu_ns_per_request_median)),
            ("least", |row| format!("{:.0}", row.figures.cpu_ns_per_request_min)),
            ("spread", |row| format!("{:.0}", row.figures.cpu_spread)),
            ("requests/s", |row| format!("{:.0}", row.figures.requests_per_second)),
            ("waits/request", |row| table::number(row.figures.waits_per_request, 3)),
            ("epoll_ctl/request", |row| table::number(row.figures.epoll_ctl_per_request, 3)),
            ("/ tokio", |row| table::ratio(row.to_tokio.headline())),
            ("90 %", |row| row.to_tokio.tokio_decile.map_or_else(String::new, table::span)),
            ("median", |row| table::ratio(row.to_tokio.tokio_ratio)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::turns::Figures;

    #[test]
    fn each_server_has_a_line_and_unknown_values_a_dash() {
        let row = |subject: &str, waits_per_request| Row {
            subject: subject.to_owned(),
            connections: 64,
            figures: Figures {
                cpu_ns_per_request_median: 4321.0,
                waits_per_request,
                ..Figures::default()
            },
            ..Row::default()
        };
        let text = servers(&[row("tokio", None), row("ours", Some(0.25))]).to_string();
        let line =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(line("tokio").contains("4321") && line("tokio").contains('-'), "{text}");
        assert!(line("ours").contains("0.250"), "{text}");
    }
}
