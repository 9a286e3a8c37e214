//! What the report says of `superpoll-lab files`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::files;
use crate::page::Page;
use crate::targets;

pub const EXPERIMENT: Experiment = Experiment {
    name: "files",
    title: "what a server takes to send a file",
    method: "A file is asked for again and again on connections that stay open, each with one request \
             under way; every byte of every answer is checked. Measured is the processor time of the \
             server's process, which has a processor to itself; ratios are those of each round. \
             “Generator” is the share of its own processor that the load generator needs. Calls are those \
             that strace sees in another run, in which the server is slower.",
    quick: "files --quick --seconds 6 --subjects superpoll-epoll,superpoll-adaptive,nginx,hyper-tokio",
    full: "files --paced --seconds 90",
    origin: origin!(files),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.files else { return Ok(()) };
    for connections in files::plot::connections(&record.rows) {
        let plot = files::plot::over_bytes(&record.rows, connections);
        page.plot(&format!("files-{connections}.svg"), plot)?;
    }
    page.table(&files::table::servers(&record.rows));
    page.table(&files::table::calls(&record.rows));
    page.targets(&targets::of_files(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.files.iter().flat_map(|record| &record.rows);
    rows.map(|row| Figure {
        at: format!("{} bytes, {} connections, {}", row.bytes, row.connections, row.subject),
        name: "processor time by request, ns".to_owned(),
        value: row.cpu_ns_per_request_median,
        low: row.cpu_ns_per_request_min,
        high: row.cpu_ns_per_request_min + row.cpu_spread,
    })
    .collect()
}
