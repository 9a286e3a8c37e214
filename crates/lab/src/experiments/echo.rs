//! What the report says of `superpoll-lab echo`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::echo;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::page::Page;
use crate::targets;

pub const EXPERIMENT: Experiment = Experiment {
    name: "echo",
    title: "what a server takes for a request",
    method: "Each server sends back what it gets, on connections of which each has one short request \
             under way; every byte of every answer is checked. Measured is the processor time of the \
             server's process, which has a processor to itself; ratios are those of each round. \
             “Generator” is the share of its own processor that the load generator needs: at 100 % the \
             server has to wait for it, finds fewer requests at a time, and sleeps in between.",
    quick: "echo --quick --seconds 14",
    full: "echo --sweep --kind all --paced --seconds 120",
    origin: origin!(echo),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.echo else { return Ok(()) };
    for kind in echo::plot::kinds(&record.rows) {
        page.plot(&format!("echo-{kind}.svg"), echo::plot::over_connections(&record.rows, kind))?;
    }
    page.table(&echo::table::servers(&record.rows));
    page.targets(&targets::of_echo(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.echo.iter().flat_map(|record| &record.rows);
    rows.map(|row| Figure {
        at: format!("{} connections by {}, {}", row.connections, row.kind, row.subject),
        name: "processor time by request, ns".to_owned(),
        value: row.cpu_ns_per_request_median,
        low: row.cpu_ns_per_request_min,
        high: row.cpu_ns_per_request_min + row.cpu_spread,
    })
    .collect()
}
