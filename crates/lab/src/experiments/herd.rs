//! What the report says of `superpoll-lab herd`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::herd;
use crate::page::Page;
use crate::targets;

pub const EXPERIMENT: Experiment = Experiment {
    name: "herd",
    title: "many wait for one connection",
    method: "Processes wait for one listening socket (or engines of our runtime, in one process), and a \
             client connects without blocking: the time of that call holds the kernel's work for all who \
             wait. “Woken” counts how often they went back to sleep. Jain's index is 1 if all got the \
             same number of connections; “best” is what it could be with so few.",
    quick: "herd --quick --processes 1,64 --seconds 20 --subjects select,poll,epoll,epoll-alone,epoll-exclusive,accept,reuseport,superpoll-rt-exclusive",
    full: "herd --processes 1,1024,16384 --seconds 150",
    origin: origin!(herd),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.herd else { return Ok(()) };
    page.plot("herd.svg", herd::plot::over_processes(&record.rows, "listener"))?;
    page.table(&herd::table::herds(&record.rows));
    page.targets(&targets::of_herd(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    connects(records.herd.iter().flat_map(|record| &record.rows))
}

/// The time of a connection to each herd.
pub fn connects<'a>(rows: impl Iterator<Item = &'a herd::Row>) -> Vec<Figure> {
    rows.map(|row| Figure {
        at: format!(
            "{} wait, {} duplicates of a {}, {}",
            row.processes, row.dups, row.dups_of, row.subject
        ),
        name: "connect(), ns".to_owned(),
        value: row.connect_ns_median,
        low: row.connect_ns_min,
        high: row.connect_ns_p99,
    })
    .collect()
}
