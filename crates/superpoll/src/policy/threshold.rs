//! One ratio per set, with hysteresis (a first version).

use crate::interest::Hint;
use crate::policy::{Account, Place, Policy, Quiet, Tally, Verdict, View};

/// Moves descriptors when the active/total ratio of their set crosses a threshold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threshold {}

impl Policy for Threshold {
    fn name(&self) -> &'static str {
        "threshold"
    }
    fn start(&mut self, _account: &mut Account, _hint: Hint, _view: &View<'_>) -> Place {
        Place::Cold
    }
    fn cold_event(&mut self, _account: &mut Account, _view: &View<'_>) -> bool {
        false
    }
    fn moved_to_hot(&mut self, _account: &mut Account, _view: &View<'_>) {}
    fn hot_event(&mut self, _account: &mut Account, _view: &View<'_>) {}
    fn review(&mut self, _account: &mut Account, _view: &View<'_>) -> Verdict {
        Verdict::Stay
    }
    fn moved_to_cold(&mut self, _account: &mut Account, _handed_off: bool, _view: &View<'_>) {}
    fn pass(&mut self, _tally: Tally, _view: &View<'_>) {}
    fn quiet(&mut self, _view: &View<'_>) -> Quiet {
        Quiet::Stay
    }
}
