//! Where each descriptor is watched: pure decisions, no system calls.
//!
//! A policy learns each event of a descriptor (in epoll, in the poll array, or when the clock hand
//! comes by) and answers whether the descriptor should move. It keeps its knowledge about a
//! descriptor in that descriptor's [`Account`], so that the engine pays no second lookup. The world
//! it sees is a [`View`]: costs, the number of passes so far, and the sizes of the two sets.
//! Because nothing else goes in, the same code runs in the simulator.

use std::time::Duration;

use crate::costs::{Costs, Kind};
use crate::interest::Hint;

mod cost_based;
mod fixed;
mod kind;
mod ratio;

pub use cost_based::CostBased;
pub use fixed::Fixed;
pub use kind::{POLICY_VARIABLE, PolicyKind};
pub use ratio::{RatioPolicy, ThresholdError, Thresholds};

/// Where a descriptor is watched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Set {
    /// In the poll array.
    Hot,
    /// In epoll.
    #[default]
    Cold,
}

/// A policy's memory of one descriptor: 24 bytes that the engine keeps next to the registration.
///
/// The names are those of the default policy; another policy may use the fields as it likes, except
/// for `kind` and `parked`, which belong to the engine. A new registration starts with zeros.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Account {
    /// Evidence for the other set, in nanoseconds: above zero for the poll array while the
    /// descriptor is in epoll, below zero for epoll while it is in the poll array.
    pub credit: f32,
    /// The highest point the present burst of activity has reached, in nanoseconds.
    pub burst_peak: f32,
    /// The lowest point of the lull that the descriptor is in or was moved to epoll for, in
    /// nanoseconds, zero or below.
    pub lull_depth: f32,
    /// How much more evidence this descriptor needs for a move than the usual amount.
    pub penalty: f32,
    /// The policy's clock when the account was last brought up to date.
    pub since: u32,
    /// Events of the present stay in the poll array, saturating.
    pub events: u16,
    /// Kind of the descriptor; the engine fills it in before the descriptor is moved to the poll
    /// array for the first time.
    pub kind: Kind,
    /// Whether epoll still knows the descriptor while it is in the poll array; kept by the engine.
    pub parked: bool,
}

/// A policy's view of the world.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The calibrated costs.
    pub costs: &'a Costs,
    /// By how much a slot's scan costs more now than calibrated (about 1; more in a process with
    /// several threads); measured while running.
    pub scan_factor: f32,
    /// Wait calls so far, wrapping; each would be a pass over the poll array if there were one.
    pub passes: u32,
    /// Wait calls so far that blocked with a poll array, wrapping.
    pub blocks: u32,
    /// Descriptors in the poll array.
    pub hot: usize,
    /// Descriptors in epoll.
    pub cold: usize,
}

/// A policy's verdict on a descriptor in the poll array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing.
    Stay,
    /// Give it back to epoll.
    Demote,
    /// Remove it from epoll, which so far only knows it disarmed ("parked"): it has come to
    /// stay.
    Settle,
}

/// The results of one wait, for policies that look at whole sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PassCounts {
    /// Descriptors in the poll array when it was scanned.
    pub hot: usize,
    /// How many of them were ready.
    pub hot_ready: usize,
    /// Descriptors in epoll.
    pub cold: usize,
    /// How many events epoll had.
    pub cold_ready: usize,
}

/// The numbers that a policy decides by now, for one kind of descriptor, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlacementCosts {
    /// The cost of one idle slot in the poll array per pass.
    pub scan: f32,
    /// The saving of an event in the poll array, its writer's share included.
    pub gain: f32,
    /// The cost of a move there and back.
    pub round_trip: f32,
    /// The evidence that a move to the poll array takes.
    pub rise: f32,
    /// The patience with a descriptor in the poll array that has gone quiet.
    pub fall: f32,
}

impl PlacementCosts {
    /// The active/total ratio from which on a descriptor earns its slot; infinite where an event
    /// saves nothing.
    #[must_use]
    pub fn break_even(&self) -> f32 {
        if self.gain > 0.0 { self.scan / self.gain } else { f32::INFINITY }
    }
}

/// The way to block while there is a poll array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quiet {
    /// Block in `poll` for as long as the wait lasts.
    Stay,
    /// Block in `poll` for this long; if nothing happens hand everything to epoll and continue
    /// waiting there.
    HandOffAfter(Duration),
}

/// Decides where descriptors are watched. Implement it to give
/// [`Adaptive`](crate::backend::Adaptive) another rule.
pub trait Policy: Send {
    /// Its name, as users write it.
    fn name(&self) -> &'static str;

