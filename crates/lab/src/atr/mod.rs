//! `superpoll-lab atr`: the cost of watching over the ratio of active to all descriptors.
//!
//! A number of descriptors is watched, and from one to all of them are active in every round. The
//! more descriptors are active, the better `poll` looks, because it pays for all of them anyway;
//! `epoll` pays for the active ones. The experiment plots the time of `poll` divided by that of
//! `epoll` over the ratio and finds where the quotient falls below one. It does so twice: for the
//! loop's own time, as this experiment was first done, and with the writers' cost included.

use crate::experiment::{Experiment, Figure, RINGS, Run, Target, Targets};
use crate::plot::{self, Curve, Plot};
use crate::record::{Account, Figures, PURE};
use crate::statistics;
use crate::sweep::{Row, sweeps};
use crate::table::{self, Part, Table};

mod trial;

crate::options::options! {
    /// Options of `superpoll-lab atr`.
    pub(crate) struct Options;

    /// Descriptors: numbers with commas, or "random" for five totals drawn from the seed, up to
    /// 10,000, or up to 1,000 where time is short
    /// [default: 1000; with --latency 10,100,1000,9900, or 10,1000 if quick]
    total: Option<String> = N,
    /// How many descriptors are active: numbers with commas (default: from one to all)
    active: Option<String> = LIST,
    /// Where the active descriptors lie among all: end, spread, front or all
    placement: String = LIST "end",
    /// Kinds of descriptors: pipe, unix, tcp or all
    kind: String = LIST "pipe",
    /// Pollers to measure, with commas, or all
    subjects: Option<String> = LIST,
    /// Measures how long a blocked loop takes to wake up, over the totals; --active of them are
    /// busy before, one by default
    latency: bool,
}

/// Returns the points of a curve: for each ratio, a value computed from the figures of two
/// subjects.
pub(crate) fn curve(
    rows: &[&Row],
    above: &str,
    below: &str,
    of: impl Fn(&Figures) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let value = |row: &&&Row| of(&row.figures);
    rows.iter()
        .filter(|row| row.subject == above && row.figures.no_ratio.is_none())
        .filter_map(|row| {
            let other = rows.iter().find(|o| o.subject == below && o.active == row.active)?;
            Some((row.atr(), value(&row)? / value(&other)?))
        })
        .collect()
}

/// Returns the ratio at which `above` stops being slower than `below`.
pub(crate) fn break_even(
    rows: &[&Row],
    above: &str,
    below: &str,
    of: impl Fn(&Figures) -> Option<f64>,
) -> Option<f64> {
    let mut curve = curve(rows, above, below, of);
    curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    statistics::break_even(&curve)
}

// The experiment `atr`, for the command line and the report.

/// Where `poll` beats `epoll` and the reverse.
#[derive(Debug)]
pub(crate) struct Atr;

