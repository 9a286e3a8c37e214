//! What `superpoll-lab zombies` prints: for each server its numbers of zombies, a line each.

use crate::echo::Ratio;
use crate::table::Table;
use crate::zombies::Row;

/// All servers.
pub fn servers(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "server",
        "processes",
        "zombies",
        "cpu ns/request",
        "least",
        "/ none",
        "10-90 %",
        "seconds",
        "/ none",
        "10-90 %",
        "generator",
        "waits/request",
        "/ raw-epoll",
        "10-90 %",
        "kernel bytes/zombie",
    ]);
    for row in rows {
        let [cpu, cpu_spread] = ratio(row.none_ratio);
        let [clock, clock_spread] = ratio(row.none_clock_ratio);
        let [raw, raw_spread] = ratio(row.raw_epoll_ratio);
        table.row([
            row.subject.clone(),
            row.workers.to_string(),
            row.zombies.to_string(),
            format!("{:.0}", row.cpu_ns_per_request_median),
            format!("{:.0}", row.cpu_ns_per_request_min),
            cpu,
            cpu_spread,
            format!("{:.3}", row.seconds),
            clock,
            clock_spread,
            format!("{:.0} %", row.generator_busy * 100.0),
            row.waits_per_request.map_or_else(|| "-".to_owned(), |waits| format!("{waits:.3}")),
            raw,
            raw_spread,
            bytes(row),
        ]);
    }
    table
}

/// Of few zombies it is lost in what else the machine does.
fn bytes(row: &Row) -> String {
    let bytes = row.kernel_bytes_per_zombie.filter(|_| row.zombies >= 1000);
    bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0}"))
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
    fn each_point_has_its_line_and_what_is_unknown_a_dash() {
        let row = |zombies, none_ratio| Row {
            subject: "ours".to_owned(),
            workers: 3,
            kernel_bytes_per_zombie: Some(8123.4),
            zombies,
            cpu_ns_per_request_median: 4321.0,
            seconds: 0.25,
            none_ratio,
            ..Row::default()
        };
        let ratio = Ratio { median: 1.01, low: 0.9, high: 1.1 };
        let text = servers(&[row(0, None), row(9900, Some(ratio))]).to_string();
        let last = text.lines().last().unwrap();
        for part in ["3     9900", "4321", "1.01  0.90-1.10", "0.250", "8123"] {
            assert!(last.contains(part), "{part} is missing in {text}");
        }
        assert!(text.lines().nth(2).unwrap().ends_with("  -"), "{text}");
    }
}
