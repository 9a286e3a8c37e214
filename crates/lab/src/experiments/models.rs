//! What the report says of `superpoll-lab models`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::page::Page;
use crate::{atr_table, models};

pub const EXPERIMENT: Experiment = Experiment {
    name: "models",
    title: "try, signals, ask, register",
    method: "Four ways to learn which descriptors are ready, each as the shortest loop, over the ratio of \
             active to all. The loop alone is waiting and reading; “with writers” adds what the writes \
             cost more than to descriptors that nobody watches. “Best” is the best of all loops at that \
             ratio, “calls” are system calls, reads included, and “overflows” counts how often the kernel \
             had no room to note an event; every byte was read all the same. “While quiet” is the \
             processor time during a wait in which nothing happens. The floor knows what is ready and \
             only reads.",
    quick: "models --quick --seconds 16",
    full: "models --kind pipe,tcp --placement end,spread --paced --seconds 180",
    origin: origin!(models),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.models else { return Ok(()) };
    for (name, rows) in models::sweeps(&record.rows) {
        page.heading(&name);
        let stem = format!("models-{}", name.replace(' ', "-"));
        for (file, with_writers) in
            [(format!("{stem}.svg"), false), (format!("{stem}-with-writers.svg"), true)]
        {
            page.plot(&file, models::plot::ratios(&name, &rows, with_writers))?;
        }
        page.list(models::table::FROM_TO, models::table::verdicts(&rows));
        page.text("Each loop against the best of all:");
        page.table(&models::table::subjects(&rows));
        page.text("Time per round of the loop alone:");
        page.table(&models::table::sweep(&rows, atr_table::loop_time));
        page.text("With what the writers pay:");
        page.table(&models::table::sweep(&rows, atr_table::cost));
    }
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.models.iter().flat_map(|record| &record.rows);
    let at = |row: &models::Row| {
        format!("{} {} {}/{}, {}", row.kind, row.placement, row.active, row.total, row.subject)
    };
    rows.flat_map(|row| Figure::of_rounds(at(row), &row.figures)).collect()
}
