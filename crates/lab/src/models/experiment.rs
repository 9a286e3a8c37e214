//! The experiment `models`, for the command line and the report.

use crate::atr;
use crate::experiment::{Experiment, Figure, Run};
use crate::models::{Options, Row, claims, plot, sweeps, table, trial};
use crate::part::Part;

/// Four ways to learn which descriptors are ready.
#[derive(Debug)]
pub(crate) struct Models;

impl Experiment for Models {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "models";
    const TITLE: &'static str = "try, signals, ask, register";
    const METHOD: &'static str = "Four ways to learn which descriptors are ready, each as the shortest loop, over the ratio of \
             active to all. The loop alone is waiting and reading; “with writers” adds what the writes \
             cost more than to descriptors that are not watched. “Best” is the best of all loops at that \
             ratio, “calls” are system calls, reads included, and “overflows” counts how often the kernel \
             had no room to note an event; every byte was read all the same. “While quiet” is the \
             processor time during a wait in which nothing happens. The floor knows what is ready and \
             only reads.";
    const QUICK: &'static str = "models --quick --seconds 16";
    const FULL: &'static str =
        "models --kind pipe,tcp --placement end,spread --paced --seconds 180";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let parts = sweeps(rows).into_iter().flat_map(|(name, rows)| {
            let stem = format!("models-{}", name.replace(' ', "-"));
            let plot = |file, with_writers| {
                Part::plot(format!("{stem}{file}.svg"), plot::ratios(&name, &rows, with_writers))
            };
            [
                Part::Heading(name.clone()),
                plot("", false),
                plot("-with-writers", true),
                Part::List(table::FROM_TO, claims::verdicts(&rows)),
                Part::text("Each loop against the best of all:"),
                Part::Table(table::subjects(&rows)),
                Part::text("Time per round of the loop alone (median):"),
                Part::Table(table::sweep(&rows, atr::table::loop_time)),
                Part::text("The same with the cost to the writers:"),
                Part::Table(table::sweep(&rows, atr::table::cost)),
            ]
        });
        parts.collect()
    }

    fn figure(row: &Row) -> Option<Figure> {
        let at = {
            format!("{} {} {}/{}, {}", row.kind, row.placement, row.active, row.total, row.subject)
        };
        Figure::of_rounds(at, &row.figures)
    }
}