impl Experiment for Atr {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "atr";
    const TITLE: &'static str = "active / total";
    const METHOD: &'static str = "In every round one byte is written to each active descriptor; the poller reports them and \
             each is read. “Loop” is the time of waiting and reading, “with writes” adds what the writes \
             cost more than to descriptors that are not watched: epoll makes the writer pay for the \
             wake-up. “Pure” is the best of poll and both triggers of epoll, raw or ours.";
    const QUICK: &'static str = "atr --quick --total 1000,4000 --placement end,spread --seconds 24 --subjects floor,raw-poll,raw-epoll-lt,raw-epoll-et,poll,epoll-lt,adaptive,mio";
    const FULL: &'static str = "atr --total 1000,10000 --placement end,spread --kind pipe,tcp --paced --seconds 300 --subjects floor,raw-poll,raw-epoll-lt,raw-epoll-et,poll,epoll-lt,epoll-et,adaptive,uring,mio";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let parts = sweeps(rows).into_iter().flat_map(|(name, rows)| {
            let stem = format!("atr-{}", name.replace(' ', "-"));
            let best = format!("Each subject against the best pure one ({}):", PURE.join(", "));
            [
                Part::Heading(name.clone()),
                Part::plot(format!("{stem}.svg"), Some(quotient(&name, &rows))),
                Part::plot(format!("{stem}-subjects.svg"), Some(costs_by_event(&name, &rows))),
                Part::List("Where they break even:", crossings(&rows)),
                Part::List("Points without a ratio:", without_ratio(&rows)),
                Part::text("Time per round of the loop part (median):"),
                Part::Table(sweep(&rows)),
                Part::Text(best),
                Part::Table(subjects(&rows)),
            ]
        });
        parts.collect()
    }

    /// Returns the targets that `superpoll-lab atr` measures.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let is = |names: &'static [&'static str]| move |row: &Row| names.contains(&&*row.subject);
        // Sweeps are compared with one descriptor in a hundred active and with all active.
        let against = |row: &Row, theirs: &str| {
            let has_ratio = row.figures.no_ratio.is_none();
            let is_end = row.active == row.total || row.active == row.total.div_ceil(100);
            let other = rows.iter().filter(|_| is_end && has_ratio).find(|other| {
                other.subject == theirs
                    && (&other.kind, &other.placement, other.total, other.active)
                        == (&row.kind, &row.placement, row.total, row.active)
            })?;
            Some(row.figures.ns_per_round_median / other.figures.ns_per_round_median)
        };
        let mut all = Targets::new(rows, place);
        let adaptive = is(&["adaptive"]);
        let name = "uniform sweep: cost of adaptive / pure";
        all.add(name, 1.06, adaptive, |row| row.figures.cost());
        let name = "uniform sweep: loop of adaptive / pure";
        all.add(name, 1.05, adaptive, |row| row.figures.loop_part());
        all.at = |row| format!("{}, {1} / raw-{1}", place(row), row.subject);
        let name = "our epoll / raw epoll at 0.01 and 1.0";
        let raw = |row: &Row| against(row, &format!("raw-{}", row.subject));
        all.add(name, 1.03, is(&["epoll-lt", "epoll-et"]), raw);
        all.at = |row| format!("{}, {} / mio", place(row), row.subject);
        let name = "our epoll / mio at 0.01 and 1.0";
        all.add(name, 1.0, is(&["epoll-et"]), |row| against(row, "mio"));
        all.at = |row| format!("{} {}", place(row), row.subject);
        let steady = is(&["poll", "epoll-lt", "epoll-et", "adaptive", "adaptive-lt"]);
        let counts: [(&str, f64, Account); 4] = [
            ("waits", 1.0, |figures| figures.waits_per_round),
            ("epoll_ctl", 0.0, |figures| figures.epoll_ctl_per_round),
            ("wakes", 0.0, |figures| figures.wakes_per_round),
            ("allocations", 0.0, |figures| figures.allocations_per_round),
        ];
        for (what, bound, of) in counts {
            let name = format!("steady state: {what} per round");
            all.add(name, bound, steady, |row| of(&row.figures));
        }
        all.at = |row| format!("{} of {}", row.subject, row.total);
        let bytes = |row: &Row| Some(row.figures.memory_bytes? as f64 / row.total.max(1) as f64);
        all.add("own bytes per registered descriptor", 64.0, |_| true, bytes);
        all.at = place;
        for subject in RINGS {
            // One active descriptor, and from one in a hundred on.
            for (what, bound, kinds, one) in [
                ("one active", 1.0, &["pipe", "unix", "tcp"][..], true),
                ("pipes from 0.01", 0.95, &["pipe"], false),
                ("sockets from 0.01", 0.90, &["unix", "tcp"], false),
            ] {
                let applies = |row: &Row| {
                    let is_one = row.active == 1;
                    let is_there =
                        if one { is_one } else { row.active * 100 >= row.total && !is_one };
                    row.subject == subject && kinds.contains(&&*row.kind) && is_there
                };
                let name = format!("uniform sweep, {what}: cost of {subject} / pure");
                all.add(name, bound, applies, |row| row.figures.cost());
            }
        }
        all.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        row.figure()
    }
}

/// Names the point of a row.
fn place(row: &Row) -> String {
    format!("{} {} of {} {}", row.kind, row.active, row.total, row.placement)
}

// The output of `superpoll-lab atr`: one table per sweep, and where the curves cross.

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
    for active in table::ascending(rows, |row| row.active).into_keys() {
        let at = |name| find(rows, active, name);
        let Some(total) = rows.first().map(|row| row.total) else { continue };
        let mut cells = vec![format!("{:.3}", active as f64 / total.max(1) as f64)];
        cells.extend(
            shown.iter().map(|name| {
                at(name).map_or_else(String::new, |f| table::time(f.ns_per_round_median))
            }),
        );
        let has_ratio = |figures: &&Figures| figures.no_ratio.is_none();
        let poll = at("poll").filter(has_ratio);
        let quotient = |of: Account| Some(of(poll?)? / of(at("epoll-lt")?)?);
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
    if rows.iter().any(|row| row.active == active && row.figures.no_ratio.is_some()) {
        return "two modes";
    }
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
        &table::subjects(rows, |row| &row.subject, |row| row.active),
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
                    break_even(rows, above, below, loop_time),
                    curve(rows, above, below, loop_time)
                ),
                say(break_even(rows, above, below, cost), curve(rows, above, below, cost)),
            )
        })
        .collect()
}

/// Returns a line for each point whose rounds have two modes.
fn without_ratio(rows: &[&Row]) -> Vec<String> {
    let each = rows.iter().filter_map(|row| {
        row.figures.no_ratio.as_ref().map(|why| format!("{} of {}: {why}", row.active, row.total))
    });
    table::distinct(each)
}

// The plots of `superpoll-lab atr`: poll time over epoll time, and all subjects per event.

