//! Whether it is worth it to put off watching the sockets of a pair.
//!
//! The answer differs by situation, protocol and load: a wait that the engine fills with other work
//! is usually over before the engine would watch any socket, and a wait in which the engine falls
//! asleep never is. So each situation is judged by its outcomes, in trials of a fixed number of
//! pairs. As long as trials succeed, watching is put off. After some trials in a row that fail,
//! watching is not put off for a number of pairs that doubles with each further failure, up to a
//! bound.
//!
//! All pairs of a trial count alike, and a trial after a pause is as long as any other. A score
//! that is updated by each outcome while it is high and by rare probes while it is low would stay
//! low for long after each streak of misses. The cost of wrong decisions is bounded: if all pairs
//! miss, one in 33 is put off; if all hit, all are put off after at most one pause. The tests
//! compare the rule with the better fixed choice.

use std::cell::Cell;

/// The number of pairs in a trial.
const TRIAL: u32 = 16;

/// A trial with at least this many hits has succeeded. A miss costs a look or two, and a hit saves
/// two registrations.
const WORTH: u32 = 6;

/// The number of failures in a row that have no consequence: pairs that wait at the same time often
/// have the same outcome.
const FREE_FAILURES: u32 = 2;

/// The longest pause, in pairs, is a trial's length doubled this many times.
const MOST_DOUBLINGS: u32 = 5;

/// The event before the wait of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum After {
    /// Bytes went to the upstream.
    Up,
    /// Bytes went to the client, or both ways.
    Down,
    /// One direction ended.
    End,
}

/// The trials of a situation.
#[derive(Debug)]
struct Situation {
    /// Pairs that may still be put off before the trial is judged; no limit if the last trial has
    /// succeeded.
    admitted: Cell<Option<u32>>,
    /// Pairs that are not put off before the next trial.
    pause: Cell<u32>,
    /// Trials in a row that have failed.
    failures: Cell<u32>,
    outcomes: Cell<u32>,
    hits: Cell<u32>,
}

impl Situation {
    fn new() -> Situation {
        Situation {
            admitted: Cell::new(Some(TRIAL)),
            pause: Cell::new(0),
            failures: Cell::new(0),
            outcomes: Cell::new(0),
            hits: Cell::new(0),
        }
    }

    fn admits(&self) -> bool {
        if self.pause.get() > 0 {
            self.pause.set(self.pause.get() - 1);
            return false;
        }
        match self.admitted.get() {
            None => true,
            Some(0) => false,
            Some(left) => {
                self.admitted.set(Some(left - 1));
                true
            }
        }
    }

    fn record(&self, hit: bool) {
        if self.pause.get() > 0 {
            // Of a pair that was put off before the trial was judged.
            return;
        }
        self.outcomes.set(self.outcomes.get() + 1);
        self.hits.set(self.hits.get() + u32::from(hit));
        if self.outcomes.get() < TRIAL {
            return;
        }
        self.outcomes.set(0);
        if self.hits.replace(0) >= WORTH {
            self.admitted.set(None);
            self.failures.set(0);
            return;
        }
        let before = self.failures.replace(self.failures.get().saturating_add(1));
        if let Some(doublings) = before.checked_sub(FREE_FAILURES) {
            self.pause.set(TRIAL << doublings.min(MOST_DOUBLINGS));
            self.admitted.set(Some(TRIAL));
        } else {
            self.admitted.set(self.admitted.get().map(|_| TRIAL));
        }
    }
}

/// The trials of an engine's pairs, by situation.
#[derive(Debug)]
pub(super) struct Deferral([Situation; 3]);

impl Default for Deferral {
    fn default() -> Deferral {
        Deferral(std::array::from_fn(|_| Situation::new()))
    }
}

impl Deferral {
    /// Returns whether to put off watching. If so, the caller [records](Deferral::record) an
    /// outcome.
    pub(super) fn admits(&self, after: After) -> bool {
        self.0[after as usize].admits()
    }

    /// Records an outcome: a hit if the pair could continue before the engine watched its sockets,
    /// and the looks cost less than to watch them.
    pub(super) fn record(&self, after: After, hit: bool) {
        self.0[after as usize].record(hit);
    }
}

#[cfg(test)]
mod tests;
