//! The work of an engine, in plain counters that are always on.

use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use superpoll::backend::policy::PlacementCosts;
use superpoll::diagnostics::Kind;

use crate::calls::Calls;
use crate::engine;
use crate::error::{Error, Result};
use crate::remote::Remote;
use crate::trace;
use crate::turns::{Done, SlowTurn, Turns};

/// The number of spinning descriptors that are remembered by number.
const NAMED: usize = 16;

/// The counters of one engine, from its start.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The poller's own counters.
    pub poller: superpoll::diagnostics::Stats,
    /// The calls that this engine's thread has made on sockets, also outside of the engine.
    pub calls: Calls,
    /// Tasks that live now.
    pub tasks: usize,
    /// Tasks that were ever spawned.
    pub spawned: u64,
    /// Tasks that ended with a panic, and calls ([`Handle::call_on`](crate::Handle::call_on)) and
    /// wakers that panicked.
    pub panicked: u64,
    /// The number of times that a task was run.
    pub polls: u64,
    /// Tasks that another thread woke.
    pub remote_wakes: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// The longest time from one wait to the next, in which the engine asked about no descriptor.
    /// Measured with the kernel's coarse clock, whose step is a few milliseconds, unless a
    /// [`TurnWatch`](crate::Handle::watch_turns) lives.
    pub longest_turn: Duration,
    /// The slowest turns since the start, at most eight, the slowest first.
    pub slowest: Vec<SlowTurn>,
    /// The slowest turns of the last ten to twenty seconds, at most eight, the slowest first.
    pub slowest_lately: Vec<SlowTurn>,
    /// Descriptors that are waited for or were.
    pub sources: usize,
    /// Timers that have neither ended nor been dropped.
    pub timers: usize,
    /// Timers that have ended.
    pub timers_ended: u64,
    /// Operations that are under way in the kernel, see [`completion`](crate::completion).
    pub operations: usize,
    /// The number of hand-overs between two ends in the same engine, without the kernel.
    pub handed_over: u64,
    /// The number of reads that were made for tasks before they were woken, several with one call.
    pub fetched: u64,
    /// The number of times that an operation was put off because its task had used up its budget.
    pub budget_spent: u64,
    /// The number of times that the poller was asked again instead of sleeping, see
    /// [`Builder::spin`](crate::Builder::spin).
    pub looks: u64,
    /// The number of those times that found something.
    pub looks_found: u64,
    /// The poller's estimate of the costs of watching, as corrected so far; none on back-ends that
    /// have no use for it.
    pub costs: Option<superpoll::diagnostics::Costs>,
    /// The thresholds that the poller's policy uses now, for [each kind of
    /// descriptor](superpoll::diagnostics::Kind::MEASURED); none where there is no such policy.
    pub placement_costs: [Option<PlacementCosts>; Kind::MEASURED.len()],
    /// Descriptors that were found ready a thousand times in a row while no task read, wrote or
    /// cleared them: a task waits for an event that it does not handle. At most sixteen are named.
    pub spinning: Vec<RawFd>,
}

impl Stats {
    /// Returns the counters of the engine that runs on this thread.
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
    /// Events of the last wait.
    pub found: Cell<u64>,
    pub timers_ended: Cell<u64>,
    slow: Turns,
    spinning: RefCell<Vec<RawFd>>,
}

/// Adds one.
#[inline]
pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl Counters {
    #[inline]
    fn done(&self) -> Done {
        Done { polls: self.polls.get(), timers: self.timers_ended.get() }
    }

    /// Notes that the engine is about to wait.
    #[inline]
    pub fn begin_wait(&self) {
        count(&self.turns);
        self.slow.begin_wait(self.done(), self.found.get());
    }

    /// Notes that the engine has waited.
    #[inline]
    pub fn end_wait(&self, is_watched: bool) {
        self.slow.end_wait(self.done(), is_watched);
    }

    #[cold]
    pub fn note_spinning(&self, fd: RawFd) {
        let mut spinning = self.spinning.borrow_mut();
        if spinning.len() < NAMED && !spinning.contains(&fd) {
            spinning.push(fd);
            drop(spinning);
            // A subscriber may look at the counters.
            trace::spinning(fd);
        }
    }

    pub fn snapshot(
        &self,
        poller: &superpoll::Poller,
        remote: &Remote,
        [sources, timers, operations]: [usize; 3],
    ) -> Stats {
        let (slowest, slowest_lately) = self.slow.slowest();
        Stats {
            poller: poller.stats(),
            calls: Calls::here(),
            costs: poller.costs().copied(),
            placement_costs: Kind::MEASURED.map(|kind| poller.placement_costs(kind)),
            tasks: remote.tasks.load(Ordering::Relaxed),
            spawned: self.spawned.get(),
            panicked: self.panicked.get(),
            polls: self.polls.get(),
            remote_wakes: self.remote_wakes.get(),
            turns: self.turns.get(),
            longest_turn: self.slow.longest(),
            slowest,
            slowest_lately,
            sources,
            timers,
            timers_ended: self.timers_ended.get(),
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
