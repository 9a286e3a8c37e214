//! What the report says of `superpoll-lab ring`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::page::Page;
use crate::ring;
use crate::targets;

pub const EXPERIMENT: Experiment = Experiment {
    name: "ring",
    title: "pipes in a ring",
    method: "A task between each two pipes passes on what it reads, up to 64 bytes at a time; the bytes \
             in flight go round for some laps. A hop is one byte through one pipe. Each subject has a \
             process of its own, and all take turns. “read+write” knows where the bytes are and never \
             waits.",
    quick: "ring --quick --seconds 20",
    full: "ring --sweep --seconds 180",
    origin: origin!(ring),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.ring else { return Ok(()) };
    page.figure("ring.svg", &ring::plot::bars(&record.rows))?;
    page.plot("ring-pipes.svg", ring::plot::over_total(&record.rows))?;
    page.plot("ring-in-flight.svg", ring::plot::over_share(&record.rows))?;
    for ((total, in_flight), rows) in ring::table::points(&record.rows) {
        page.heading(&ring::table::name(total, in_flight));
        page.table(&ring::table::point(&rows));
    }
    page.targets(&targets::of_ring(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.ring.iter().flat_map(|record| &record.rows);
    rows.map(|row| Figure {
        at: format!("{} pipes, {} in flight, {}", row.total, row.in_flight, row.subject),
        name: "ns per hop".to_owned(),
        value: row.ns_per_hop_median,
        low: row.ns_per_hop_min,
        high: row.ns_per_hop_min + row.ns_per_hop_spread,
    })
    .collect()
}
