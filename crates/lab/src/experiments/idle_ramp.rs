//! What the report says of `superpoll-lab idle --ramp`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::idle::ramp;
use crate::page::Page;

pub const EXPERIMENT: Experiment = Experiment {
    name: "idle-ramp",
    title: "idle connections until there is a limit",
    method: "Connections come in steps, each time as many again, to as many processes of a server as they \
             need. Bytes are by connection, of all that are there: user memory is what the servers have to \
             themselves more than without any, the kernel's is that of both ends, and the machine's is what \
             it has less available than at the start, clients and others included. The last step of each \
             says what ended it.",
    quick: "idle --ramp --quick --seconds 10",
    full: "idle --ramp --seconds 120",
    origin: origin!(idle_ramp),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.idle_ramp else { return Ok(()) };
    page.plot("idle-ramp.svg", ramp::plot::over_connections(&record.rows))?;
    page.table(&ramp::table::steps(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.idle_ramp.iter().flat_map(|record| &record.rows);
    rows.map(|row| Figure {
        at: format!("{} connections, {}", row.connections, row.subject),
        name: "user memory by connection, bytes".to_owned(),
        value: row.user_bytes_per_connection,
        low: row.user_bytes_per_connection,
        high: row.user_bytes_per_connection,
    })
    .collect()
}
