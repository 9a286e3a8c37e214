//! What `superpoll-lab echo` prints: for each kind and number of connections its servers, a line each.

use crate::echo::{Ratio, Row};
use crate::table::Table;

/// All servers.
pub fn servers(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "server",
        "kind",
        "connections",
        "cpu ns/request",
        "least",
        "spread",
        "requests/s",
        "generator",
        "waits/request",
        "epoll_ctl/request",
        "/ raw-epoll",
        "10-90 %",
        "/ tokio",
        "10-90 %",
    ])
    .names(2);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.3}"));
    for row in rows {
        let [raw, raw_spread] = ratio(row.raw_epoll_ratio);
        let [tokio, tokio_spread] = ratio(row.tokio_ratio);
        table.row([
            row.subject.clone(),
            row.kind.clone(),
            row.connections.to_string(),
            format!("{:.0}", row.cpu_ns_per_request_median),
            format!("{:.0}", row.cpu_ns_per_request_min),
            format!("{:.0}", row.cpu_spread),
            format!("{:.0}", row.requests_per_second),
            format!("{:.0} %", row.generator_busy * 100.0),
            number(row.waits_per_request),
            number(row.epoll_ctl_per_request),
            raw,
            raw_spread,
            tokio,
            tokio_spread,
        ]);
    }
    table
}

fn ratio(ratio: Option<Ratio>) -> [String; 2] {
    match ratio {
        Some(Ratio { median, low, high }) => {
            [format!("{median:.2}"), format!("{low:.2}-{high:.2}")]
        }
        None => ["-".to_owned(), "-".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_its_line_and_what_is_unknown_a_dash() {
        let row = |subject: &str, waits_per_request, tokio_ratio| Row {
            subject: subject.to_owned(),
            connections: 64,
            cpu_ns_per_request_median: 4321.0,
            generator_busy: 0.98,
            waits_per_request,
            tokio_ratio,
            ..Row::default()
        };
        let ratio = Ratio { median: 0.93, low: 0.9, high: 1.01 };
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
