//! What the report says of `superpoll-lab zombies`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::page::Page;
use crate::targets;
use crate::zombies;

pub const EXPERIMENT: Experiment = Experiment {
    name: "zombies",
    title: "connections that are silent",
    method: "A few clients ask and are answered; all other connections have asked once and keep silent. \
             Measured is the processor time of the server's processes by request, and the time on the clock \
             for all requests; “/ none” is the ratio to the same server, in as many processes, without \
             zombies, round by round. More zombies than one process may have are shared by several.",
    quick: "zombies --quick --seconds 20",
    full: "zombies --seconds 150",
    origin: origin!(zombies),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.zombies else { return Ok(()) };
    for family in ["echo", "web"] {
        let plot = zombies::plot::over_zombies(&record.rows, family);
        page.plot(&format!("zombies-{family}.svg"), plot)?;
    }
    page.table(&zombies::table::servers(&record.rows));
    page.targets(&targets::of_zombies(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.zombies.iter().flat_map(|record| &record.rows);
    rows.map(|row| Figure {
        at: match row.workers {
            0 | 1 => format!("{} zombies, {}", row.zombies, row.subject),
            several => format!("{} zombies, {several} processes, {}", row.zombies, row.subject),
        },
        name: "processor time by request, ns".to_owned(),
        value: row.cpu_ns_per_request_median,
        low: row.cpu_ns_per_request_min,
        high: row.cpu_ns_per_request_min + row.cpu_spread,
    })
    .collect()
}
