//! Figures by name, of experiments whose parts measure different things: a row for each figure of
//! each subject, and a table for each part.

use serde::{Deserialize, Serialize};

use crate::experiment::Figure;
use crate::statistics;
use crate::table::{self, Part, Table};

/// One figure of one subject in one part of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The part of the experiment.
    pub part: String,
    /// The measured thing.
    pub subject: String,
    /// How many descriptors, connections or subscribers there were.
    #[serde(alias = "descriptors", alias = "subscribers")]
    pub number: usize,
    /// The name of the figure.
    pub figure: String,
    /// `ns`, or `count`.
    pub unit: String,
    /// The value of the median round.
    pub median: f64,
    /// The value of the lowest round.
    pub least: f64,
    /// The value of the highest round.
    pub most: f64,
    /// Rounds measured.
    pub rounds: usize,
}

impl Row {
    /// Returns whether this is the figure of that name, in that part.
    pub(crate) fn is(&self, part: &str, figure: &str) -> bool {
        (&*self.part, &*self.figure) == (part, figure)
    }

    /// Returns the figure for comparisons.
    pub(crate) fn compared(&self) -> Figure {
        Figure {
            at: format!("{} of {}, {}", self.part, self.number, self.subject),
            name: format!("{}, {}", self.figure, self.unit),
            value: self.median,
            low: self.least,
            high: self.most,
        }
    }

    /// Formats the median round, and the spread of all.
    fn cell(&self) -> String {
        let value = |number: f64| match &*self.unit {
            "ns" => table::time(number),
            _ => format!("{number:.0}"),
        };
        let [median, least, most] = [self.median, self.least, self.most].map(value);
        if self.rounds < 2 || least == most { median } else { format!("{median} ({least}-{most})") }
    }
}

/// A figure with its name and unit.
pub(crate) type Named = (&'static str, &'static str, f64);

/// The figures of all rounds, each in a row without its summary.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<(Row, Vec<f64>)>);

impl Findings {
    /// Adds the figures of a round of a part, a subject and a number.
    pub(crate) fn note(&mut self, of: (&str, &str, usize), figures: &[Named]) {
        for &(figure, unit, value) in figures {
            let is_it =
                |row: &Row| (&*row.part, &*row.subject, row.number) == of && row.figure == figure;
            match self.0.iter_mut().find(|(row, _)| is_it(row)) {
                Some((_, rounds)) => rounds.push(value),
                None => {
                    let (part, subject, number) = (of.0.to_owned(), of.1.to_owned(), of.2);
                    let (figure, unit) = (figure.to_owned(), unit.to_owned());
                    let row = Row { part, subject, number, figure, unit, ..Row::default() };
                    self.0.push((row, vec![value]));
                }
            }
        }
    }

    /// Returns the rows, in the order in which their figures were first noted.
    pub(crate) fn rows(self) -> Vec<Row> {
        let row = |(row, rounds): (Row, Vec<f64>)| Row {
            median: statistics::median(&rounds),
            least: statistics::minimum(&rounds),
            most: statistics::maximum(&rounds),
            rounds: rounds.len(),
            ..row
        };
        self.0.into_iter().map(row).collect()
    }
}

/// Returns a heading and a table for each part that was measured, given with its heading: a line
/// for each number and subject, and a column for each figure. `names` are the first two columns.
pub(crate) fn parts(rows: &[Row], headings: &[(&str, &str)], names: [&str; 2]) -> Vec<Part> {
    let part = |&(part, heading): &(&str, &str)| {
        let own: Vec<&Row> = rows.iter().filter(|row| row.part == part).collect();
        (!own.is_empty())
            .then(|| [Part::Heading(heading.to_owned()), Part::Table(pivot(&own, names))])
    };
    headings.iter().filter_map(part).flatten().collect()
}

fn pivot(rows: &[&Row], names: [&str; 2]) -> Table {
    let figures = table::distinct(rows.iter().map(|row| &*row.figure));
    let mut lines = table::distinct(rows.iter().map(|row| (row.number, &*row.subject)));
    lines.sort_by_key(|line| line.0);
    let heading = names.into_iter().chain(figures.iter().copied()).chain(["rounds"]);
    let mut table = Table::new(heading).names(2);
    for line in lines {
        let own = |row: &&&Row| (row.number, &*row.subject) == line;
        let of = |figure: &&str| rows.iter().filter(own).find(|row| row.figure == **figure);
        let cells = figures
            .iter()
            .map(|figure| of(figure).map_or_else(|| "-".to_owned(), |row| row.cell()));
        let rounds = rows.iter().find(own).map_or(0, |row| row.rounds);
        let names = [line.0.to_string(), line.1.to_owned()].into_iter();
        table.row(names.chain(cells).chain([rounds.to_string()]));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_middle_round() {
        let mut findings = Findings::default();
        for value in [3.0, 1.0, 8.0] {
            findings
                .note(("wake", "thread", 5), &[("p50", "ns", value), ("p99", "ns", 2.0 * value)]);
        }
        findings.note(("wake", "nested", 5), &[("p50", "ns", 4.0)]);
        let rows = findings.rows();
        let all: Vec<_> =
            rows.iter().map(|row| (row.median, row.least, row.most, row.rounds)).collect();
        assert_eq!(all, [(3.0, 1.0, 8.0, 3), (6.0, 2.0, 16.0, 3), (4.0, 4.0, 4.0, 1)]);
    }
}
