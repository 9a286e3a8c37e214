//! Tables for the terminal, and numbers in their cells.

use std::collections::BTreeMap;

pub(crate) use superpoll_cli::table::Table;

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
}
