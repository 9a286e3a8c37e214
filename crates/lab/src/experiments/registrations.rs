//! What the report says of `superpoll-lab registrations`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::page::Page;
use crate::registrations;
use crate::targets;

pub const EXPERIMENT: Experiment = Experiment {
    name: "registrations",
    title: "to begin and to end watching",
    method: "Nanoseconds of processor time per descriptor. All are registered, changed and deregistered \
             in batches, each of which the kernel knows before the next begins; each part ends with a \
             look at what is ready. That a registration holds, and that it has ended, is checked with \
             bytes in every round. “raw-epoll” makes a call of epoll_ctl for each; ratios to it are those \
             of each round.",
    quick: "registrations --quick --kind pipe --seconds 6",
    full: "registrations --seconds 60",
    origin: origin!(registrations),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.registrations else { return Ok(()) };
    for kind in registrations::table::kinds(&record.rows) {
        page.heading(kind);
        let file = format!("registrations-{kind}.svg");
        page.plot(&file, registrations::plot::over_batches(&record.rows, kind))?;
        page.table(&registrations::table::of_kind(&record.rows, kind));
    }
    page.list(registrations::table::QUESTION, registrations::table::answers(&record.rows));
    page.targets(&targets::of_registrations(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.registrations.iter().flat_map(|record| &record.rows);
    rows.flat_map(|row| {
        let at = format!("{}, {} at a time, {}", row.kind, row.batch, row.subject);
        Figure::of_ratios(at, "/ epoll_ctl", row.ratio, row.ratio_low, row.ratio_high)
    })
    .collect()
}
