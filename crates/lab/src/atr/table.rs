//! The output of `superpoll-lab atr`: one table per sweep, and where the curves cross.

use crate::atr::{self, Row};
use crate::grouping;
use crate::record::{Figures, PURE};
use crate::table::{self, Table};

/// The subjects that get a column of times, if they took part.
const TIMED: [&str; 5] = ["raw-poll", "raw-epoll-lt", "poll", "epoll-lt", "adaptive"];

/// Returns the loop's own time, from medians.
pub(crate) fn loop_time(figures: &Figures) -> Option<f64> {
    Some(figures.ns_per_round_median)
}

/// Returns the loop's own time plus the writers' cost.
pub(crate) fn cost(figures: &Figures) -> Option<f64> {
    figures.cost_ns_per_round
}

/// Returns the figures of a subject at a point.
pub(crate) fn find<'a>(rows: &[&'a Row], active: usize, subject: &str) -> Option<&'a Figures> {
    rows.iter().find(|row| row.active == active && row.subject == subject).map(|row| &row.figures)
}

/// Returns the numbers of active descriptors of a sweep, ascending.
pub(crate) fn points(rows: &[&Row]) -> Vec<usize> {
    let mut points: Vec<usize> = rows.iter().map(|row| row.active).collect();
    points.sort_unstable();
    points.dedup();
    points
}

/// Returns the table of one sweep: times per round of the loop part, ratios, and the cheapest
/// subject by cost.
pub(crate) fn sweep(rows: &[&Row]) -> Table {
    let shown: Vec<&str> =
        TIMED.into_iter().filter(|name| rows.iter().any(|row| row.subject == *name)).collect();
    let mut heading = vec!["active/total".to_owned()];
    heading.extend(shown.iter().map(|&name| name.to_owned()));
    heading.extend(
        ["poll/epoll", "with writes", "adaptive/pure", "with writes", "cheapest"].map(String::from),
    );
    let mut table = Table::new(heading);
    for active in points(rows) {
        let at = |name| find(rows, active, name);
        let Some(total) = rows.first().map(|row| row.total) else { continue };
        let mut cells = vec![format!("{:.3}", active as f64 / total.max(1) as f64)];
        cells.extend(
            shown.iter().map(|name| {
                at(name).map_or_else(String::new, |f| table::time(f.ns_per_round_median))
            }),
        );
        let quotient =
            |of: fn(&Figures) -> Option<f64>| Some(of(at("poll")?)? / of(at("epoll-lt")?)?);
        cells.push(table::ratio(quotient(loop_time)));
        cells.push(table::ratio(quotient(cost)));
        cells.push(table::ratio(at("adaptive").and_then(Figures::loop_part)));
        cells.push(table::ratio(at("adaptive").and_then(Figures::cost)));
        cells.push(cheapest(rows, active).to_owned());
        table.row(cells);
    }
    table
}

/// Returns the cheapest subject at a point, by cost, among all but the floor.
fn cheapest<'a>(rows: &[&'a Row], active: usize) -> &'a str {
    let contenders = rows.iter().filter(|row| row.active == active && row.subject != "floor");
    let price = |row: &Row| cost(&row.figures).unwrap_or(row.figures.ns_per_round_median);
    contenders.min_by(|a, b| price(a).total_cmp(&price(b))).map_or("", |row| row.subject.as_str())
}

/// Returns a table of every subject relative to the best pure one: its worst ratio over the sweep,
/// by both accounts, and its median time per event at the ends.
pub(crate) fn subjects(rows: &[&Row]) -> Table {
    let mut table = Table::new([
        "subject",
        "worst loop ratio",
        "at",
        "worst cost ratio",
        "at",
        "ns/event, one active",
        "ns/event, all active",
        "spread of blocks",
    ]);
    let names = grouping::distinct(rows.iter().map(|row| row.subject.as_str()));
    for name in names {
        let own: Vec<&Row> = rows.iter().copied().filter(|row| row.subject == name).collect();
        let worst = |of: fn(&Figures) -> Option<f64>| {
            own.iter()
                .filter_map(|row| Some((of(&row.figures)?, row.atr())))
                .max_by(|a, b| a.0.total_cmp(&b.0))
        };
        let (loops, costs) = (worst(Figures::loop_part), worst(Figures::cost));
        let at = |worst: Option<(f64, f64)>| {
            worst.map_or_else(String::new, |(_, atr)| format!("{atr:.2}"))
        };
        let per_event = |row: Option<&&Row>| {
            row.map_or_else(String::new, |row| {
                format!("{:.0}", row.figures.ns_per_round_median / row.active.max(1) as f64)
            })
        };
        let spread = own.iter().map(|row| {
            let f = &row.figures;
            (f.block_ns_per_round_high - f.block_ns_per_round_low) / f.ns_per_round_median.max(1.0)
        });
        let spread = crate::statistics::median(&spread.collect::<Vec<_>>());
        table.row([
            name.to_owned(),
            table::ratio(loops.map(|(ratio, _)| ratio)),
            at(loops),
            table::ratio(costs.map(|(ratio, _)| ratio)),
            at(costs),
            per_event(own.iter().min_by_key(|row| row.active)),
            per_event(own.iter().max_by_key(|row| row.active)),
            format!("{:.0} %", spread * 100.0),
        ]);
    }
    table
}

/// Describes in words where `poll` becomes as good as `epoll`, for our back-ends and for the raw
/// loops.
pub(crate) fn crossings(rows: &[&Row]) -> Vec<String> {
    let pairs = [("poll", "epoll-lt"), ("raw-poll", "raw-epoll-lt")];
    let has = |name: &str| rows.iter().any(|row| row.subject == name);
    pairs
        .into_iter()
        .filter(|(above, below)| has(above) && has(below))
        .map(|(above, below)| {
            let say = |at: Option<f64>, curve: Vec<(f64, f64)>| match (at, curve.last()) {
                (Some(at), _) => format!("at {at:.2}"),
                (None, Some((_, last))) if *last > 1.0 => "nowhere (it stays slower)".to_owned(),
                (None, Some(_)) => "from the start".to_owned(),
                (None, None) => "unknown".to_owned(),
            };
            format!(
                "{above} becomes cheaper than {below} {} by the loop's own time, {} with what \
                 the writers pay",
                say(
                    atr::break_even(rows, above, below, loop_time),
                    atr::curve(rows, above, below, loop_time)
                ),
                say(
                    atr::break_even(rows, above, below, cost),
                    atr::curve(rows, above, below, cost)
                ),
            )
        })
        .collect()
}

/// Returns all tables as text for the terminal.
pub(crate) fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for (name, rows) in atr::sweeps(rows) {
        text += &format!("{name}: time per round of the loop part (median)\n\n{}\n", sweep(&rows));
        for line in crossings(&rows) {
            text += &format!("{line}.\n");
        }
        text += &format!(
            "\n{name}: each subject against the best pure one ({})\n\n{}\n",
            PURE.join(", "),
            subjects(&rows)
        );
    }
    text
}
