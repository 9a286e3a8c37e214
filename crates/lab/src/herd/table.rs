//! The output of `superpoll-lab herd`: for each size its methods of waiting, one line each.

use crate::herd::Row;
use crate::table::{self, Table};

/// All rows, by the kind of duplicates and the number of waiters.
pub(crate) fn herds(rows: &[Row]) -> Table {
    table::of(
        rows,
        3,
        &[
            ("processes", |row| row.processes.to_string()),
            ("dups", |row| {
                if row.dups == 0 {
                    "-".to_owned()
                } else {
                    format!("{} of {}", row.dups, row.dups_of)
                }
            }),
            ("way to wait", |row| row.subject.clone()),
            ("connect()", |row| table::time(row.connect_ns_median)),
            ("p99", |row| table::time(row.connect_ns_p99)),
            ("least", |row| table::time(row.connect_ns_min)),
            ("/ fewest", |row| table::ratio(row.median_ratio)),
            ("/ alone", |row| table::ratio(row.alone_ratio)),
            ("woken", |row| format!("{:.1}", row.woken_per_connect)),
            ("accepting", |row| row.accepting.to_string()),
            ("most", |row| row.accepts_max.to_string()),
            ("Jain", |row| format!("{:.2}", row.jain)),
            ("best", |row| format!("{:.2}", row.jain_best)),
            ("connects", |row| row.connects.to_string()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_duplicates() {
        let row = |dups, dups_of: &str| Row {
            subject: "poll".to_owned(),
            processes: 16,
            dups,
            dups_of: dups_of.to_owned(),
            connect_ns_median: 20_500.0,
            woken_per_connect: 15.97,
            ..Row::default()
        };
        let text = herds(&[row(0, "listener"), row(9, "pipe")]).to_string();
        assert!(text.contains("20.5 us") && text.contains("16.0"), "{text}");
        assert!(text.contains("9 of pipe") && !text.contains("0 of"), "{text}");
    }
}
