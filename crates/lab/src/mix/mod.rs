//! `superpoll-lab mix`: loads on which neither `poll` nor `epoll` is right for all descriptors.
//!
//! A few busy descriptors among many idle ones, busy sets that move, and descriptors that are
//! active at random: where adapting pays, and its cost where it cannot pay. The rounds of such
//! loads differ, and a move costs in the round it happens in, so the figure of a block is the mean
//! over all its rounds, over whole periods of the load; minimum, median and spread are over blocks.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, RINGS, Run, Target, Targets};
use crate::record::{Account, Figures, PURE};
use crate::table::{self, Part, Table};

pub(crate) mod trial;

crate::options::options! {
    /// Options of `superpoll-lab mix`.
    pub(crate) struct Options;

    /// Busy/idle descriptors, with commas [default: 50/950,200/9600,1000/8800, or 50/950 if quick]
    size: Option<String> = LIST,
    /// Loads: mixed, shift, random, worst or all; shift and random use the first size
    load: String = LIST "all",
    /// The busy set moves after this many rounds
    shift: String = LIST "10,15,20,30,50,100,300,1000",
    /// Kinds of descriptors: pipe, unix, tcp or all
    kind: String = LIST "pipe",
    /// Pollers to measure, with commas, or all
    subjects: Option<String> = LIST,
    /// Measures how long a blocked loop takes to wake up, over the sizes of mixed loads
    latency: bool,
}

/// One subject under one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// Busy descriptors; zero where all are alike.
    pub hot: usize,
    /// The remaining descriptors.
    pub cold: usize,
    /// After how many rounds the busy set moves; zero: never.
    pub shift_every: usize,
    /// The poller.
    pub subject: String,
    /// The load in words.
    pub load: String,
    /// Its family: mixed, shift, random or worst.
    pub family: String,
    /// How many were active in a round, on average.
    pub mean_active: f64,
    /// The measured figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Returns the loads of a record: all rows of one kind and load.
pub(crate) fn loads(rows: &[Row]) -> Vec<((&str, &str), Vec<&Row>)> {
    table::groups(rows, |row| (row.kind.as_str(), row.load.as_str()))
}

// The experiment `mix`, for the command line and the report.

/// Busy and idle descriptors together.
#[derive(Debug)]
pub(crate) struct Mix;

impl Experiment for Mix {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "mix";
    const TITLE: &'static str = "busy and idle descriptors together";
    const METHOD: &'static str = "Cost per round (waiting, reading, upkeep and the cost to the writers) against the best pure \
             poller of the same run; the floor knows what is ready and only reads.";
    const QUICK: &'static str =
        "mix --quick --size 50/950,200/9600 --load mixed --repetitions 7 --seconds 20";
    const FULL: &'static str = "mix --kind all --paced --seconds 240";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![
            Part::Picture("mix.svg", svg(rows)),
            Part::text(
                "Cost per round (wait, reads, upkeep, and what writers pay), the best pure one = 1:",
            ),
            Part::Table(costs(rows)),
            Part::text("The loop's own time per round, the best pure one = 1:"),
            Part::Table(loops(rows)),
        ]
    }

    /// Returns the targets that `superpoll-lab mix` measures.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| format!("{} {}", row.kind, row.load));
        let mut add =
            |name: String, bound, of: (&str, &str), kind: Option<&str>, shifts: Range<usize>| {
                let applies = |row: &Row| {
                    (&*row.subject, &*row.family) == of
                        && kind.is_none_or(|kind| row.kind == kind)
                        && (row.family != "shift" || shifts.contains(&row.shift_every))
                };
                targets.add(name, bound, applies, |row| row.figures.cost());
            };
        for (kind, bound, slow_bound) in
            [("pipe", 0.80, 0.92), ("unix", 0.90, 1.0), ("tcp", 0.88, 1.0)]
        {
            let name = format!("mixed loads, {kind}: cost of adaptive / pure");
            add(name, bound, ("adaptive", "mixed"), Some(kind), 0..1);
            let name = format!("busy set moves every 100 or slower, {kind}: cost / pure");
            add(name, slow_bound, ("adaptive", "shift"), Some(kind), 100..usize::MAX);
        }
        let name = "busy set moves every 10 to 50: cost / pure".to_owned();
        add(name, 1.06, ("adaptive", "shift"), None, 0..100);
        let name = "active at random, 0.1 to 0.75: cost / pure".to_owned();
        add(name, 1.08, ("adaptive", "random"), None, 0..1);
        for subject in RINGS {
            for (kind, bound) in [("pipe", 0.68), ("unix", 0.66), ("tcp", 0.58)] {
                let name = format!("mixed loads, {kind}: cost of {subject} / pure");
                add(name, bound, (subject, "mixed"), Some(kind), 0..1);
            }
            let name = format!("busy set moves every 10 to 1000: cost of {subject} / pure");
            add(name, 0.88, (subject, "shift"), None, 10..1001);
        }
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        let at = format!("{} {}, {}", row.kind, row.load, row.subject);
        Figure::of_rounds(at, &row.figures)
    }
}

