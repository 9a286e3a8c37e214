//! The output of `superpoll-lab zombies`: for each server its numbers of zombies, one line each.

use crate::table::{self, Table};
use crate::zombies::Row;

/// The table of all servers.
pub(crate) fn servers(rows: &[Row]) -> Table {
    table::of(
        rows,
        1,
        &[
            ("server", |row| row.subject.clone()),
            ("processes", |row| row.workers.to_string()),
            ("zombies", |row| row.zombies.to_string()),
            ("cpu ns/request", |row| format!("{:.0}", row.figures.cpu_ns_per_request_median)),
            ("least", |row| format!("{:.0}", row.figures.cpu_ns_per_request_min)),
            ("/ none", |row| table::headline(row.none_ratio)),
            ("90 %", |row| table::interval(row.none_ratio)),
            ("median", |row| table::median(row.none_ratio)),
            ("seconds", |row| format!("{:.3}", row.seconds)),
            ("/ none", |row| table::headline(row.none_clock_ratio)),
            ("90 %", |row| table::interval(row.none_clock_ratio)),
            ("median", |row| table::median(row.none_clock_ratio)),
            ("generator", |row| format!("{:.0} %", row.figures.generator_busy * 100.0)),
            ("waits/request", |row| table::number(row.figures.waits_per_request, 3)),
            ("/ raw-epoll", |row| table::headline(row.raw_epoll_ratio)),
            ("90 %", |row| table::interval(row.raw_epoll_ratio)),
            ("median", |row| table::median(row.raw_epoll_ratio)),
            ("kernel bytes/zombie", bytes),
        ],
    )
}

/// With few zombies the figure is lost in the machine's other activity.
fn bytes(row: &Row) -> String {
    table::number(row.kernel_bytes_per_zombie.filter(|_| row.zombies >= 1000), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::turns::Figures;
    use crate::statistics::Ratio;

    #[test]
    fn each_point_has_a_line_and_unknown_values_a_dash() {
        let row = |zombies, none_ratio| Row {
            subject: "ours".to_owned(),
            workers: 3,
            kernel_bytes_per_zombie: Some(8123.4),
            zombies,
            figures: Figures { cpu_ns_per_request_median: 4321.0, ..Figures::default() },
            seconds: 0.25,
            none_ratio,
            ..Row::default()
        };
        let ratio = Ratio { median: 1.01, low: 0.9, high: 1.1, decile: None };
        let text = servers(&[row(0, None), row(9900, Some(ratio))]).to_string();
        let last = text.lines().last().unwrap();
        for part in ["3     9900", "4321", "1.01  0.90-1.10", "0.250", "8123"] {
            assert!(last.contains(part), "{part} is missing in {text}");
        }
        assert!(text.lines().nth(2).unwrap().ends_with("  -"), "{text}");
    }
}
