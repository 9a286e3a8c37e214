//! The work of an engine, in plain counters that are always on.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use superpoll::backend::policy::PlacementCosts;
use superpoll::diagnostics::Kind;

use crate::calls::Calls;
use crate::counters::Counters;
use crate::remote::Remote;
use crate::slow_turns::SlowTurn;

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
    /// The number of hand-overs between two ends in the same engine, without the kernel.
    pub peer_wakes: u64,
    /// The number of times that an operation was put off because its task had used up its budget.
    pub budget_spent: u64,
    /// The number of times that the poller was asked again instead of sleeping, see
    /// [`Builder::spin`](crate::Builder::spin).
    pub spin_polls: u64,
    /// The number of those times that found something.
    pub spin_hits: u64,
    /// The poller's estimate of the costs of watching, as corrected so far; none on back-ends that
    /// have no use for it.
    pub costs: Option<superpoll::diagnostics::Costs>,
    /// The name of the poller's placement policy; none on back-ends that have no policy.
    pub policy: Option<&'static str>,
    /// The thresholds that the poller's policy uses now, for [each kind of
    /// descriptor](superpoll::diagnostics::Kind::MEASURED); none where there is no such policy.
    pub placement_costs: [Option<PlacementCosts>; Kind::MEASURED.len()],
    /// Descriptors that were found ready a thousand times in a row while no task read, wrote or
    /// cleared them: a task waits for an event that it does not handle. Descriptors as well that
    /// kept reporting an error or a hang-up with which no task did anything: the queue of errors of
    /// a socket is not read, or a TCP socket is not connected. At most sixteen are named.
    pub spinning: Vec<RawFd>,
}

impl Counters {
    /// Returns the counters as they are now.
    pub(crate) fn snapshot(
        &self,
        poller: &superpoll::Poller,
        remote: &Remote,
        [sources, timers]: [usize; 2],
    ) -> Stats {
        let (slowest, slowest_lately) = self.slow_turns.slowest();
        Stats {
            poller: poller.stats(),
            calls: Calls::here(),
            costs: poller.costs().copied(),
            policy: poller.policy(),
            placement_costs: Kind::MEASURED.map(|kind| poller.placement_costs(kind)),
            tasks: remote.tasks.load(Ordering::Relaxed),
            spawned: self.spawned.get(),
            panicked: self.panicked.get(),
            polls: self.polls.get(),
            remote_wakes: self.remote_wakes.get(),
            turns: self.turns.get(),
            longest_turn: self.slow_turns.longest(),
            slowest,
            slowest_lately,
            sources,
            timers,
            timers_ended: self.timers_ended.get(),
            peer_wakes: self.peer_wakes.get(),
            budget_spent: self.budget_spent.get(),
            spin_polls: self.spin_polls.get(),
            spin_hits: self.spin_hits.get(),
            spinning: self.spinning.borrow().clone(),
        }
    }
}
