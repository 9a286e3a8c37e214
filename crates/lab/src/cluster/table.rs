//! The output of `superpoll-lab cluster`: a line for each fault.

use crate::cluster::Row;
use crate::table::{self, Table};

/// The tables, each with its heading.
pub(crate) fn parts(rows: &[Row]) -> Vec<(&'static str, Table)> {
    let headings = [
        ("fault", "subscribers of three servers while a part fails"),
        (
            "delay",
            "time from a publication at one server to the last subscriber of the others; processor time for it",
        ),
        ("processor", "processor time of a server for a publication, without subscribers"),
    ];
    let part = |(part, heading): (&'static str, &'static str)| {
        let own: Vec<&Row> = rows.iter().filter(|row| row.part == part).collect();
        (!own.is_empty()).then(|| (heading, pivot(&own)))
    };
    headings.into_iter().filter_map(part).collect()
}

/// Builds a line for each subject, and a column for each figure.
fn pivot(rows: &[&Row]) -> Table {
    let mut figures: Vec<&str> = Vec::new();
    let mut lines: Vec<(usize, &str)> = Vec::new();
    for row in rows {
        if !figures.contains(&&*row.figure) {
            figures.push(&row.figure);
        }
        if !lines.contains(&(row.subscribers, &row.subject)) {
            lines.push((row.subscribers, &row.subject));
        }
    }
    let names = ["subscribers", "of"].into_iter();
    let mut table = Table::new(names.chain(figures.iter().copied()).chain(["rounds"])).names(2);
    for (subscribers, subject) in lines {
        let of = |figure: &str| {
            rows.iter().find(|row| {
                (row.subscribers, &*row.subject, &*row.figure) == (subscribers, subject, figure)
            })
        };
        let cells =
            figures.iter().map(|figure| of(figure).map_or_else(|| "-".to_owned(), |row| cell(row)));
        let rounds = figures.iter().find_map(|figure| of(figure)).map_or(0, |row| row.rounds);
        let names = [subscribers.to_string(), subject.to_owned()].into_iter();
        table.row(names.chain(cells).chain([rounds.to_string()]));
    }
    table
}

/// The median round, and the spread of all.
fn cell(row: &Row) -> String {
    let value =
        |number: f64| if row.unit == "ns" { table::time(number) } else { format!("{number:.0}") };
    let (median, least, most) = (value(row.median), value(row.least), value(row.most));
    if row.rounds < 2 || least == most { median } else { format!("{median} ({least}-{most})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_line_and_each_figure_its_column() {
        let row = |part: &str, subject: &str, figure: &str, unit: &str, most| Row {
            part: part.to_owned(),
            subject: subject.to_owned(),
            subscribers: 90,
            figure: figure.to_owned(),
            unit: unit.to_owned(),
            most,
            rounds: 3,
            ..Row::default()
        };
        let rows = [
            row("fault", "redis", "lost", "count", 0.0),
            row("fault", "redis", "reconnects", "count", 4.0),
            row("fault", "flush", "lost", "count", 2.0),
            row("delay", "to the last subscriber", "p99", "ns", 900.0),
        ];
        let all = parts(&rows);
        assert_eq!(all.len(), 2);
        let text = all[0].1.to_string();
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap();
        assert!(line("redis").contains("0 (0-4)"), "{text}");
        assert!(line("flush").contains("0 (0-2)") && line("flush").contains(" -"), "{text}");
        assert!(all[1].1.to_string().contains("900 ns"));
    }
}
