//! The output of `superpoll-lab models`: for each sweep the times by both accounts, each loop in a
//! line, and the claims about each model next to the measurements.

use crate::atr::table::{per_event, spread};
use crate::grouping;
use crate::models::{FLOOR, Row};
use crate::record::{Account, Figures};
use crate::statistics;
use crate::table::{self, Table};

/// The subjects of a sweep in the order of their rows.
pub(super) fn names<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    grouping::distinct(rows.iter().map(|row| row.subject.as_str()))
}

/// The time per round of each loop at each ratio, by one of the accounts, and the best loop.
pub(crate) fn sweep(rows: &[&Row], of: Account) -> Table {
    let names = names(rows);
    let mut heading = vec!["active/total"];
    heading.extend(&names);
    heading.push("best");
    let mut table = Table::new(heading);
    for at in grouping::ascending(rows, |row| row.active).values() {
        let mut cells =
            vec![at.first().map_or_else(String::new, |row| format!("{:.3}", row.atr()))];
        let time = |name: &str| of(&at.iter().find(|row| row.subject == name)?.figures);
        cells.extend(names.iter().map(|name| time(name).map_or_else(String::new, table::time)));
        let best = names
            .iter()
            .filter(|name| **name != FLOOR)
            .filter_map(|name| Some((*name, time(name)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        cells.push(best.map_or_else(String::new, |(name, _)| name.to_owned()));
        table.row(cells);
    }
    table
}

/// Returns the row of a loop with the most active descriptors.
fn most<'a>(own: &[&'a Row]) -> &'a Row {
    own[own.len() - 1]
}

fn ratio(own: &[&Row], of: Account, end: fn(&[f64]) -> f64) -> String {
    let ratios: Vec<f64> = own.iter().filter_map(|row| of(&row.figures)).collect();
    table::ratio((!ratios.is_empty()).then(|| end(&ratios)))
}

/// Each loop in a line: its ratio to the best of the run, its cost per event, and its other costs.
pub(crate) fn subjects(rows: &[&Row]) -> Table {
    table::of(
        &grouping::subjects(rows, |row| &row.subject, |row| row.active),
        2,
        &[
            ("model", |own| own[0].model.clone()),
            ("loop", |own| own[0].subject.clone()),
            ("loop / best, least", |own| ratio(own, Figures::loop_part, statistics::minimum)),
            ("most", |own| ratio(own, Figures::loop_part, statistics::maximum)),
            ("with writers, least", |own| ratio(own, Figures::cost, statistics::minimum)),
            ("most", |own| ratio(own, Figures::cost, statistics::maximum)),
            ("ns/event, fewest", |own| per_event(own[0].active, &own[0].figures)),
            ("all", |own| per_event(most(own).active, &most(own).figures)),
            ("calls/event, fewest", |own| table::ratio(own[0].figures.calls_per_event)),
            ("all", |own| table::ratio(most(own).figures.calls_per_event)),
            ("empty reads", |own| {
                own.iter().map(|row| row.figures.empty_reads).sum::<u64>().to_string()
            }),
            ("overflows", |own| {
                let overflows: Option<u64> = own.iter().map(|row| row.figures.overflows).sum();
                overflows.map_or_else(|| "-".to_owned(), |count| count.to_string())
            }),
            ("cpu while quiet", |own| {
                let share = own[0].quiet_processor_share;
                share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
            }),
            ("spread of blocks", |own| spread(own.iter().map(|row| &row.figures))),
        ],
    )
}

/// The heading above the claims.
pub(crate) const FROM_TO: &str = "What is said of each model, and what was measured, from the fewest active \
                           descriptors to the most:";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subject: &str, model: &str, active: usize, ns: f64) -> Row {
        Row {
            total: 100,
            active,
            model: model.to_owned(),
            subject: subject.to_owned(),
            quiet_processor_share: (model != "none").then_some(0.125),
            figures: Figures {
                ns_per_round_median: ns,
                cost_ns_per_round: Some(ns * 2.0),
                loop_ratio: Some(ns / 1_000.0),
                calls_per_event: Some(1.5),
                ..Figures::default()
            },
            ..Row::default()
        }
    }

    #[test]
    fn the_floor_is_never_the_best_and_points_ascend() {
        let rows = [
            row("floor", "none", 100, 500.0),
            row("spin", "try", 100, 1_000.0),
            row("raw-poll", "ask", 100, 2_000.0),
            row("floor", "none", 1, 5.0),
            row("spin", "try", 1, 3_000.0),
            row("raw-poll", "ask", 1, 1_000.0),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let table = sweep(&rows, crate::atr::table::cost);
        let best: Vec<&str> =
            table.rows().iter().filter_map(|cells| cells.last()).map(String::as_str).collect();
        assert_eq!(best, ["raw-poll", "spin"]);
        assert_eq!(table.rows()[0][..2], ["0.010", "10 ns"]);
        let table = subjects(&rows);
        let spin = table.rows().iter().find(|cells| cells[1] == "spin").unwrap();
        assert_eq!(spin[..4], ["try", "spin", "1.00", "3.00"]);
        assert_eq!(spin[6..10], ["3000", "10", "1.50", "1.50"]);
        assert_eq!(spin[12], "12.5 %");
        assert_eq!(table.rows()[0][12], "-");
    }
}
