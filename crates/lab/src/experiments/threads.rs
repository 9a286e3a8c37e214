//! What the report says of `superpoll-lab threads`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::page::Page;
use crate::threads;

pub const EXPERIMENT: Experiment = Experiment {
    name: "threads",
    title: "a thread for each descriptor, or a loop",
    method: "In every round each active descriptor gets a byte, which a thread asleep in a read takes, or a loop \
             over events. The clock runs from before the first write until the last byte was read; processor time is \
             that of all threads, and what it takes the writer to wake them. On one processor, the writer's, all \
             bytes are there when a subject first looks; on all, threads run side by side. “Best” is the best loop \
             at that ratio; ratios are those of blocks of the same turn.",
    quick: "threads --quick --total 1000 --active 1,100,500,700,1000 --seconds 12",
    full: "threads --kind pipe,tcp --paced --seconds 180",
    origin: origin!(threads),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.threads else { return Ok(()) };
    page.plot("threads.svg", threads::plot::ratios(&record.rows))?;
    for (name, rows) in threads::sweeps(&record.rows) {
        page.heading(&name);
        let stem = format!("threads-{}", name.replace(", ", "-").replace(' ', "-"));
        page.plot(&format!("{stem}-clock.svg"), threads::plot::clocks(&name, &rows))?;
        page.plot(&format!("{stem}-processor.svg"), threads::plot::costs(&name, &rows))?;
        page.list(threads::table::QUESTION, threads::table::verdicts(&rows));
        for account in &threads::table::ACCOUNTS {
            page.text(&format!("{}:", account.name));
            page.table(&threads::table::sweep(&rows, account));
        }
        page.text("Each subject:");
        page.table(&threads::table::subjects(&rows));
    }
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.threads.iter().flat_map(|record| &record.rows);
    rows.map(|row| Figure {
        at: format!(
            "{} {} {}/{}, {} processors, {}",
            row.kind, row.placement, row.active, row.total, row.processors, row.subject
        ),
        name: "processor ns per event".to_owned(),
        value: row.cost_ns_per_event,
        low: row.cost_ns_per_event_low,
        high: row.cost_ns_per_event_high,
    })
    .collect()
}