// The output of `superpoll-lab mix`: a line for each load, with each subject's cost relative to
// the best pure one.

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
    let adapting = table::distinct(names.filter(|name| !PURE.contains(name) && *name != "floor"));
    let mut heading = vec!["kind", "load", "best pure", "its time", "poll", "epoll-lt", "epoll-et"];
    heading.extend(&adapting);
    heading.push("floor");
    let mut table = Table::new(heading).names(3);
    for ((kind, load), rows) in loads(rows) {
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

// The plot of `superpoll-lab mix`: bars of cost, a group for each load.
//
// Drawn by hand: bars with names next to them are a dozen lines of SVG.

/// The subjects that get a bar, with their colours.
const BARS: [(&str, &str); 6] = [
    ("poll", "#2f7ed8"),
    ("epoll-lt", "#e07b00"),
    ("epoll-et", "#a0703c"),
    ("adaptive", "#2a9d4a"),
    ("adaptive-threshold", "#d1495b"),
    ("floor", "#808080"),
];

/// Plots the cost relative to the best pure subject, with a line at 1. A bar that would leave the
/// plot is cut, says so, and keeps its number.
pub(crate) fn svg(rows: &[Row]) -> String {
    const LEFT: f64 = 330.0;
    const UNIT: f64 = 230.0;
    const MOST: f64 = 2.0;
    let mut body = String::new();
    let mut y = 46.0;
    for (place, (name, colour)) in BARS.iter().enumerate() {
        let x = 20.0 + 140.0 * place as f64;
        body += &format!(
            "<rect x=\"{x}\" y=\"10\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"21\">{name}</text>\n",
            x + 17.0
        );
    }
    for ((kind, load), rows) in loads(rows) {
        let top = y;
        for (name, colour) in BARS {
            let Some(ratio) = find(&rows, name).and_then(Figures::cost) else {
                continue;
            };
            let width = ratio.min(MOST) * UNIT;
            let cut = if ratio > MOST { " (cut)" } else { "" };
            body += &format!(
                "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"9\" \
                 fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{}\" font-size=\"9\">{ratio:.2}{cut}</text>\n",
                LEFT + width + 4.0,
                y + 8.0
            );
            y += 11.0;
        }
        if y > top {
            let load = load.split(" (").next().unwrap_or(load);
            body += &format!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{kind}: {load}</text>\n",
                LEFT - 8.0,
                (top + y) / 2.0 + 3.0
            );
            y += 9.0;
        }
    }
    let line = LEFT + UNIT;
    format!(
        "<svg width=\"900\" height=\"{height}\" viewBox=\"0 0 900 {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"12\" \
         fill=\"currentColor\">\n{body}<line x1=\"{line}\" y1=\"34\" x2=\"{line}\" y2=\"{y}\" \
         stroke=\"currentColor\" stroke-dasharray=\"5 4\"/><text x=\"{line}\" y=\"38\" \
         text-anchor=\"middle\" font-size=\"10\">best pure</text>\n</svg>\n",
        height = y + 10.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Figures;

    #[test]
    fn mixes_are_judged_by_family_kind_and_period() {
        let row = |kind: &str, family: &str, shift_every, ratio| Row {
            kind: kind.to_owned(),
            hot: 1,
            cold: 1,
            shift_every,
            subject: "adaptive".to_owned(),
            load: String::new(),
            family: family.to_owned(),
            mean_active: 1.0,
            figures: Figures { cost_ratio: Some(ratio), ..Figures::default() },
        };
        let kept = |rows: &[Row]| -> Vec<(f64, bool)> {
            Mix::targets(rows).iter().map(|t| (t.measured, t.is_kept())).collect()
        };
        let adaptive = kept(&[
            row("pipe", "mixed", 0, 0.79),
            row("tcp", "mixed", 0, 0.95),
            row("pipe", "shift", 10, 1.05),
            row("pipe", "shift", 300, 0.91),
            row("pipe", "worst", 0, 9.0),
        ]);
        assert_eq!(adaptive, [(0.79, true), (0.91, true), (0.95, false), (1.05, true)]);
        let ring = |kind: &str, family: &str, shift_every, ratio| Row {
            subject: "adaptive-uring".to_owned(),
            ..row(kind, family, shift_every, ratio)
        };
        let rings = kept(&[
            ring("pipe", "mixed", 0, 0.67),
            ring("tcp", "mixed", 0, 0.59),
            ring("pipe", "shift", 10, 0.89),
            ring("pipe", "shift", 5, 2.0),
            ring("pipe", "random", 0, 2.0),
        ]);
        assert_eq!(rings, [(0.67, true), (0.59, false), (0.89, false)]);
    }
}
