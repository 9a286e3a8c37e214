//! What `superpoll-lab http` prints: for each number of connections its servers, a line each.

use crate::http::Row;
use crate::table::{self, Table};

/// All servers.
pub fn servers(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "server",
        "connections",
        "cpu ns/request",
        "least",
        "spread",
        "requests/s",
        "waits/request",
        "epoll_ctl/request",
        "/ tokio",
        "least",
    ]);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.3}"));
    for row in rows {
        table.row([
            row.subject.clone(),
            row.connections.to_string(),
            format!("{:.0}", row.cpu_ns_per_request_median),
            format!("{:.0}", row.cpu_ns_per_request_min),
            format!("{:.0}", row.cpu_spread),
            format!("{:.0}", row.requests_per_second),
            number(row.waits_per_request),
            number(row.epoll_ctl_per_request),
            table::ratio(row.tokio_ratio),
            table::ratio(row.tokio_ratio_min),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_its_line_and_what_is_unknown_a_dash() {
        let row = |subject: &str, waits_per_request| Row {
            subject: subject.to_owned(),
            connections: 64,
            cpu_ns_per_request_median: 4321.0,
            waits_per_request,
            ..Row::default()
        };
        let text = servers(&[row("tokio", None), row("ours", Some(0.25))]).to_string();
        let line =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(line("tokio").contains("4321") && line("tokio").contains('-'), "{text}");
        assert!(line("ours").contains("0.250"), "{text}");
    }
}
