//! Nothing moves: new descriptors start where the caller's hint says and stay there.

use crate::interest::Hint;
use crate::policy::{Account, PassCounts, Policy, Quiet, Set, Verdict, View};

/// Places by hint alone; descriptors without one go to the default place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed {
    default: Set,
}

impl Fixed {
    /// Descriptors without a hint are watched at `default`.
    pub const fn new(default: Set) -> Fixed {
        Fixed { default }
    }
}

impl Policy for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn start(&mut self, _account: &mut Account, hint: Hint, _view: &View<'_>) -> Set {
        match hint {
            Hint::None => self.default,
            Hint::Busy => Set::Hot,
            Hint::Idle => Set::Cold,
        }
    }

    fn cold_event(&mut self, _account: &mut Account, _view: &View<'_>) -> bool {
        false
    }

    fn moved_to_hot(&mut self, _account: &mut Account, _view: &View<'_>) {}

    fn hot_event(&mut self, _account: &mut Account, _view: &View<'_>) {}

    fn review(&mut self, _account: &mut Account, _view: &View<'_>) -> Verdict {
        Verdict::Stay
    }

    fn hand(&self, _view: &View<'_>) -> usize {
        0
    }

    fn moved_to_cold(&mut self, _account: &mut Account, _handed_off: bool, _view: &View<'_>) {}

    fn pass(&mut self, _tally: PassCounts, _view: &View<'_>) {}

    fn quiet(&mut self, _view: &View<'_>) -> Quiet {
        Quiet::Stay
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;

    #[test]
    fn a_hint_places_and_nothing_moves() {
        let costs = &Costs::ASSUMED;
        let view = View { costs, scan_factor: 1.0, passes: 9, blocks: 0, hot: 40, cold: 1 };
        for default in [Set::Hot, Set::Cold] {
            let mut policy = Fixed::new(default);
            let mut account = Account { parked: true, ..Account::default() };
            assert_eq!(policy.start(&mut account, Hint::None, &view), default);
            assert_eq!(policy.start(&mut account, Hint::Busy, &view), Set::Hot);
            assert_eq!(policy.start(&mut account, Hint::Idle, &view), Set::Cold);
            assert!(!policy.cold_event(&mut account, &view));
            assert_eq!(policy.review(&mut account, &view), Verdict::Stay);
            assert_eq!((policy.hand(&view), policy.quiet(&view)), (0, Quiet::Stay));
            assert_eq!(policy.name(), "fixed");
        }
    }
}
