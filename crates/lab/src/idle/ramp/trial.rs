//! The kinds of connections, one after the other.

use serde_json::json;

use crate::budget::Budget;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::idle::ramp::{Row, climb};
use crate::idle::trial::arrivals;
use crate::idle::{Options, subject};
use crate::record::Record;
use crate::say;
use crate::server::ProcessOptions;
use crate::server::processors::Processors;

/// The kinds that are measured unless the options name some.
const DEFAULTS: &str =
    "superpoll-keep-alive,superpoll-long-poll,superpoll-websocket,superpoll-relay";

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    options.output.check()?;
    let names = options.subjects.as_deref().unwrap_or(DEFAULTS);
    let (entries, mut notes) = subject::chosen(Some(names))?;
    // The first arrival of the two unless the options name one.
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
    notes.iter().for_each(|note| say::note(note));
    // Taken before this thread binds itself to one processor.
    let environment = Environment::here();
    let processors = Processors::here();
    let mut budget = Budget::new(&options.output, entries.len(), 30.0, 300.0);
    budget.needs(1);
    let bounds = climb::Bounds { first, steps, servers: options.servers };
    let rows = processors.apart(|processor| {
        let process = ProcessOptions { processor, second_thread: options.output.second_thread };
        climb::all(&entries, arrival, bounds, &mut budget, process, &mut notes)
    })?;
    let own = [
        ("subjects", json!(entries.iter().map(|e| e.name).collect::<Vec<_>>())),
        ("about", entries.iter().map(|e| (e.name.to_owned(), json!(e.about))).collect()),
        ("arrival", json!(arrival.name())),
        ("first", json!(first)),
        ("steps", json!(steps)),
        ("servers", json!(options.servers)),
        ("client_processor", json!(processors.client())),
        ("server_processor", json!(processors.server())),
        ("bytes_verified", json!(true)),
        ("notes", json!(notes)),
    ];
    let parameters = options.output.parameters().into_iter().chain(own).chain(budget.end());
    Ok(Record::new("idle-ramp", environment, parameters, rows))
}
