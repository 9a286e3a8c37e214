//! What the report says of `superpoll-lab herd --dups`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, herd::connects, origin};
use crate::herd;
use crate::page::Page;
use crate::targets;

pub const EXPERIMENT: Experiment = Experiment {
    name: "herd-dups",
    title: "many wait, and each for many duplicates of the listener",
    method: "As herd, but each process waits for many duplicates of the listening socket as well. The control waits for \
             as many duplicates of an empty pipe, which have nothing to do with the connection.",
    quick: "herd --quick --dups 200 --processes 64 --seconds 6 --subjects select,epoll,epoll-exclusive",
    full: "herd --dups 1019 --processes 256,1024 --seconds 90",
    origin: origin!(herd_dups),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.herd_dups else { return Ok(()) };
    page.plot("herd-dups.svg", herd::plot::over_processes(&record.rows, "listener"))?;
    page.plot("herd-dups-control.svg", herd::plot::over_processes(&record.rows, "pipe"))?;
    page.table(&herd::table::herds(&record.rows));
    page.targets(&targets::of_herd(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    connects(records.herd_dups.iter().flat_map(|record| &record.rows))
}
