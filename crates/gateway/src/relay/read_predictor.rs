//! Whether it is worth a try to read from a socket that is not reported as readable.
//!
//! Watching a descriptor costs more than a read that finds nothing, and a pair is often over before
//! any of its descriptors had to be watched. So a pair that has moved bytes tries again in the next
//! turn, before its descriptors are watched; but only where such tries have succeeded lately. That
//! depends on the protocol and on how busy the engine is. Each situation has a score of its own,
//! and a situation with a low score is tried again now and then.

use std::cell::Cell;

/// Below this share of hits, of 256, a try costs more than it saves.
const WORTH: u8 = 80;

/// The weight of the latest outcome: one part in this many.
const WEIGHT: u8 = 8;

/// A situation with a low score is tried once in this many times.
const PROBE: u8 = 64;

/// The side whose bytes are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Client,
    Upstream,
}

/// The event before a try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum After {
    /// In the turn before, bytes went to the upstream.
    Up,
    /// In the turn before, bytes went to the client, or both ways.
    Down,
    /// In the turn before, one direction ended.
    End,
    /// A moment ago, bytes came from the same side.
    Short,
}

#[derive(Debug)]
struct Score {
    hits: Cell<u8>,
    asked: Cell<u8>,
}

/// The scores of an engine's pairs.
#[derive(Debug)]
pub(super) struct ReadPredictor([[Score; 2]; 4]);

impl ReadPredictor {
    pub(super) fn new() -> ReadPredictor {
        let new = |_| Score { hits: Cell::new(u8::MAX / 2), asked: Cell::new(0) };
        ReadPredictor(std::array::from_fn(|_| std::array::from_fn(new)))
    }

    fn of(&self, after: After, side: Side) -> &Score {
        &self.0[after as usize][side as usize]
    }

    /// Whether a try is worth it.
    pub(super) fn is_worth(&self, after: After, side: Side) -> bool {
        let score = self.of(after, side);
        let asked = score.asked.get().wrapping_add(1) % PROBE;
        score.asked.set(asked);
        score.hits.get() >= WORTH || asked == 0
    }

    /// Records whether a try found something.
    pub(super) fn learn(&self, after: After, side: Side, hit: bool) {
        let score = self.of(after, side);
        let hits = score.hits.get();
        score.hits.set(match hit {
            true => hits + (u8::MAX - hits).div_ceil(WEIGHT),
            false => hits - hits.div_ceil(WEIGHT),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_reads_are_rarely_tried_and_successful_ones_again() {
        let predictor = ReadPredictor::new();
        let turn = |hit| {
            let tried = predictor.is_worth(After::Up, Side::Upstream);
            if tried {
                predictor.learn(After::Up, Side::Upstream, hit);
            }
            tried
        };
        assert!((0..100).all(|_| turn(true)));
        let tried = (0..6400).filter(|_| turn(false)).count();
        assert!((100..130).contains(&tried), "{tried} of 6400");
        // The probes found the change.
        let found = (0..3200).filter(|_| turn(true)).count();
        assert!(found > 1000, "{found} of 3200");
        assert!((0..100).all(|_| turn(true)));
        // Other situations have their own score.
        assert!(predictor.is_worth(After::Up, Side::Client));
    }
}
