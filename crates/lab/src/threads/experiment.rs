//! The experiment `threads`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::part::Part;
use crate::threads::{Options, Row, plot, sweeps, table, trial};

/// A thread for each descriptor, and loops over events.
#[derive(Debug)]
pub(crate) struct Threads;

impl Experiment for Threads {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "threads";
    const TITLE: &'static str = "a thread for each descriptor, or a loop";
    const METHOD: &'static str = "In every round each active descriptor gets a byte, which a thread asleep in a read takes, or a loop \
             over events. The clock runs from before the first write until the last byte was read; processor time is \
             that of all threads, and what it takes the writer to wake them. On one processor, the writer's, all \
             bytes are there when a subject first looks; on all, threads run side by side. “Best” is the best loop \
             at that ratio; ratios are those of blocks of the same turn.";
    const QUICK: &'static str =
        "threads --quick --total 1000 --active 1,100,500,700,1000 --seconds 12";
    const FULL: &'static str = "threads --kind pipe,tcp --paced --seconds 180";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let mut parts = vec![Part::plot("threads.svg", plot::ratios(rows))];
        for (name, rows) in sweeps(rows) {
            let stem = format!("threads-{}", name.replace(", ", "-").replace(' ', "-"));
            parts.extend([
                Part::Heading(name.clone()),
                Part::plot(format!("{stem}-clock.svg"), plot::clocks(&name, &rows)),
                Part::plot(format!("{stem}-processor.svg"), plot::costs(&name, &rows)),
                Part::List(table::QUESTION, table::verdicts(&rows)),
            ]);
            for account in &table::ACCOUNTS {
                let lead = Part::Text(format!("{}:", account.name));
                parts.extend([lead, Part::Table(table::sweep(&rows, account))]);
            }
            let lead = Part::text("Each subject:");
            parts.extend([lead, Part::Table(table::subjects(&rows))]);
        }
        parts
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(Figure::of_cost(
            format!(
                "{} {} {}/{}, {} processors, {}",
                row.kind, row.placement, row.active, row.total, row.processors, row.subject
            ),
            "processor ns per event",
            row.cost_ns_per_event_low,
            row.cost_ns_per_event,
        ))
    }
}
