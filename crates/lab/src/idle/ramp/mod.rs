//! `superpoll-lab idle --ramp`: how many idle connections there can be, and what ends their number.
//!
//! Connections of a kind come in steps, each time as many again as there are. When the servers' memory has come to
//! rest it is read as in `superpoll-lab idle`: what their processes have to themselves, the kernel's slabs and socket pages, and
//! what the whole machine has less. A server process takes as many connections as its limit of descriptors leaves;
//! when it has them the next one is started, and so are processes of clients, each with an address of its own
//! (127.0.0.2 and up), which has all ports to itself.
//!
//! The last step of each server names what ended it: `descriptors` (of as many server processes as may be,
//! `--servers`), `ports` (that a relay has towards its origin), `memory` (a quarter of what was available at the start is
//! never used), `files` or `processes` of the whole system, `refused` if a connection was not answered as it should be
//! (a note says how), or the bounds of the experiment itself, `time` and `steps`. What can be known beforehand is: the
//! last step is cut down to what is possible, and so nothing is driven against the wall.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::idle::trial::arrivals;
use crate::idle::{Options, subject};
use crate::output;
use crate::record::Record;
use crate::server::Place;
use crate::server::processors::Processors;

mod climb;
mod hosts;
pub mod plot;
pub mod table;

/// What is measured unless kinds are named.
const DEFAULTS: &str =
    "superpoll-keep-alive,superpoll-long-poll,superpoll-websocket,superpoll-relay";

/// One step of one kind of connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The server and the kind.
    pub subject: String,
    /// What its connections have done, as in `superpoll-lab idle`.
    pub kind: String,
    /// The number of the step, from 1 on.
    pub step: usize,
    /// Connections, all told.
    pub connections: usize,
    /// Processes of the server that share them.
    pub servers: usize,
    /// What these have to themselves more than without connections, by connection, in bytes.
    pub user_bytes_per_connection: f64,
    /// The kernel's slabs by connection, both ends and all else on this machine since the start, in bytes.
    pub slab_bytes_per_connection: f64,
    /// The kernel's pages for sockets, likewise.
    pub socket_bytes_per_connection: f64,
    /// What the machine has less memory available than at the start, by connection, in bytes: servers and clients in
    /// user memory and kernel, and all else.
    pub machine_bytes_per_connection: f64,
    /// Memory that is available, in bytes.
    pub available_bytes: u64,
    /// How long the connections of this step took to come, in seconds.
    pub seconds: f64,
    /// What ended it: there in the last step of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// Runs the experiment.
///
/// # Errors
///
/// [`Error::Usage`] for options that make no sense; otherwise as [`idle::run`](crate::idle::run).
pub fn run(options: &Options) -> Result<Record<Row>> {
    options.output.check()?;
    let names = options.subjects.as_deref().unwrap_or(DEFAULTS);
    let (entries, mut notes) = subject::chosen(Some(names))?;
    // The first of both unless one is named.
    let arrival = arrivals(&options.arrival)?[0];
    let first = options.connections.unwrap_or(if options.output.quick { 250 } else { 1000 });
    let steps = options.steps.unwrap_or(if options.output.quick { 3 } else { 12 });
    for (name, value, most) in [
        ("--connections", first, 1 << 20),
        ("--steps", steps, 24),
        ("--servers", options.servers, 64),
    ] {
        if !(1..=most).contains(&value) {
            return Err(Error::usage(format!("{name} {value} is not possible: give 1 to {most}")));
        }
    }
    notes.iter().for_each(|note| output::note(note));
    // Before this thread keeps to one processor.
    let environment = Environment::here();
    let processors = Processors::here();
    let budget = options.output.budget(30.0, 300.0);
    let bounds = climb::Bounds {
        first,
        steps,
        servers: options.servers,
        seconds: budget / entries.len().max(1) as f64,
    };
    let rows = processors.apart(|processor| {
        let place = Place { processor, second_thread: options.output.second_thread };
        climb::all(&entries, arrival, bounds, place, &mut notes)
    })?;
    let parameters = [
        ("subjects", json!(entries.iter().map(|e| e.name).collect::<Vec<_>>())),
        ("about", entries.iter().map(|e| (e.name.to_owned(), json!(e.about))).collect()),
        ("arrival", json!(arrival.name())),
        ("first", json!(first)),
        ("steps", json!(steps)),
        ("servers", json!(options.servers)),
        ("seconds", json!(budget)),
        ("client_processor", json!(processors.client())),
        ("server_processor", json!(processors.server())),
        ("quick", json!(options.output.quick)),
        ("bytes_verified", json!(true)),
        ("notes", json!(notes)),
    ];
    Ok(Record::new("idle-ramp", environment, parameters, rows))
}
