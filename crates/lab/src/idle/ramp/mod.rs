//! `superpoll-lab idle --ramp`: how many idle connections there can be, and which limit ends their
//! number.
//!
//! Connections of a kind come in steps, each doubling their number. When the servers' memory has
//! settled, it is read as in `superpoll-lab idle`: the private memory of their processes, the
//! kernel's slabs and socket pages, and the decrease of the whole machine's available memory. A
//! server process takes as many connections as its limit of descriptors allows; when it is full,
//! the next one starts. Processes of clients are started in the same way, each with an address of
//! its own (127.0.0.2 and up), which has all ports to itself.
//!
//! The last step of each server names the limit that ended it: `descriptors` (of the maximum number
//! of server processes, `--servers`), `ports` (of a relay towards its origin), `memory` (a quarter
//! of the memory available at the start is never used), `files` or `processes` of the whole system,
//! `refused` if a connection did not get the right answer (a note gives details), or the bounds of
//! the experiment itself, `time` and `steps`. Limits that can be known beforehand are respected:
//! the last step is cut down to the possible number, and so the machine is not driven into any of
//! them.

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run};
use crate::idle::Options;
use crate::plot::{self, Curve, Plot};
use crate::table::{self, Part, Table};

mod climb;

/// One step of one kind of connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The server and the kind of connection.
    pub subject: String,
    /// The kind of connection, as in `superpoll-lab idle`.
    pub kind: String,
    /// The number of the step, from 1 on.
    pub step: usize,
    /// Connections in total.
    pub connections: usize,
    /// Processes of the server that share them.
    pub servers: usize,
    /// Private memory of these servers above that without connections, per connection, in bytes.
    pub user_bytes_per_connection: f64,
    /// The kernel's slabs per connection, with both ends and everything else on this machine since
    /// the start, in bytes.
    pub slab_bytes_per_connection: f64,
    /// The kernel's pages for sockets, likewise.
    pub socket_bytes_per_connection: f64,
    /// The decrease of the machine's available memory since the start, per connection, in bytes:
    /// servers and clients in user memory and kernel, and everything else.
    pub machine_bytes_per_connection: f64,
    /// Memory that is available, in bytes.
    pub available_bytes: u64,
    /// How long the connections of this step took to arrive, in seconds.
    pub seconds: f64,
    /// The limit that ended the ramp; present in the last step of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

// The experiment `idle-ramp`, for the command line and the report.

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
    const RUN: Run<Self> = climb::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let plot = Part::plot("idle-ramp.svg", over_connections(rows));
        vec![plot, Part::Table(steps(rows))]
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

// The output of `superpoll-lab idle --ramp`: a line for each step of each kind of connection.

/// The table of all steps.
pub(crate) fn steps(rows: &[Row]) -> Table {
    table::of(
        rows,
        1,
        &[
            ("server", |row| row.subject.clone()),
            ("connections", |row| row.connections.to_string()),
            ("processes", |row| row.servers.to_string()),
            ("user bytes", |row| format!("{:.0}", row.user_bytes_per_connection)),
            ("slab bytes", |row| format!("{:.0}", row.slab_bytes_per_connection)),
            ("socket bytes", |row| format!("{:.0}", row.socket_bytes_per_connection)),
            ("machine bytes", |row| format!("{:.0}", row.machine_bytes_per_connection)),
            ("available MiB", |row| (row.available_bytes >> 20).to_string()),
            ("seconds", |row| format!("{:.1}", row.seconds)),
            ("ended by", |row| row.limit.clone().unwrap_or_default()),
        ],
    )
}

// The plot of `superpoll-lab idle --ramp`: memory over the number of connections.

/// Two curves for each kind of connection: the server's own memory and, in thin lines, the decrease
/// of the machine's memory. None if there was only one step.
pub(crate) fn over_connections(rows: &[Row]) -> Option<Plot> {
    let curves = |of: fn(&Row) -> f64, what: &str, thin: bool| -> Vec<Curve> {
        let mebibytes = |row: &Row| of(row) * row.connections as f64 / f64::from(1 << 20);
        // A logarithmic axis has no room for negative values, which appear if other processes gave
        // memory back.
        let curves = plot::curves(rows, |row| {
            let point = (row.connections as f64, mebibytes(row));
            (point.1 > 0.0).then_some((row.subject.as_str(), point))
        });
        let named = |curve: Curve| Curve { name: format!("{}, {what}", curve.name), thin, ..curve };
        curves.into_iter().map(named).collect()
    };
    let curves = [
        curves(|row| row.user_bytes_per_connection, "its own", false),
        curves(|row| row.machine_bytes_per_connection, "machine", true),
    ]
    .concat();
    Plot::of("memory of idle connections".to_owned(), "connections", "MiB", curves)
        .drawn_over_powers_of_ten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_its_figures_and_the_last_one_its_limit() {
        let row = Row {
            subject: "ours".to_owned(),
            connections: 2000,
            servers: 3,
            user_bytes_per_connection: 266.4,
            machine_bytes_per_connection: 9000.0,
            available_bytes: 5 << 20,
            limit: Some("descriptors".to_owned()),
            ..Row::default()
        };
        let text = steps(&[Row { limit: None, ..row.clone() }, row]).to_string();
        let lines: Vec<&str> = text.lines().collect();
        let last: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!(last, ["ours", "2000", "3", "266", "0", "0", "9000", "5", "0.0", "descriptors"]);
        assert!(lines[2].ends_with("0.0"), "{text}");
    }

    #[test]
    fn memory_is_drawn_over_all_connections_without_negative_values() {
        let row = |connections, user, machine| Row {
            subject: "ours".to_owned(),
            connections,
            user_bytes_per_connection: user,
            machine_bytes_per_connection: machine,
            ..Row::default()
        };
        let rows = [row(1 << 10, 1024.0, -5.0), row(1 << 11, 512.0, 2048.0)];
        let plot = over_connections(&rows).unwrap();
        assert_eq!(
            (plot.curves[0].name.as_str(), plot.curves[0].points.len()),
            ("ours, its own", 2)
        );
        assert_eq!((plot.curves[0].points[0].1, plot.curves[1].points.len()), (1.0, 1));
        assert!(over_connections(&rows[..1]).is_none());
    }
}
