//! Learns how much more expensive a scan is now than when costs were calibrated.
//!
//! Calibration sees a quiet process. Later a slot may cost more: descriptors are shared between
//! threads, caches are full of other things. So a pass that does not block is timed now and then,
//! often at first and rarely later, and the time moves a factor on all prices of scans. Two
//! readings of the clock cost about as much as two slots, so short arrays are never timed.
//!
//! This is the arithmetic alone; the back-end reads the clock.

use crate::costs::{Costs, Kind};

/// One pass out of this many is timed.
const EVERY: u32 = 64;

/// The first passes that are timed more often.
const OFTEN: u32 = 32;

/// One pass out of this many is timed at first.
const EVERY_AT_FIRST: u32 = EVERY / 16;

/// An array with fewer slots is not timed.
const FEWEST: usize = 16;

/// Measurements count within these bounds; from the upper one on the pass was preempted, which says
/// nothing about the cost of a scan.
const LEAST: f32 = 0.5;
const MOST: f32 = 4.0;

/// By how much of the difference a pass corrects the factor.
const WEIGHT: f32 = 0.125;

/// Chooses the passes to time, and holds their results so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanClock {
    factor: f32,
    /// Passes that were timed.
    timed: u32,
}

impl ScanClock {
    /// Nothing was timed yet: calibration is right.
    pub(super) fn new() -> ScanClock {
        ScanClock { factor: 1.0, timed: 0 }
    }

    /// By how much a slot's scan costs more than calibrated.
    #[inline]
    pub(super) fn factor(&self) -> f32 {
        self.factor
    }

    /// Whether to time the pass of this number, over this many slots.
    #[inline]
    pub(super) fn is_due(&self, pass: u32, slots: usize) -> bool {
        let every = if self.timed < OFTEN { EVERY_AT_FIRST } else { EVERY };
        pass.is_multiple_of(every) && slots >= FEWEST
    }

    /// The expected time of a pass over slots of these kinds, in nanoseconds, as calibrated.
    pub(super) fn expected(costs: &Costs, kinds: impl Iterator<Item = Kind>) -> f32 {
        let call = costs.pass + costs.cold_wait;
        kinds.fold(call, |sum, kind| sum + costs.of(kind).scan)
    }

    /// Takes in the time of a pass.
    pub(super) fn correct(&mut self, took: f32, expected: f32) {
        self.timed = self.timed.saturating_add(1);
        let seen = (took / expected).clamp(LEAST, MOST);
        if seen < MOST {
            self.factor += (seen - self.factor) * WEIGHT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_timed_often_at_first_and_rarely_later() {
        let due = |clock: &ScanClock| -> Vec<u32> {
            (1..=128).filter(|&pass| clock.is_due(pass, 16)).collect()
        };
        let mut clock = ScanClock::new();
        for _ in 0..31 {
            clock.correct(1.0, 1.0);
        }
        assert_eq!(due(&clock), (1..=32).map(|n| 4 * n).collect::<Vec<_>>());
        clock.correct(1.0, 1.0);
        assert_eq!(due(&clock), [64, 128]);
        clock.timed = u32::MAX;
        clock.correct(1.0, 1.0);
        assert_eq!(due(&clock), [64, 128]);
    }

    #[test]
    fn a_short_array_is_never_timed() {
        let clock = ScanClock::new();
        assert!(!clock.is_due(64, 15) && clock.is_due(64, 16) && clock.is_due(64, 17));
    }

    #[test]
    fn a_pass_is_expected_to_take_a_call_and_its_slots() {
        let costs = &Costs::ASSUMED;
        assert_eq!(ScanClock::expected(costs, std::iter::empty()), 225.0 + 150.0);
        let kinds = [Kind::Unknown, Kind::Pipe, Kind::Unix, Kind::Tcp];
        let slots = 28.0 + 28.0 + 58.0 + 74.0;
        assert_eq!(ScanClock::expected(costs, kinds.into_iter()), 225.0 + 150.0 + slots);
    }

    #[test]
    fn the_factor_moves_an_eighth_of_the_way_to_the_measured_value() {
        // The time, the expected time, the factor before and after.
        let table = [
            (2_000.0, 1_000.0, 1.0, 1.125),
            (2_000.0, 1_000.0, 1.5, 1.5625),
            (1_000.0, 1_000.0, 3.0, 2.75),
            (1_000.0, 1_000.0, 1.0, 1.0),
            (750.0, 1_000.0, 1.0, 0.96875),
            // Never taken for less than half.
            (500.0, 1_000.0, 1.0, 0.9375),
            (100.0, 1_000.0, 1.0, 0.9375),
            (3_900.0, 1_000.0, 3.9, 3.9),
            (3_000.0, 1_000.0, 1.0, 1.25),
            // Preempted.
            (4_000.0, 1_000.0, 1.0, 1.0),
            (90_000.0, 1_000.0, 1.0, 1.0),
        ];
        for (took, expected, before, after) in table {
            let mut clock = ScanClock { factor: before, ..ScanClock::new() };
            clock.correct(took, expected);
            assert_eq!(clock.factor(), after, "{took} of {expected} at {before}");
        }
    }
}
