//! What the report says of `superpoll-lab relay`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::page::Page;
use crate::relay;
use crate::targets;

pub const EXPERIMENT: Experiment = Experiment {
    name: "relay",
    title: "what it takes to pass a connection on",
    method: "A relay stands between clients and an origin, in a process and on a processor of its own. \
             “connection” is a new connection for each request, which the origin closes after its answer, and \
             “one-by-one” the same with a single client; \
             “keep-alive” leaves connections open; “bulk” are long answers, which relays splice. Those \
             called “waits” do not speculate: they watch each direction before they try it. Calls are \
             counted by the relay itself, and by strace in another run, in which the relay is slower.",
    quick: "relay --quick --load connection,one-by-one,http-connection --forwarded 400 --seconds 12 --subjects superpoll-epoll,superpoll-epoll-waits,haproxy",
    full: "relay --paced --seconds 150",
    origin: origin!(relay),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.relay else { return Ok(()) };
    page.plot("relay.svg", relay::plot::over_loads(&record.rows))?;
    page.table(&relay::table::relays(&record.rows));
    page.table(&relay::table::calls(&record.rows));
    page.targets(&targets::of_relay(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.relay.iter().flat_map(|record| &record.rows);
    rows.map(|row| Figure {
        at: format!("{}, {} connections, {}", row.load, row.connections, row.subject),
        name: "processor time by request, ns".to_owned(),
        value: row.cpu_ns_per_request_median,
        low: row.cpu_ns_per_request_min,
        high: row.cpu_ns_per_request_min + row.cpu_spread,
    })
    .collect()
}
