//! The output of `superpoll-lab keep`: a table for each part, with a line for each topology.

use crate::keep::{Part, Row};
use crate::table::{self, Table};

/// The tables, each with its heading.
pub(crate) fn parts(rows: &[Row]) -> Vec<(&'static str, Table)> {
    let headings = [
        (
            Part::Move,
            "processor time of leaving and coming back, for one descriptor (with the byte's read)",
        ),
        (
            Part::Wake,
            "time from a write to a descriptor that is away until the main loop has read it",
        ),
        (
            Part::Busy,
            "requests of ten clients next to idle connections: time of one, processor time of one",
        ),
        (Part::Restart, "a server with idle connections is upgraded, and killed"),
    ];
    let part = |(part, heading): (Part, &'static str)| {
        let own: Vec<&Row> = rows.iter().filter(|row| row.part == part.name()).collect();
        (!own.is_empty()).then(|| (heading, pivot(&own)))
    };
    headings.into_iter().filter_map(part).collect()
}

/// Builds a line for each subject and number of descriptors, and a column for each figure.
fn pivot(rows: &[&Row]) -> Table {
    let mut figures: Vec<&str> = Vec::new();
    let mut lines: Vec<(usize, &str)> = Vec::new();
    for row in rows {
        if !figures.contains(&&*row.figure) {
            figures.push(&row.figure);
        }
        if !lines.contains(&(row.descriptors, &row.subject)) {
            lines.push((row.descriptors, &row.subject));
        }
    }
    lines.sort_by_key(|line| line.0);
    let names = ["descriptors", "subject"].into_iter();
    let mut table = Table::new(names.chain(figures.iter().copied()).chain(["rounds"])).names(2);
    for (descriptors, subject) in lines {
        let of = |figure: &str| {
            rows.iter().find(|row| {
                (row.descriptors, &*row.subject, &*row.figure) == (descriptors, subject, figure)
            })
        };
        let cells =
            figures.iter().map(|figure| of(figure).map_or_else(|| "-".to_owned(), |row| cell(row)));
        let rounds = figures.iter().find_map(|figure| of(figure)).map_or(0, |row| row.rounds);
        let names = [descriptors.to_string(), subject.to_owned()].into_iter();
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
    fn each_topology_has_its_line_and_each_figure_its_column() {
        let row = |subject: &str, descriptors, figure: &str, unit: &str, median| Row {
            part: "move".to_owned(),
            subject: subject.to_owned(),
            descriptors,
            figure: figure.to_owned(),
            unit: unit.to_owned(),
            median,
            least: median / 2.0,
            most: median * 2.0,
            rounds: 3,
        };
        let rows = [
            row("thread", 16, "leave, main", "ns", 900.0),
            row("thread", 1, "leave, main", "ns", 1200.0),
            row("thread", 1, "away", "count", 4.0),
        ];
        let all = parts(&rows);
        assert_eq!(all.len(), 1);
        let text = all[0].1.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("leave, main") && lines[0].contains("away"), "{text}");
        let line = |number: &str| lines.iter().find(|line| line.starts_with(number)).unwrap();
        assert!(line("1 ").contains("1200 ns (600 ns-2400 ns)"), "{text}");
        assert!(line("1 ").contains("4 (2-8)"), "{text}");
        assert!(
            line("16").contains("900 ns (450 ns-1800 ns)") && line("16").contains(" -"),
            "{text}"
        );
    }
}
