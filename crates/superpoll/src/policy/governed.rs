//! The default rule (a first version).

use std::time::Duration;

use crate::interest::Hint;
use crate::policy::{Account, Place, Policy, Quiet, Tally, Verdict, View};

/// Credit per descriptor, with a threshold that each descriptor's own history governs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Governed {}

fn gain(a: &Account, view: &View<'_>) -> f32 {
    let c = view.costs.of(a.kind);
    c.event + c.wake
}
fn price(a: &Account, view: &View<'_>) -> f32 {
    let c = view.costs.of(a.kind);
    c.add + c.delete
}
fn scan(a: &Account, view: &View<'_>) -> f32 {
    view.costs.of(a.kind).scan * view.scan_factor * view.passes.wrapping_sub(a.since) as f32
}

impl Policy for Governed {
    fn name(&self) -> &'static str {
        "governed"
    }

    fn start(&mut self, account: &mut Account, hint: Hint, view: &View<'_>) -> Place {
        account.since = view.passes;
        account.theta = 1.0;
        if hint == Hint::Busy { Place::Hot } else { Place::Cold }
    }

    fn cold_event(&mut self, a: &mut Account, view: &View<'_>) -> bool {
        a.credit = (a.credit - scan(a, view)).max(0.0) + gain(a, view);
        a.since = view.passes;
        a.credit >= a.theta * price(a, view)
    }

    fn moved_to_hot(&mut self, a: &mut Account, view: &View<'_>) {
        a.credit = 0.0;
        a.since = view.passes;
        a.events = 0;
    }

    fn hot_event(&mut self, a: &mut Account, view: &View<'_>) {
        a.credit = (a.credit - scan(a, view) + gain(a, view)).min(0.0);
        a.since = view.passes;
        a.events += 1;
    }

    fn review(&mut self, a: &mut Account, view: &View<'_>) -> Verdict {
        if a.credit - scan(a, view) <= -price(a, view) / 2.0 {
            Verdict::Demote
        } else if a.parked && a.events > 32 {
            Verdict::Settle
        } else {
            Verdict::Stay
        }
    }

    fn moved_to_cold(&mut self, a: &mut Account, _handed_off: bool, view: &View<'_>) {
        a.credit = 0.0;
        a.since = view.passes;
    }

    fn pass(&mut self, _tally: Tally, _view: &View<'_>) {}

    fn quiet(&mut self, _view: &View<'_>) -> Quiet {
        Quiet::HandOffAfter(Duration::from_micros(70))
    }
}
