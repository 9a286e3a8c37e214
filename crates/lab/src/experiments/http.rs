//! What the report says of `superpoll-lab http`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::http;
use crate::page::Page;
use crate::targets;

pub const EXPERIMENT: Experiment = Experiment {
    name: "http",
    title: "what a web server takes for a request",
    method: "hyper answers thirteen bytes over HTTP/1 on connections that stay open, each with one \
             request in flight; only the runtime below it differs. Measured is the processor time of the \
             server's process, which has a processor to itself. “raw-epoll” answers canned bytes and is \
             the lower bound. Requests per second depend on the load generator too.",
    quick: "http --quick --seconds 8",
    full: "http --connections 1,64,1000 --seconds 90",
    origin: origin!(http),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.http else { return Ok(()) };
    page.plot("http.svg", http::plot::over_connections(&record.rows))?;
    page.table(&http::table::servers(&record.rows));
    page.targets(&targets::of_http(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.http.iter().flat_map(|record| &record.rows);
    rows.map(|row| Figure {
        at: format!("{} connections, {}", row.connections, row.subject),
        name: "processor time by request, ns".to_owned(),
        value: row.cpu_ns_per_request_median,
        low: row.cpu_ns_per_request_min,
        high: row.cpu_ns_per_request_min + row.cpu_spread,
    })
    .collect()
}
