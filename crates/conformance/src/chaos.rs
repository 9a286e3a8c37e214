//! A random placement policy: it promotes, demotes, settles and hands off at random.
//!
//! Sensible policies move a descriptor now and then, at moments that have something in common. This
//! one moves at every opportunity the engine offers, so that a bug in a move does not wait for the
//! one moment that shows it. The sequence follows from the seed alone.

use std::time::Duration;

use superpoll::Hint;
use superpoll::backend::policy::{Account, PassCounts, Policy, Quiet, Set, Verdict, View};

/// A policy that moves at random.
#[derive(Clone, Debug)]
pub struct Chaos {
    state: u64,
}

impl Chaos {
    /// Creates the policy whose moves belong to a seed.
    pub fn new(seed: u64) -> Chaos {
        Chaos { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// Returns a number below `bound` (xorshift).
    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 33) % bound
    }
}

impl Policy for Chaos {
    fn name(&self) -> &'static str {
        "chaos"
    }

    fn start(&mut self, _account: &mut Account, hint: Hint, _view: &View<'_>) -> Set {
        match hint {
            Hint::Busy => Set::Hot,
            Hint::Idle => Set::Cold,
            _ if self.below(2) == 0 => Set::Hot,
            _ => Set::Cold,
        }
    }

    fn cold_event(&mut self, _account: &mut Account, _view: &View<'_>) -> bool {
        self.below(3) != 0
    }

    fn admit(&mut self, candidates: usize, _view: &View<'_>) -> usize {
        self.below(candidates as u64 + 1) as usize
    }

    fn moved_to_hot(&mut self, _account: &mut Account, _view: &View<'_>) {}

    fn hot_event(&mut self, _account: &mut Account, _view: &View<'_>) {}

    fn review(&mut self, _account: &mut Account, _view: &View<'_>) -> Verdict {
        match self.below(4) {
            0 | 1 => Verdict::Demote,
            2 => Verdict::Settle,
            _ => Verdict::Stay,
        }
    }

    fn hand(&self, view: &View<'_>) -> usize {
        (view.passes as usize ^ self.state as usize) % (view.hot + 1)
    }

    fn moved_to_cold(&mut self, _account: &mut Account, _handed_off: bool, _view: &View<'_>) {}

    fn pass(&mut self, _tally: PassCounts, _view: &View<'_>) {}

    fn quiet(&mut self, _view: &View<'_>) -> Quiet {
        match self.below(3) {
            0 => Quiet::Stay,
            1 => Quiet::HandOffAfter(Duration::ZERO),
            _ => Quiet::HandOffAfter(Duration::from_micros(20)),
        }
    }
}
