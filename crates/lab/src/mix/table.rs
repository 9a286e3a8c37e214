//! The output of `superpoll-lab mix`: a line for each load, with each subject's cost relative to
//! the best pure one.

use crate::grouping;
use crate::mix::{self, Row};
use crate::record::{Account, Figures, PURE};
use crate::table::{self, Table};

/// Returns the figures of a subject under one load.
pub(crate) fn find<'a>(rows: &[&'a Row], subject: &str) -> Option<&'a Figures> {
    rows.iter().find(|row| row.subject == subject).map(|row| &row.figures)
}

/// Returns the best pure subject under one load, by the time that `of` selects.
pub(crate) fn best_pure<'a>(rows: &[&'a Row], of: Account) -> Option<&'a Row> {
    rows.iter()
        .filter(|row| PURE.contains(&row.subject.as_str()))
        .filter_map(|&row| Some((of(&row.figures)?, row)))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, row)| row)
}

/// Returns the costs relative to the best pure subject: a line per load, a column per subject that
/// adapts, the floor.
pub(crate) fn costs(rows: &[Row]) -> Table {
    ratios(rows, Figures::cost, |f| f.cost_ns_per_round)
}

/// Returns the same table for the loop's own time.
pub(crate) fn loops(rows: &[Row]) -> Table {
    ratios(rows, Figures::loop_part, |f| Some(f.ns_per_round_median))
}

fn ratios(rows: &[Row], of: Account, price: Account) -> Table {
    let names = rows.iter().map(|row| row.subject.as_str());
    let adapting =
        grouping::distinct(names.filter(|name| !PURE.contains(name) && *name != "floor"));
    let mut heading = vec!["kind", "load", "best pure", "its time", "poll", "epoll-lt", "epoll-et"];
    heading.extend(&adapting);
    heading.push("floor");
    let mut table = Table::new(heading).names(3);
    for ((kind, load), rows) in mix::loads(rows) {
        let best = best_pure(&rows, price);
        let mut cells = vec![
            kind.to_owned(),
            load.to_owned(),
            best.map_or_else(String::new, |row| row.subject.clone()),
            best.and_then(|row| price(&row.figures)).map_or_else(String::new, table::time),
        ];
        let names = ["poll", "epoll-lt", "epoll-et"].into_iter().chain(adapting.iter().copied());
        cells.extend(
            names.chain(["floor"]).map(|name| table::ratio(find(&rows, name).and_then(of))),
        );
        table.row(cells);
    }
    table
}