    /// Where a new registration starts.
    fn start(&mut self, account: &mut Account, hint: Hint, view: &View<'_>) -> Set;

    /// An event of a descriptor in epoll. True makes it a candidate for the poll array.
    fn cold_event(&mut self, account: &mut Account, view: &View<'_>) -> bool;

    /// How many of this wait's candidates may move now; asked once per wait with candidates.
    fn admit(&mut self, candidates: usize, view: &View<'_>) -> usize {
        let _ = view;
        candidates
    }

    /// Whether descriptors of this kind, registered with [`Mode::Auto`](crate::Mode::Auto), are
    /// better watched level-triggered while they are in epoll. For a descriptor that is active in
    /// several waits running a level trigger is cheaper, because its writer finds it on the ready
    /// list. For a descriptor that is not, a level trigger is more expensive, because the next wait
    /// looks at it once more.
    fn prefers_level(&self, kind: Kind) -> bool {
        let _ = kind;
        false
    }

    /// The thresholds that the policy uses now for a kind of descriptor; none if it has no such
    /// numbers, or none yet.
    fn placement_costs(&self, kind: Kind) -> Option<PlacementCosts> {
        let _ = kind;
        None
    }

    /// Notes that the descriptor was moved to the poll array.
    fn moved_to_hot(&mut self, account: &mut Account, view: &View<'_>);

    /// Notes an event of a descriptor in the poll array.
    fn hot_event(&mut self, account: &mut Account, view: &View<'_>);

    /// Decides on a descriptor in the poll array that the clock hand came by.
    fn review(&mut self, account: &mut Account, view: &View<'_>) -> Verdict;

    /// How many slots of the poll array the clock hand looks at after this pass.
    fn hand(&self, view: &View<'_>) -> usize {
        view.hot.div_ceil(16)
    }

    /// Notes that the descriptor was moved back to epoll. `handed_off`: the whole array moved,
    /// because the loop went quiet.
    fn moved_to_cold(&mut self, account: &mut Account, handed_off: bool, view: &View<'_>);

    /// Notes that a wait is over.
    fn pass(&mut self, counts: PassCounts, view: &View<'_>);

    /// Decides how to block when a wait is about to do so while there are descriptors in the poll
    /// array.
    fn quiet(&mut self, view: &View<'_>) -> Quiet;
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn name(&self) -> &'static str {
        (**self).name()
    }
    fn start(&mut self, account: &mut Account, hint: Hint, view: &View<'_>) -> Set {
        (**self).start(account, hint, view)
    }
    fn cold_event(&mut self, account: &mut Account, view: &View<'_>) -> bool {
        (**self).cold_event(account, view)
    }
    fn admit(&mut self, candidates: usize, view: &View<'_>) -> usize {
        (**self).admit(candidates, view)
    }
    fn prefers_level(&self, kind: Kind) -> bool {
        (**self).prefers_level(kind)
    }
    fn placement_costs(&self, kind: Kind) -> Option<PlacementCosts> {
        (**self).placement_costs(kind)
    }
    fn moved_to_hot(&mut self, account: &mut Account, view: &View<'_>) {
        (**self).moved_to_hot(account, view);
    }
    fn hot_event(&mut self, account: &mut Account, view: &View<'_>) {
        (**self).hot_event(account, view);
    }
    fn review(&mut self, account: &mut Account, view: &View<'_>) -> Verdict {
        (**self).review(account, view)
    }
    fn hand(&self, view: &View<'_>) -> usize {
        (**self).hand(view)
    }
    fn moved_to_cold(&mut self, account: &mut Account, handed_off: bool, view: &View<'_>) {
        (**self).moved_to_cold(account, handed_off, view);
    }
    fn pass(&mut self, counts: PassCounts, view: &View<'_>) {
        (**self).pass(counts, view);
    }
    fn quiet(&mut self, view: &View<'_>) -> Quiet {
        (**self).quiet(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        /// The questions that the policy below was asked.
        static ASKED: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    }

    fn asked(what: &'static str) {
        ASKED.with_borrow_mut(|list| list.push(what));
    }

    /// Answers unlike the defaults.
    struct Odd;

    impl Policy for Odd {
        fn name(&self) -> &'static str {
            "odd"
        }
        fn start(&mut self, account: &mut Account, _: Hint, _: &View<'_>) -> Set {
            account.since = 77;
            Set::Hot
        }
        fn cold_event(&mut self, account: &mut Account, _: &View<'_>) -> bool {
            account.events += 1;
            account.events.is_multiple_of(2)
        }
        fn admit(&mut self, candidates: usize, _: &View<'_>) -> usize {
            candidates / 3
        }
        fn prefers_level(&self, kind: Kind) -> bool {
            kind == Kind::Unix
        }
        fn placement_costs(&self, kind: Kind) -> Option<PlacementCosts> {
            let (scan, gain) = (30.0, 120.0);
            let known = PlacementCosts { scan, gain, round_trip: 1.0, rise: 2.0, fall: 3.0 };
            (kind == Kind::Unix).then_some(known)
        }
        fn moved_to_hot(&mut self, _: &mut Account, _: &View<'_>) {
            asked("moved_to_hot");
        }
        fn hot_event(&mut self, _: &mut Account, _: &View<'_>) {
            asked("hot_event");
        }
        fn review(&mut self, _: &mut Account, _: &View<'_>) -> Verdict {
            Verdict::Settle
        }
        fn hand(&self, view: &View<'_>) -> usize {
            view.hot + 2
        }
        fn moved_to_cold(&mut self, _: &mut Account, handed_off: bool, _: &View<'_>) {
            asked(if handed_off { "handed off" } else { "moved_to_cold" });
        }
        fn pass(&mut self, _: PassCounts, _: &View<'_>) {
            asked("pass");
        }
        fn quiet(&mut self, _: &View<'_>) -> Quiet {
            Quiet::HandOffAfter(Duration::from_nanos(7))
        }
    }

    #[test]
    fn a_boxed_policy_is_asked_everything() {
        let costs = &Costs::ASSUMED;
        let view = View { costs, scan_factor: 1.0, passes: 9, blocks: 0, hot: 40, cold: 1 };
        let mut policy: Box<dyn Policy> = Box::new(Odd);
        fn ask<P: Policy>(policy: &mut P, view: &View<'_>) {
            let mut account = Account::default();
            assert_eq!(policy.name(), "odd");
            assert_eq!(policy.start(&mut account, Hint::None, view), Set::Hot);
            assert_eq!(account.since, 77);
            assert!(!policy.cold_event(&mut account, view));
            assert!(policy.cold_event(&mut account, view));
            assert_eq!(policy.admit(9, view), 3);
            assert!(policy.prefers_level(Kind::Unix) && !policy.prefers_level(Kind::Pipe));
            let known = policy.placement_costs(Kind::Unix).unwrap();
            assert_eq!((known.break_even(), policy.placement_costs(Kind::Pipe)), (0.25, None));
            assert_eq!(PlacementCosts { gain: 0.0, ..known }.break_even(), f32::INFINITY);
            policy.moved_to_hot(&mut account, view);
            policy.hot_event(&mut account, view);
            assert_eq!(policy.review(&mut account, view), Verdict::Settle);
            assert_eq!(policy.hand(view), 42);
            policy.moved_to_cold(&mut account, false, view);
            policy.moved_to_cold(&mut account, true, view);
            policy.pass(PassCounts::default(), view);
            assert_eq!(policy.quiet(view), Quiet::HandOffAfter(Duration::from_nanos(7)));
        }
        ask(&mut policy, &view);
        let expected = ["moved_to_hot", "hot_event", "moved_to_cold", "handed off", "pass"];
        assert_eq!(ASKED.take(), expected);
    }

    #[test]
    fn by_default_all_candidates_move_edges_stay_and_a_sixteenth_is_looked_at() {
        let costs = &Costs::ASSUMED;
        let mut policy = Fixed::new(Set::Cold);
        for (hot, looks) in [(0, 0), (1, 1), (16, 1), (17, 2), (160, 10)] {
            let view = View { costs, scan_factor: 1.0, passes: 9, blocks: 0, hot, cold: 1 };
            assert_eq!(Plain.hand(&view), looks);
            assert_eq!((policy.admit(7, &view), policy.admit(0, &view)), (7, 0));
        }
        assert!(Kind::MEASURED.iter().all(|&kind| !policy.prefers_level(kind)));
        assert!(Kind::MEASURED.iter().all(|&kind| Plain.placement_costs(kind).is_none()));
    }

    /// Leaves every default to the trait.
    struct Plain;

    impl Policy for Plain {
        fn name(&self) -> &'static str {
            "plain"
        }
        fn start(&mut self, _: &mut Account, _: Hint, _: &View<'_>) -> Set {
            Set::Cold
        }
        fn cold_event(&mut self, _: &mut Account, _: &View<'_>) -> bool {
            false
        }
        fn moved_to_hot(&mut self, _: &mut Account, _: &View<'_>) {}
        fn hot_event(&mut self, _: &mut Account, _: &View<'_>) {}
        fn review(&mut self, _: &mut Account, _: &View<'_>) -> Verdict {
            Verdict::Stay
        }
        fn moved_to_cold(&mut self, _: &mut Account, _: bool, _: &View<'_>) {}
        fn pass(&mut self, _: PassCounts, _: &View<'_>) {}
        fn quiet(&mut self, _: &View<'_>) -> Quiet {
            Quiet::Stay
        }
    }
}
