//! What the report says of `superpoll-lab idle`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::idle;
use crate::page::Page;
use crate::targets;

pub const EXPERIMENT: Experiment = Experiment {
    name: "idle",
    title: "connections that do nothing",
    method: "Bytes by connection, of the second half of the connections. User memory is what the server's \
             process has to itself; “left” what it has more than at its start after all connections were \
             closed. In a burst all clients of a half connect, then all ask, then all are answered. The \
             kernel's memory is that of both ends, and of whatever else the machine does.",
    quick: "idle --quick --arrival one-by-one --subjects superpoll-keep-alive,superpoll-websocket,superpoll-relay,nginx-keep-alive,hyper-keep-alive",
    full: "idle",
    origin: origin!(idle),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.idle else { return Ok(()) };
    page.figure("idle.svg", &idle::plot::bars(&record.rows))?;
    page.table(&idle::table::connections(&record.rows));
    page.targets(&targets::of_idle(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.idle.iter().flat_map(|record| &record.rows);
    rows.map(|row| Figure {
        at: format!("{} {} {}, {}", row.connections, row.kind, row.arrival, row.subject),
        name: "user memory by connection, bytes".to_owned(),
        value: row.user_bytes_per_connection.median,
        low: row.user_bytes_per_connection.least,
        high: row.user_bytes_per_connection.most,
    })
    .collect()
}
