//! The back-end that `auto` means on this machine, and the estimates behind the choice.

use std::fmt::{self, Write};

use crate::table::Table;
use serde_json::{Map, Value, json};
use superpoll::BackendKind;
use superpoll::diagnostics::{
    Choice, Comparison, Estimate, Kind, Load, MARGIN, Reason, RingCosts, RingKindCosts, WORST,
};

/// Writes the chosen back-end, and the reason.
pub(super) fn explain(out: &mut String, choice: &Choice) -> fmt::Result {
    writeln!(out, "auto is {} here: {}", choice.kind, why(choice))?;
    if let Reason::Costs(comparison) = &choice.reason {
        writeln!(out, "\nestimated nanoseconds per event, adaptive and uring\n")?;
        write!(out, "{}", estimates(comparison))?;
    }
    if let Ok(ring) = RingCosts::calibrated() {
        writeln!(out, "\ncosts of io_uring in nanoseconds (measured just now)\n")?;
        write!(out, "{}", table(ring))?;
        writeln!(out, "{:<22}  {:.0}", "enter", ring.enter)?;
    }
    Ok(())
}

/// Returns the reason in one sentence.
fn why(choice: &Choice) -> String {
    let comparison = match &choice.reason {
        Reason::Costs(comparison) => comparison,
        Reason::NoRing(error) => return error.to_string(),
        other => return format!("{other:?}"),
    };
    let worst = comparison.worst().map_or_else(String::new, |worst| {
        format!(
            ", and {:.2} at worst ({}, {}; at most {:.2} is allowed)",
            worst.ratio(),
            worst.kind.name(),
            worst.load.name(),
            1.0 + WORST
        )
    });
    format!(
        "events through io_uring cost {:.2} of those through poll and epoll over all (at most {:.2} is worth it)\
         {worst}",
        comparison.mean(),
        1.0 - MARGIN
    )
}

fn of(comparison: &Comparison, kind: Kind, load: Load) -> Option<&Estimate> {
    comparison.estimates.iter().find(|one| one.kind == kind && one.load == load)
}

/// Returns a line per load, both costs for each kind.
fn estimates(comparison: &Comparison) -> Table {
    let kinds = Kind::MEASURED;
    let names = kinds.iter().flat_map(|kind| [kind.name(), "uring", "ratio"]);
    let mut table = Table::new(std::iter::once("load").chain(names));
    for load in Load::ALL {
        let cells = kinds.iter().flat_map(|&kind| match of(comparison, kind, load) {
            Some(one) => [
                format!("{:.0}", one.adaptive),
                format!("{:.0}", one.uring),
                format!("{:.2}", one.ratio()),
            ],
            None => ["?", "?", "?"].map(str::to_owned),
        });
        table.row(std::iter::once(load.name().to_owned()).chain(cells));
    }
    table
}

/// Returns every cost of a kind in a ring, by name.
fn fields(costs: &RingKindCosts) -> [(&'static str, f32); 4] {
    [("arm", costs.arm), ("event", costs.event), ("wake", costs.wake), ("cancel", costs.cancel)]
}

fn table(ring: &RingCosts) -> Table {
    let names = fields(ring.of(Kind::Pipe)).map(|(name, _)| name);
    let mut table = Table::new(std::iter::once("kind").chain(names));
    for kind in Kind::MEASURED {
        let values = fields(ring.of(kind)).map(|(_, value)| format!("{value:.0}"));
        table.row(std::iter::once(kind.name().to_owned()).chain(values));
    }
    table
}

/// Returns the same as JSON for programs.
pub(super) fn document(choice: &Choice) -> Value {
    let (mut mean, mut worst, mut estimates, mut refusal) = (None, None, Vec::new(), None);
    match &choice.reason {
        Reason::Costs(comparison) => {
            mean = Some(comparison.mean());
            worst = comparison.worst().map(estimate);
            estimates = comparison.estimates.iter().map(estimate).collect();
        }
        Reason::NoRing(error) => refusal = Some(error.to_string()),
        _ => {}
    }
    json!({
        "backend": choice.kind.name(),
        "uring": choice.kind == BackendKind::Uring,
        "why": why(choice),
        "refusal": refusal,
        "mean_ratio": mean,
        "mean_ratio_at_most": 1.0 - MARGIN,
        "worst": worst,
        "worst_ratio_at_most": 1.0 + WORST,
        "estimates": estimates,
        "ring_costs_ns": RingCosts::calibrated().ok().map(ring_document),
    })
}

fn estimate(one: &Estimate) -> Value {
    json!({
        "kind": one.kind.name(),
        "load": one.load.name(),
        "adaptive_ns": one.adaptive,
        "uring_ns": one.uring,
        "ratio": one.ratio(),
    })
}

fn ring_document(ring: &RingCosts) -> Value {
    let kinds = Kind::MEASURED.map(|kind| {
        let named = fields(ring.of(kind)).map(|(name, value)| (name.to_owned(), json!(value)));
        (kind.name().to_owned(), Value::Object(named.into_iter().collect()))
    });
    let mut object: Map<String, Value> = kinds.into_iter().collect();
    object.insert("enter".to_owned(), json!(ring.enter));
    Value::Object(object)
}
