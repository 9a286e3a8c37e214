//! What the report says of `superpoll-lab sit`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::page::Page;
use crate::sit;
use crate::targets;

pub const EXPERIMENT: Experiment = Experiment {
    name: "sit",
    title: "idle connections and their babysitter",
    method: "Idle descriptors are watched by the loop's own epoll set (nested), a second thread or \
             another process. Of each figure there is that of the middle round, and the spread of all. \
             “Main” is the processor time of the main loop's thread, “sitter” that of the babysitter's \
             thread or process.",
    quick: "sit --quick --repetitions 3 --seconds 24",
    full: "sit --seconds 120",
    origin: origin!(sit),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.sit else { return Ok(()) };
    page.plot("sit.svg", sit::plot::over_batches(&record.rows))?;
    for (heading, rows) in sit::table::parts(&record.rows) {
        page.heading(heading);
        page.table(&rows);
    }
    page.targets(&targets::of_sit(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.sit.iter().flat_map(|record| &record.rows);
    rows.map(|row| Figure {
        at: format!("{} of {}, {}", row.part, row.descriptors, row.subject),
        name: format!("{}, {}", row.figure, row.unit),
        value: row.median,
        low: row.least,
        high: row.most,
    })
    .collect()
}
