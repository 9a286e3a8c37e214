//! Tables for the terminal, and numbers in their cells.

use std::collections::BTreeMap;

pub(crate) use superpoll_cli::table::Table;

use crate::error::Result;
use crate::plot::Plot;
use crate::report::Page;
use crate::statistics::{Estimate, Ratio};

/// A column: its heading, and the cell of a row in it.
pub(crate) type Column<Row> = (&'static str, fn(&Row) -> String);

/// Creates a table with a line for each row. The first columns, as many as `names`, are
/// left-aligned.
pub(crate) fn of<'a, Row: 'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    names: usize,
    columns: &[Column<Row>],
) -> Table {
    let mut table = Table::new(columns.iter().map(|&(heading, _)| heading)).names(names);
    for row in rows {
        table.row(columns.iter().map(|(_, cell)| cell(row)));
    }
    table
}

/// Formats a number with this many digits; a dash for none.
pub(crate) fn number(number: Option<f64>, digits: usize) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.digits$}"))
}

/// Formats the headline of a ratio.
pub(crate) fn headline(of: Option<Ratio>) -> String {
    ratio(of.map(|of| of.headline().value))
}

/// Formats the interval of a ratio's headline.
pub(crate) fn interval(of: Option<Ratio>) -> String {
    of.map_or_else(|| "-".to_owned(), |of| span(of.headline()))
}

/// Formats the median of the turns' ratios.
pub(crate) fn median(of: Option<Ratio>) -> String {
    ratio(of.map(|of| of.median))
}

/// Formats an interval.
pub(crate) fn span(of: Estimate) -> String {
    format!("{:.2}-{:.2}", of.low, of.high)
}

/// System calls that are rarer than this per request are left out of tables.
const RARE: f64 = 0.005;

/// Calls by request and name, the most frequent first.
pub(crate) fn calls(calls: &BTreeMap<String, f64>) -> String {
    let mut calls: Vec<_> = calls.iter().filter(|(_, count)| **count >= RARE).collect();
    calls.sort_by(|one, other| other.1.total_cmp(one.1));
    let words: Vec<String> =
        calls.into_iter().map(|(name, count)| format!("{name} {count:.2}")).collect();
    words.join(", ")
}

/// Formats a ratio with two digits; a dash for none.
pub(crate) fn ratio(ratio: Option<f64>) -> String {
    number(ratio, 2)
}

/// Nanoseconds, in the unit that keeps three or four digits.
pub(crate) fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 10_000.0 => format!("{ns:.0} ns"),
        ns if ns < 10_000_000.0 => format!("{:.1} us", ns / 1e3),
        ns => format!("{:.1} ms", ns / 1e6),
    }
}

// The results of an experiment, part by part: all of them on a page, and all but the pictures on
// the terminal.

/// A part of the results.
#[derive(Debug)]
pub(crate) enum Part {
    /// The heading of all parts up to the next heading.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// Lines under a paragraph; nothing if there are none.
    List(&'static str, Vec<String>),
    /// A table; nothing if it has no rows.
    Table(Table),
    /// A plot and the name of its file; nothing without points to draw.
    Plot(String, Option<Plot>),
    /// Another picture, as SVG, and the name of its file.
    Picture(&'static str, String),
}

impl Part {
    pub(crate) fn text(text: impl Into<String>) -> Part {
        Part::Text(text.into())
    }

    pub(crate) fn plot(file: impl Into<String>, plot: Option<Plot>) -> Part {
        Part::Plot(file.into(), plot)
    }

    /// Returns the part for the terminal.
    fn printed(&self) -> Option<String> {
        match self {
            Part::Heading(text) | Part::Text(text) => Some(format!("{text}\n")),
            Part::List(_, lines) if lines.is_empty() => None,
            Part::List(lead, lines) => Some(format!("{lead}\n\n{}\n", lines.join("\n"))),
            Part::Table(table) if table.rows().is_empty() => None,
            Part::Table(table) => Some(table.to_string()),
            Part::Plot(..) | Part::Picture(..) => None,
        }
    }

    /// Adds the part to a page.
    ///
    /// # Errors
    ///
    /// The errors of [`Page::plot`].
    pub(crate) fn show(self, page: &mut Page<'_>) -> Result<()> {
        match self {
            Part::Heading(text) => page.heading(&text),
            Part::Text(text) => page.text(&text),
            Part::List(lead, lines) => page.list(lead, lines),
            Part::Table(table) => page.table(&table),
            Part::Plot(file, plot) => page.plot(&file, plot)?,
            Part::Picture(file, svg) => page.figure(file, &svg)?,
        }
        Ok(())
    }
}

/// Returns the parts for the terminal, with an empty line between two.
pub(crate) fn text(parts: &[Part]) -> String {
    parts.iter().filter_map(Part::printed).collect::<Vec<_>>().join("\n")
}

// Rows in the order in which they were measured: the distinct values of a key, and the rows of
// each.

/// Returns each value once, in the order of first occurrence.
pub(crate) fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut different = Vec::new();
    for one in all {
        if !different.contains(&one) {
            different.push(one);
        }
    }
    different
}

/// Returns the rows of each key, with the keys in the order of their first rows.
pub(crate) fn groups<'a, Row, Key: PartialEq>(
    rows: &'a [Row],
    key: impl Fn(&'a Row) -> Key,
) -> Vec<(Key, Vec<&'a Row>)> {
    let mut groups: Vec<(Key, Vec<&Row>)> = Vec::new();
    for row in rows {
        let key = key(row);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((key, vec![row])),
        }
    }
    groups
}

/// Returns the rows of each key, with the keys ascending.
pub(crate) fn ascending<'a, Row, Key: Ord>(
    rows: &[&'a Row],
    key: impl Fn(&Row) -> Key,
) -> BTreeMap<Key, Vec<&'a Row>> {
    let mut groups: BTreeMap<Key, Vec<&Row>> = BTreeMap::new();
    for &row in rows {
        groups.entry(key(row)).or_default().push(row);
    }
    groups
}

/// Returns the rows of each subject of a sweep, the fewest active descriptors first, with the
/// subjects in the order of their first rows.
pub(crate) fn subjects<'a, Row>(
    rows: &[&'a Row],
    subject: impl Fn(&Row) -> &str,
    active: impl Fn(&Row) -> usize,
) -> Vec<Vec<&'a Row>> {
    let names = distinct(rows.iter().map(|row| subject(row)));
    let own = names.into_iter().map(|name| {
        let own = rows.iter().copied().filter(|row| subject(row) == name);
        let mut own: Vec<&Row> = own.collect();
        own.sort_by_key(|row| active(row));
        own
    });
    own.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_ratios() {
        assert_eq!(time(950.4), "950 ns");
        assert_eq!(time(25_040.0), "25.0 us");
        assert_eq!(time(25_040_000.0), "25.0 ms");
        assert_eq!((ratio(Some(0.777)), ratio(None)), ("0.78".to_owned(), "-".to_owned()));
    }

    #[test]
    fn the_first_of_a_kind_says_where_the_kind_comes() {
        assert_eq!(distinct([3, 1, 3, 2, 1]), [3, 1, 2]);
        let rows = ["pear", "fig", "plum", "apple"];
        let expected = [(4, vec![&"pear", &"plum"]), (3, vec![&"fig"]), (5, vec![&"apple"])];
        assert_eq!(groups(&rows, |row| row.len()), expected);
        let sorted: Vec<_> = ascending(&rows.each_ref(), |row| row.len()).into_iter().collect();
        assert_eq!(sorted, [1, 0, 2].map(|place| expected[place].clone()));
    }
}