/// Plots poll time divided by epoll time over the ratio of active to all descriptors, with the
/// break-even line and the crossings, by both accounts; and our adaptive back-end relative to the
/// best pure one.
pub(crate) fn quotient(name: &str, rows: &[&Row]) -> Plot {
    let mut plot = Plot {
        title: format!("poll time / epoll time ({name})"),
        y_label: "poll / epoll (above 1: epoll is faster)".to_owned(),
        break_even: true,
        top: 8.0,
        upright: Some((0.6, "0.6, where the text has it")),
        ..Plot::default()
    };
    let mut add = |name: String, points: Vec<(f64, f64)>, colour, thin| {
        if !points.is_empty() {
            plot.curves.push(Curve { name, points, colour, thin });
        }
    };
    let pairs = [("raw-poll", "raw-epoll-lt"), ("poll", "epoll-lt")];
    let accounts: [(&str, Account, Account); 2] =
        [("loop", loop_time, Figures::loop_part), ("with writes", cost, Figures::cost)];
    for (thin, (account, of, ratio)) in accounts.into_iter().enumerate() {
        for (colour, (above, below)) in pairs.into_iter().enumerate() {
            let name = format!("{above} / {below}, {account}");
            add(name, curve(rows, above, below, of), colour, thin > 0);
        }
        let name = format!("adaptive / best pure, {account}");
        add(name, curve_of(rows, "adaptive", ratio), 2, thin > 0);
    }
    for (account, of, _) in accounts {
        for (above, below) in pairs {
            let at = break_even(rows, above, below, of);
            plot.marks.extend(at.map(|at| (at, format!("{above} / {below}, {account}"))));
        }
    }
    plot
}

/// Plots the cost of an event for each subject, with the writers' share where it is known.
pub(crate) fn costs_by_event(name: &str, rows: &[&Row]) -> Plot {
    let mut curves = plot::curves(rows, |row| {
        let time = cost(&row.figures).unwrap_or(row.figures.ns_per_round_median);
        Some((row.subject.as_str(), (row.atr(), time / row.active.max(1) as f64)))
    });
    for curve in &mut curves {
        curve.thin = PURE.contains(&curve.name.as_str());
    }
    let low = curves.iter().flat_map(|c| &c.points).map(|&(_, y)| y).fold(f64::INFINITY, f64::min);
    Plot {
        title: format!("cost per event ({name})"),
        y_label: "ns per event, writers' share included".to_owned(),
        curves,
        break_even: false,
        top: low * 6.0,
        ..Plot::default()
    }
}

fn curve_of(rows: &[&Row], subject: &str, of: Account) -> Vec<(f64, f64)> {
    rows.iter()
        .filter(|row| row.subject == subject)
        .filter_map(|row| Some((row.atr(), of(&row.figures)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Figures;

    fn row(subject: &str, active: usize, loop_ns: f64, cost_ratio: f64) -> Row {
        Row {
            kind: "pipe".to_owned(),
            placement: "end".to_owned(),
            total: 1000,
            active,
            subject: subject.to_owned(),
            figures: Figures {
                ns_per_round_median: loop_ns,
                cost_ratio: Some(cost_ratio),
                loop_ratio: Some(cost_ratio),
                memory_bytes: (subject == "adaptive").then_some(65_000),
                ..Figures::default()
            },
            ..Row::default()
        }
    }

    #[test]
    fn each_target_is_judged_at_its_worst_point() {
        let rows = [
            row("adaptive", 1, 1.0, 1.01),
            row("adaptive", 1000, 1.0, 1.07),
            row("raw-epoll-lt", 10, 100.0, 1.0),
            row("epoll-lt", 10, 102.0, 1.0),
            row("raw-epoll-lt", 500, 100.0, 1.0),
            row("epoll-lt", 500, 200.0, 1.0),
        ];
        let targets = Atr::targets(&rows);
        let find = |name: &str| targets.iter().find(|t| t.name.contains(name)).unwrap();
        assert!(!find("cost of adaptive").is_kept());
        assert_eq!(find("cost of adaptive").at, "pipe 1000 of 1000 end");
        assert_eq!(find("raw epoll").measured, 1.02);
        assert!(find("raw epoll").is_kept());
        assert_eq!(find("own bytes").measured, 65.0);
        assert!(targets.iter().all(|target| !target.name.contains("mio")));
        let text = crate::experiment::table(&targets).to_string();
        assert!(text.contains("missed") && text.contains("ok"));
    }

    #[test]
    fn rings_have_targets_of_their_own_by_kind_and_share() {
        let row = |subject: &str, kind: &str, active, ratio| Row {
            kind: kind.to_owned(),
            ..row(subject, active, 1.0, ratio)
        };
        let targets = Atr::targets(&[
            row("uring", "pipe", 1, 1.02),
            row("uring", "pipe", 5, 3.0),
            row("uring", "pipe", 10, 0.94),
            row("uring", "unix", 1000, 0.91),
        ]);
        let kept: Vec<(f64, bool)> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(1.02, false), (0.94, true), (0.91, false)]);
        assert!(targets.iter().all(|target| target.name.contains("cost of uring / pure")));
    }
}
