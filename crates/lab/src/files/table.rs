//! The output of `superpoll-lab files`: for each file, a line per server, and their calls by name.

use crate::files::Row;
use crate::table::{self, Table};

/// Returns the table of processor times.
pub(crate) fn servers(rows: &[Row]) -> Table {
    table::of(
        rows,
        2,
        &[
            ("bytes", |row| row.bytes.to_string()),
            ("server", |row| row.subject.clone()),
            ("connections", |row| row.connections.to_string()),
            ("cpu us/request", |row| format!("{:.2}", row.figures.cpu_ns_per_request_median / 1e3)),
            ("least", |row| format!("{:.2}", row.figures.cpu_ns_per_request_min / 1e3)),
            ("spread", |row| format!("{:.2}", row.figures.cpu_spread / 1e3)),
            ("requests/s", |row| format!("{:.0}", row.figures.requests_per_second)),
            ("generator", |row| format!("{:.0} %", row.figures.generator_busy * 100.0)),
            ("/ nginx", |row| table::headline(row.nginx_ratio)),
            ("90 %", |row| table::interval(row.nginx_ratio)),
            ("median", |row| table::median(row.nginx_ratio)),
            ("/ hyper", |row| table::headline(row.hyper_ratio)),
            ("90 %", |row| table::interval(row.hyper_ratio)),
            ("median", |row| table::median(row.hyper_ratio)),
            ("waits/request", |row| table::number(row.figures.waits_per_request, 3)),
            ("epoll_ctl/request", |row| table::number(row.figures.epoll_ctl_per_request, 3)),
            ("calls/request", |row| table::number(row.strace_calls_per_request, 3)),
        ],
    )
}

/// Returns the table of calls by name, where strace has counted them; it is empty where strace has
/// not.
pub(crate) fn calls(rows: &[Row]) -> Table {
    table::of(
        rows.iter().filter(|row| !row.strace_calls.is_empty()),
        4,
        &[
            ("bytes", |row| row.bytes.to_string()),
            ("server", |row| row.subject.clone()),
            ("connections", |row| row.connections.to_string()),
            ("calls by request", |row| table::calls(&row.strace_calls)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::server::turns::Figures;
    use crate::statistics::Ratio;

    #[test]
    fn each_server_has_a_line_and_unknown_values_a_dash() {
        let row = |subject: &str, median: Option<f64>| Row {
            subject: subject.to_owned(),
            bytes: 1024,
            connections: 64,
            figures: Figures { cpu_ns_per_request_median: 4321.0, ..Figures::default() },
            nginx_ratio: median.map(|median| Ratio { median, low: 0.51, high: 0.62, decile: None }),
            strace_calls: BTreeMap::from([("read".to_owned(), 1.0), ("stat".to_owned(), 0.001)]),
            ..Row::default()
        };
        let rows = [row("superpoll-epoll", Some(0.57)), row("alone", None)];
        let text = servers(&rows).to_string();
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap().to_owned();
        assert!(line("superpoll-epoll").contains("4.32"), "{text}");
        assert!(line("superpoll-epoll").contains("0.51-0.62"), "{text}");
        assert!(line("alone").contains(" -"), "{text}");
        let text = calls(&rows).to_string();
        assert!(text.contains("read 1.00") && !text.contains("stat"), "{text}");
        assert!(calls(&[Row::default()]).rows().is_empty());
    }
}
