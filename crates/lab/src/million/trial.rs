//! The kinds of connections, one after the other.

use serde_json::json;

use crate::budget::Budget;
use crate::error::Result;
use crate::million::plan::{self, Machine};
use crate::million::stage::Stage;
use crate::million::{Options, Row};
use crate::options::Output;
use crate::record::Record;
use crate::run::Run;

/// The steps of a kind.
const STEPS: usize = 5;

/// Complaints that are printed for each kind.
const COMPLAINTS: usize = 3;

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let plan = plan::plan(options, Machine::here())?;
    let output = Output { repetitions: Some(1), ..options.output.clone() };
    let budget = Budget::new(&output, plan.kinds.len(), 30.0, 1200.0);
    let notes = plan.note.iter().cloned().collect();
    let mut run = Run::new("million", &output, notes, plan.kinds.len() * STEPS, budget);
    let mut rows = Vec::new();
    for &kind in &plan.kinds {
        if !run.budget.point() || !run.budget.round() {
            continue;
        }
        let measured = Stage::start(&plan, kind).and_then(|mut stage| {
            let row = stage.run(|step| run.progress.step(format!("{kind} {step}")));
            row.map(|row| (row, std::mem::take(&mut stage.complaints)))
        });
        if let Some((row, complaints)) = run.budget.keep(measured)? {
            rows.push(row);
            let complaints = complaints.into_iter().take(COMPLAINTS);
            complaints.for_each(|text| run.note(format!("{kind}: {text}")));
        }
    }
    let own = [
        ("kinds", json!(plan.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>())),
        ("connections", json!(plan.connections)),
        ("processes", json!(plan.processes)),
        ("keepers", json!(plan.has_keepers)),
    ];
    Ok(run.record(own, rows))
}
