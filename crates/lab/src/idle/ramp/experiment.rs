//! The experiment `idle-ramp`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::idle::Options;
use crate::idle::ramp::{Row, plot, table, trial};
use crate::part::Part;

/// Connections that do nothing, until there is a limit.
#[derive(Debug)]
pub(crate) struct IdleRamp;

impl Experiment for IdleRamp {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "idle-ramp";
    const TITLE: &'static str = "idle connections until there is a limit";
    const METHOD: &'static str = "Connections come in steps, each time as many again, to as many processes of a server as they \
             need. Bytes are by connection, of all that are there: user memory is what the servers have to \
             themselves more than without any, the kernel's is that of both ends, and the machine's is what \
             it has less available than at the start, clients and others included. The last step of each \
             says what ended it.";
    const QUICK: &'static str = "idle --ramp --quick --seconds 10";
    const FULL: &'static str = "idle --ramp --seconds 120";
    const MEASURED: &'static str =
        "memory of a connection that does nothing, by their number, and what ends it";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let plot = Part::plot("idle-ramp.svg", plot::over_connections(rows));
        vec![plot, Part::Table(table::steps(rows))]
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(Figure {
            at: format!("{} connections, {}", row.connections, row.subject),
            name: "user memory by connection, bytes".to_owned(),
            value: row.user_bytes_per_connection,
            low: row.user_bytes_per_connection,
            high: row.user_bytes_per_connection,
        })
    }
}
