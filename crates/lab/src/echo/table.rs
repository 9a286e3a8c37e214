//! The output of `superpoll-lab echo`: for each kind and number of connections, a line per server.

use crate::echo::Row;
use crate::table::{self, Table};

/// Returns the table of all servers.
pub(crate) fn servers(rows: &[Row]) -> Table {
    table::of(
        rows,
        2,
        &[
            ("server", |row| row.subject.clone()),
            ("kind", |row| row.kind.clone()),
            ("connections", |row| row.connections.to_string()),
            ("cpu ns/request", |row| format!("{:.0}", row.figures.cpu_ns_per_request_median)),
            ("least", |row| format!("{:.0}", row.figures.cpu_ns_per_request_min)),
            ("spread", |row| format!("{:.0}", row.figures.cpu_spread)),
            ("requests/s", |row| format!("{:.0}", row.figures.requests_per_second)),
            ("generator", |row| format!("{:.0} %", row.figures.generator_busy * 100.0)),
            ("waits/request", |row| table::number(row.figures.waits_per_request, 3)),
            ("epoll_ctl/request", |row| table::number(row.figures.epoll_ctl_per_request, 3)),
            ("/ raw-epoll", |row| table::headline(row.raw_epoll_ratio)),
            ("90 %", |row| table::interval(row.raw_epoll_ratio)),
            ("median", |row| table::median(row.raw_epoll_ratio)),
            ("/ tokio", |row| table::headline(row.tokio_ratio)),
            ("90 %", |row| table::interval(row.tokio_ratio)),
            ("median", |row| table::median(row.tokio_ratio)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::turns::Figures;
    use crate::statistics::Ratio;

    #[test]
    fn each_server_has_a_line_and_unknown_values_a_dash() {
        let row = |subject: &str, waits_per_request, tokio_ratio| Row {
            subject: subject.to_owned(),
            connections: 64,
            figures: Figures {
                cpu_ns_per_request_median: 4321.0,
                generator_busy: 0.98,
                waits_per_request,
                ..Figures::default()
            },
            tokio_ratio,
            ..Row::default()
        };
        let ratio = Ratio { median: 0.93, low: 0.9, high: 1.01, decile: None };
        let text =
            servers(&[row("raw", None, None), row("ours", Some(0.25), Some(ratio))]).to_string();
        let line =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(line("raw").contains("4321") && line("raw").ends_with("  -"), "{text}");
        for part in ["0.250", "0.93  0.90-1.01", "98 %"] {
            assert!(line("ours").contains(part), "{part} is missing in {text}");
        }
    }
}
