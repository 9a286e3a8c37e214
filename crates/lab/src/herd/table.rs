//! What `superpoll-lab herd` prints: for each size its ways of waiting, a line each.

use crate::herd::Row;
use crate::table::{self, Table};

/// All rows, by what they wait for and how many they are.
pub fn herds(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "processes",
        "dups",
        "way to wait",
        "connect()",
        "p99",
        "least",
        "/ fewest",
        "/ alone",
        "woken",
        "accepting",
        "most",
        "Jain",
        "best",
        "connects",
    ])
    .names(3);
    for row in rows {
        table.row([
            row.processes.to_string(),
            if row.dups == 0 { "-".to_owned() } else { format!("{} of {}", row.dups, row.dups_of) },
            row.subject.clone(),
            table::time(row.connect_ns_median),
            table::time(row.connect_ns_p99),
            table::time(row.connect_ns_min),
            table::ratio(row.median_ratio),
            table::ratio(row.alone_ratio),
            format!("{:.1}", row.woken_per_connect),
            row.accepting.to_string(),
            row.accepts_max.to_string(),
            format!("{:.2}", row.jain),
            format!("{:.2}", row.jain_best),
            row.connects.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_was_waited_for() {
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
