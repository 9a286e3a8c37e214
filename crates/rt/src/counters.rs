//! The counters of an engine, and how the engine counts.

use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;

use crate::slow_turns::{SlowTurns, WorkDone};
use crate::trace;

/// The number of spinning descriptors that are remembered by number.
const NAMED: usize = 16;

/// The counters of an engine.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub spawned: Cell<u64>,
    pub panicked: Cell<u64>,
    pub polls: Cell<u64>,
    pub remote_wakes: Cell<u64>,
    pub turns: Cell<u64>,
    pub peer_wakes: Cell<u64>,
    pub budget_spent: Cell<u64>,
    pub spin_polls: Cell<u64>,
    pub spin_hits: Cell<u64>,
    /// Events of the last wait.
    pub found: Cell<u64>,
    pub timers_ended: Cell<u64>,
    pub slow_turns: SlowTurns,
    pub spinning: RefCell<Vec<RawFd>>,
}

/// Adds one.
#[inline]
pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl Counters {
    #[inline]
    fn done(&self) -> WorkDone {
        WorkDone { polls: self.polls.get(), timers: self.timers_ended.get() }
    }

    /// Notes that the engine is about to wait.
    #[inline]
    pub(crate) fn begin_wait(&self) {
        count(&self.turns);
        self.slow_turns.begin_wait(self.done(), self.found.get());
    }

    /// Notes that the engine has waited.
    #[inline]
    pub(crate) fn end_wait(&self, is_watched: bool) {
        self.slow_turns.end_wait(self.done(), is_watched);
    }

    #[cold]
    pub(crate) fn note_spinning(&self, fd: RawFd) {
        let mut spinning = self.spinning.borrow_mut();
        if spinning.len() < NAMED && !spinning.contains(&fd) {
            spinning.push(fd);
            drop(spinning);
            // A subscriber may look at the counters.
            trace::spinning(fd);
        }
    }
}
