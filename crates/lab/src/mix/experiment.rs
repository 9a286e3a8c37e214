//! The experiment `mix`, for the command line and the report.

use std::ops::Range;

use crate::experiment::{Experiment, Figure, Run};
use crate::mix::{Options, Row, plot, table, trial};
use crate::part::Part;
use crate::target::{RINGS, Target, Targets};

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
            Part::Picture("mix.svg", plot::svg(rows)),
            Part::text(
                "Cost per round (wait, reads, upkeep, and what writers pay), the best pure one = 1:",
            ),
            Part::Table(table::costs(rows)),
            Part::text("The loop's own time per round, the best pure one = 1:"),
            Part::Table(table::loops(rows)),
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
