//! What `superpoll-lab timers` prints: the timers that are taken back, and those that end.

use crate::table::{self, Table};
use crate::timers::Row;

fn is_ending(row: &&Row) -> bool {
    row.late_ns_p50.is_some()
}

/// The timers that are taken back, by load and number.
pub fn taken(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "load", "timers", "runtime", "insert", "least", "cancel", "least", "both", "least",
        "spread", "/ tokio", "least",
    ])
    .names(3);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.0}"));
    for row in rows.iter().filter(|row| !is_ending(row)) {
        table.row([
            row.load.clone(),
            row.timers.to_string(),
            row.subject.clone(),
            number(row.insert_ns_median),
            number(row.insert_ns_min),
            number(row.cancel_ns_median),
            number(row.cancel_ns_min),
            format!("{:.0}", row.timer_ns_median),
            format!("{:.0}", row.timer_ns_min),
            format!("{:.0}", row.timer_ns_spread),
            table::ratio(row.tokio_ratio),
            table::ratio(row.tokio_ratio_min),
        ]);
    }
    table
}

/// The timers that end.
pub fn ending(rows: &[Row]) -> Table {
    let mut table =
        Table::new(["runtime", "timers", "cpu ns", "least", "/ tokio", "late, p50", "p99", "most"]);
    let time = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), table::time);
    for row in rows.iter().filter(is_ending) {
        table.row([
            row.subject.clone(),
            row.timers.to_string(),
            format!("{:.0}", row.timer_ns_median),
            format!("{:.0}", row.timer_ns_min),
            table::ratio(row.tokio_ratio),
            time(row.late_ns_p50),
            time(row.late_ns_p99),
            time(row.late_ns_max),
        ]);
    }
    table
}

/// Both, for the terminal.
pub fn text(rows: &[Row]) -> String {
    format!(
        "set and taken back, ns of processor time for each\n\n{}\n\
         set and waited for, by a task each, within half a second; none is early\n\n{}",
        taken(rows),
        ending(rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_has_a_table_of_its_own() {
        let row = |load: &str, late_ns_p50| Row {
            subject: "superpoll-rt".to_owned(),
            load: load.to_owned(),
            timers: 77,
            timer_ns_median: 123.0,
            late_ns_p50,
            ..Row::default()
        };
        let rows = [row("in order", None), row("ending", Some(56_700.0))];
        assert_eq!((taken(&rows).rows().len(), ending(&rows).rows().len()), (1, 1));
        let text = text(&rows);
        assert!(text.contains("in order") && text.contains("56.7 us"), "{text}");
    }
}
