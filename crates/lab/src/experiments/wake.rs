//! What the report says of `superpoll-lab wake`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::page::Page;
use crate::targets;
use crate::wake;

pub const EXPERIMENT: Experiment = Experiment {
    name: "wake",
    title: "a loop that has gone quiet",
    method: "Some descriptors were busy; then nothing happens for five milliseconds, and a child process \
             on another processor writes one byte to any of them. Measured is the time from right before \
             the write until the byte is read.",
    quick: "wake --quick",
    full: "wake --kind all",
    origin: origin!(wake),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.wake else { return Ok(()) };
    page.table(&wake::table(&record.rows));
    page.targets(&targets::of_wake(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.wake.iter().flat_map(|record| &record.rows);
    rows.map(|row| Figure {
        at: format!("{} {} of {} busy before, {}", row.kind, row.hot, row.total, row.subject),
        name: "wake-up p50, ns".to_owned(),
        value: row.wake_ns_p50,
        low: row.wake_ns_min,
        high: row.wake_ns_p90,
    })
    .collect()
}
