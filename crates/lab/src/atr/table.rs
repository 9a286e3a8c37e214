//! The output of `superpoll-lab atr`: one table per sweep, and where the curves cross.

use crate::atr::{self, Row};
use crate::grouping;
use crate::record::{Account, Figures};
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
    for active in grouping::ascending(rows, |row| row.active).into_keys() {
        let at = |name| find(rows, active, name);
        let Some(total) = rows.first().map(|row| row.total) else { continue };
        let mut cells = vec![format!("{:.3}", active as f64 / total.max(1) as f64)];
        cells.extend(
            shown.iter().map(|name| {
                at(name).map_or_else(String::new, |f| table::time(f.ns_per_round_median))
            }),
        );
        let quotient = |of: Account| Some(of(at("poll")?)? / of(at("epoll-lt")?)?);
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

/// Formats the median time of an event.
pub(crate) fn per_event(active: usize, figures: &Figures) -> String {
    format!("{:.0}", figures.ns_per_round_median / active.max(1) as f64)
}

/// Formats how far the blocks of a subject are apart, in the median over its points.
pub(crate) fn spread<'a>(points: impl Iterator<Item = &'a Figures>) -> String {
    let spread = points.map(|figures| {
        let between = figures.block_ns_per_round_high - figures.block_ns_per_round_low;
        between / figures.ns_per_round_median.max(1.0)
    });
    format!("{:.0} %", crate::statistics::median(&spread.collect::<Vec<_>>()) * 100.0)
}

/// Returns the worst ratio of a subject, and where that is.
fn worst(own: &[&Row], of: Account) -> Option<(f64, f64)> {
    let ratios = own.iter().filter_map(|row| Some((of(&row.figures)?, row.atr())));
    ratios.max_by(|a, b| a.0.total_cmp(&b.0))
}

fn worst_ratio(own: &[&Row], of: Account) -> String {
    table::ratio(worst(own, of).map(|(ratio, _)| ratio))
}

fn worst_at(own: &[&Row], of: Account) -> String {
    worst(own, of).map_or_else(String::new, |(_, atr)| format!("{atr:.2}"))
}

/// Returns a table of every subject relative to the best pure one: its worst ratio over the sweep,
/// by both accounts, and its median time per event at the ends.
pub(crate) fn subjects(rows: &[&Row]) -> Table {
    table::of(
        &grouping::subjects(rows, |row| &row.subject, |row| row.active),
        1,
        &[
            ("subject", |own| own[0].subject.clone()),
            ("worst loop ratio", |own| worst_ratio(own, Figures::loop_part)),
            ("at", |own| worst_at(own, Figures::loop_part)),
            ("worst cost ratio", |own| worst_ratio(own, Figures::cost)),
            ("at", |own| worst_at(own, Figures::cost)),
            ("ns/event, one active", |own| per_event(own[0].active, &own[0].figures)),
            ("ns/event, all active", |own| {
                let most = own[own.len() - 1];
                per_event(most.active, &most.figures)
            }),
            ("spread of blocks", |own| spread(own.iter().map(|row| &row.figures))),
        ],
    )
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
