//! What an engine has done, in plain counters that are always on.

use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::calls::Calls;
use crate::engine;
use crate::error::{Error, Result};
use crate::remote::Remote;
use crate::sys::clock;
use crate::trace;

/// How many spinning descriptors are remembered by number.
const NAMED: usize = 16;

/// The counters of one engine, from its start.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The poller's own counters.
    pub poller: superpoll::Stats,
    /// What this engine's thread has called on sockets, also outside of the engine.
    pub calls: Calls,
    /// Tasks that live now.
    pub tasks: usize,
    /// Tasks that were ever spawned.
    pub spawned: u64,
    /// Tasks that ended with a panic.
    pub panicked: u64,
    /// Times a task was run.
    pub polls: u64,
    /// Tasks that another thread woke.
    pub remote_wakes: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// The longest time from one wait to the next, in which no descriptor was looked at. Measured
    /// with the kernel's coarse clock, whose step is a few milliseconds.
    pub longest_turn: Duration,
    /// Descriptors that are waited for or were.
    pub sources: usize,
    /// Timers that have neither ended nor been dropped.
    pub timers: usize,
    /// Operations that are under way in the kernel, see [`completion`](crate::completion).
    pub operations: usize,
    /// Hand-overs between two ends in the same engine, without the kernel.
    pub handed_over: u64,
    /// Reads that were made for tasks before they were woken, several with one call.
    pub fetched: u64,
    /// Times an operation was put off because its task had used up its budget.
    pub budget_spent: u64,
    /// Times the poller was asked again instead of sleeping, see [`Builder::spin`](crate::Builder::spin).
    pub looks: u64,
    /// How many of those found something.
    pub looks_found: u64,
    /// What the poller takes watching to cost, as corrected so far; none on back-ends that have no use for it.
    pub costs: Option<superpoll::costs::Costs>,
    /// Descriptors that were found ready a thousand times in a row while nobody read, wrote or
    /// cleared them: a task that waits for what it does not handle. At most sixteen are named.
    pub spinning: Vec<RawFd>,
}

impl Stats {
    /// The counters of the engine that runs on this thread.
    ///
    /// # Errors
    ///
    /// [`Error::NoRuntime`] outside of a runtime.
    pub fn current() -> Result<Stats> {
        engine::with(|engine| engine.stats()).ok_or(Error::NoRuntime)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub spawned: Cell<u64>,
    pub panicked: Cell<u64>,
    pub polls: Cell<u64>,
    pub remote_wakes: Cell<u64>,
    pub turns: Cell<u64>,
    pub handed_over: Cell<u64>,
    pub fetched: Cell<u64>,
    pub budget_spent: Cell<u64>,
    pub looks: Cell<u64>,
    pub looks_found: Cell<u64>,
    longest_turn: Cell<Duration>,
    awake_since: Cell<Option<Duration>>,
    spinning: RefCell<Vec<RawFd>>,
}

/// Adds one.
#[inline]
pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl Counters {
    /// The engine is about to wait.
    #[inline]
    pub fn begin_wait(&self) {
        count(&self.turns);
        if let Some(since) = self.awake_since.get() {
            let turn = clock::coarse().saturating_sub(since);
            if turn > self.longest_turn.get() {
                self.longest_turn.set(turn);
                if turn > trace::LONG_TURN {
                    trace::long_turn(turn);
                }
            }
        }
    }

    /// The engine has waited.
    #[inline]
    pub fn end_wait(&self) {
        self.awake_since.set(Some(clock::coarse()));
    }

    #[cold]
    pub fn note_spinning(&self, fd: RawFd) {
        let mut spinning = self.spinning.borrow_mut();
        if spinning.len() < NAMED && !spinning.contains(&fd) {
            spinning.push(fd);
            trace::spinning(fd);
        }
    }

    pub fn snapshot(
        &self,
        poller: &superpoll::Poller,
        remote: &Remote,
        [sources, timers, operations]: [usize; 3],
    ) -> Stats {
        Stats {
            poller: poller.stats(),
            calls: Calls::here(),
            costs: poller.costs().copied(),
            tasks: remote.tasks.load(Ordering::Relaxed),
            spawned: self.spawned.get(),
            panicked: self.panicked.get(),
            polls: self.polls.get(),
            remote_wakes: self.remote_wakes.get(),
            turns: self.turns.get(),
            longest_turn: self.longest_turn.get(),
            sources,
            timers,
            operations,
            handed_over: self.handed_over.get(),
            fetched: self.fetched.get(),
            budget_spent: self.budget_spent.get(),
            looks: self.looks.get(),
            looks_found: self.looks_found.get(),
            spinning: self.spinning.borrow().clone(),
        }
    }
}
