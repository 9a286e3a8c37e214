//! The output of `superpoll-lab timers`: the timers that are cancelled, and those that end.

use crate::table::{self, Table};
use crate::timers::Row;

fn is_ending(row: &&Row) -> bool {
    row.late_ns_p50.is_some()
}

/// The timers that are cancelled, by load and number.
pub(crate) fn taken(rows: &[Row]) -> Table {
    table::of(
        rows.iter().filter(|row| !is_ending(row)),
        3,
        &[
            ("load", |row| row.load.clone()),
            ("timers", |row| row.timers.to_string()),
            ("runtime", |row| row.subject.clone()),
            ("insert", |row| table::number(row.insert_ns_median, 0)),
            ("least", |row| table::number(row.insert_ns_min, 0)),
            ("cancel", |row| table::number(row.cancel_ns_median, 0)),
            ("least", |row| table::number(row.cancel_ns_min, 0)),
            ("both", |row| format!("{:.0}", row.timer_ns_median)),
            ("least", |row| format!("{:.0}", row.timer_ns_min)),
            ("spread", |row| format!("{:.0}", row.timer_ns_spread)),
            ("/ tokio", |row| table::ratio(row.to_tokio.headline())),
            ("90 %", |row| row.to_tokio.tokio_decile.map_or_else(String::new, table::span)),
            ("median", |row| table::ratio(row.to_tokio.tokio_ratio)),
        ],
    )
}

/// The timers that end.
pub(crate) fn ending(rows: &[Row]) -> Table {
    table::of(
        rows.iter().filter(is_ending),
        1,
        &[
            ("runtime", |row| row.subject.clone()),
            ("timers", |row| row.timers.to_string()),
            ("cpu ns", |row| format!("{:.0}", row.timer_ns_median)),
            ("least", |row| format!("{:.0}", row.timer_ns_min)),
            ("/ tokio", |row| table::ratio(row.to_tokio.headline())),
            ("median", |row| table::ratio(row.to_tokio.tokio_ratio)),
            ("late, p50", |row| row.late_ns_p50.map_or_else(|| "-".to_owned(), table::time)),
            ("p99", |row| row.late_ns_p99.map_or_else(|| "-".to_owned(), table::time)),
            ("most", |row| row.late_ns_max.map_or_else(|| "-".to_owned(), table::time)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_timers_have_their_own_table() {
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
        let text = format!("{}{}", taken(&rows), ending(&rows));
        assert!(text.contains("in order") && text.contains("56.7 us"), "{text}");
    }
}
