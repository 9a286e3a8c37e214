//! The kinds of connections, one after the other.

use serde_json::json;

use crate::budget::Budget;
use crate::error::Result;
use crate::idle::ramp::hosts::Hosts;
use crate::idle::ramp::{Row, climb};
use crate::idle::tls::Certificate;
use crate::idle::trial::arrivals;
use crate::idle::{Options, subject};
use crate::options::within;
use crate::record::Record;
use crate::server::program;
use crate::server::trial::Plan;

/// The kinds that are measured unless the options name some.
const DEFAULTS: &str =
    "superpoll-keep-alive,superpoll-long-poll,superpoll-websocket,superpoll-relay";

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let names = options.subjects.as_deref().unwrap_or(DEFAULTS);
    let (subjects, notes) = subject::chosen(Some(names))?;
    // The first arrival of the two unless the options name one.
    let arrival = arrivals(&options.arrival)?[0];
    let first = options.connections.unwrap_or(if options.output.quick { 250 } else { 1000 });
    let steps = options.steps.unwrap_or(if options.output.quick { 3 } else { 12 });
    within("--connections", first, 1..=1 << 20)?;
    within("--steps", steps, 1..=24)?;
    within("--servers", options.servers, 1..=64)?;
    let folder = program::folder("idle")?;
    let certificate = Certificate::make(folder.path())?;
    let mut plan = Plan::new("idle-ramp", &options.output, &subjects, subjects.len(), 0.0);
    plan.budget = Budget::new(&options.output, subjects.len(), 30.0, 300.0);
    plan.budget.needs(1);
    (plan.notes, plan.steps) = (notes, subjects.len() * steps);
    let own = [
        ("arrival", json!(arrival.name())),
        ("first", json!(first)),
        ("steps", json!(steps)),
        ("servers", json!(options.servers)),
    ];
    let bounds = climb::Bounds { first, steps, servers: options.servers };
    plan.run(&subjects, own, |trial, &subject| {
        let hosts = Hosts::new(subject, arrival, trial.process, &certificate);
        climb::climb(subject, hosts, bounds, trial)
    })
}
