//! Busy descriptors in a `poll` array, idle ones in epoll, each moved as its activity changes.
//!
//! The array's first slot is the epoll set, so one `poll` sees both: if it says that epoll has
//! something, one `epoll_wait` follows. With an empty array there is only the `epoll_wait`, and the
//! back-end costs as much as epoll. The [`Policy`] decides where a descriptor belongs; this file
//! carries its decisions out and keeps the clocks that it reckons with.
//!
//! A move to the array does not remove the descriptor from epoll at once: it *parks* it there,
//! disarmed, which costs less than half of a removal, and so does the way back. Only a descriptor
//! that has come to stay is removed ("settled"), because a parked one still costs its writer a
//! little. Neither move can lose an arrival: after a move to the array the next pass looks at the
//! state; a move to epoll is an addition or a modification, and both make the kernel look.
//!
//! A wait that finds nothing blocks with the array for as long as handing the array to epoll would
//! take. If nothing happens in that time, the loop has gone quiet and everything is handed over.
//! The wake-up then costs the same as with epoll, however many descriptors were hot.
//!
//! A descriptor in [`Mode::Auto`] whose error or hang-up lasts goes to epoll with an edge, which
//! does not report that state again and again, and stays there until it is reported without.
//!
//! Edge-triggered and exclusive registrations stay in epoll: `poll` cannot tell an arrival from a
//! state. One-shot registrations may be hot, and are disarmed there without a system call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Instant;

use crate::backend::array::Array;
#[cfg(feature = "keeper")]
use crate::backend::cold;
use crate::backend::cold::{Change, Cold};
use crate::backend::epoll::Epoll;
use crate::backend::scan_clock::ScanClock;
use crate::backend::{
    Abilities, Backend, BackendKind, Context, Deadline, Entry, KeeperClient, Lengths, Lifecycle,
    Memory, Placement, Status, Synced, Topology, WaitCall,
};
use crate::costs::{Costs, Kind};
use crate::error::Result;
use crate::interest::{Interest, Mode, Watch};
use crate::policy::{
    CostBased, PassCounts, Policy, PolicyKind, Quiet, RatioPolicy, Set, Verdict, View,
};
use crate::sys;

/// The number of passes after which the array is put into order again.
const SORTED_EVERY: u32 = 64;

/// A list of candidates longer than this is freed before the next wait.
const KEPT_CANDIDATES: usize = 1024;

/// The policy's view, except for the lengths of the sets.
struct World {
    costs: Costs,
    clock: ScanClock,
    passes: u32,
    blocks: u32,
}

impl World {
    fn view(&self, hot: usize, cold: usize) -> View<'_> {
        let World { ref costs, ref clock, passes, blocks } = *self;
        View { costs, scan_factor: clock.factor(), passes, blocks, hot, cold }
    }
}

/// The adaptive back-end, with a poll array and a cold set.
pub struct Adaptive<P, C = Epoll> {
    policy: P,
    world: World,
    cold: C,
    hot: Array,
    hand: usize,
    /// The last pass that compacted the array.
    compacted_in: u32,
    /// Table indices of this wait's candidates for the array.
    candidates: Vec<u32>,
    /// Descriptors that epoll should watch with another trigger.
    retrigger: Vec<u32>,
    /// Everything stays in epoll: another loop waits on it.
    pinned: bool,
    /// The end of the wait that has begun.
    until: Deadline,
}

impl<P: Policy, C: Cold> std::fmt::Debug for Adaptive<P, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adaptive")
            .field("policy", &self.policy.name())
            .field("hot", &self.hot.len())
            .field("cold", &self.cold.watched())
            .finish_non_exhaustive()
    }
}

fn may_be_hot(mode: Mode) -> bool {
    matches!(mode, Mode::Level | Mode::OneShot | Mode::Auto)
}

/// Finds out the kind of a descriptor, if it is not known. That takes one or two system calls, so
/// it waits until it matters: most connections of a server that has many come and go before. Until
/// then the descriptor has the prices of the cheapest kind.
fn learn_kind(cx: &mut Context<'_>, index: u32) {
    let slot = cx.table.slot(index);
    if slot.account.kind == Kind::Unknown {
        let kind = sys::descriptor::kind(&mut cx.stats.calls, slot.fd());
        cx.table.slot_mut(index).account.kind = kind;
    }
}

impl<P: Policy> Adaptive<P> {
    /// Empty sets, placed by `policy` at `costs`.
    ///
    /// # Errors
    ///
    /// As [`Epoll::new`].
    pub fn new(policy: P, costs: Costs) -> Result<Adaptive<P>> {
        Ok(Adaptive::over(Epoll::new()?, policy, costs))
    }
}

impl<P: Policy, C: Cold> Adaptive<P, C> {
    /// An empty poll array over an empty cold set, placed by `policy` at `costs`.
    pub fn over(cold: C, policy: P, costs: Costs) -> Adaptive<P, C> {
        Adaptive {
            policy,
            world: World { costs, clock: ScanClock::new(), passes: 0, blocks: 0 },
            cold,
            hot: Array::new(),
            hand: 0,
            compacted_in: 0,
            candidates: Vec::new(),
            retrigger: Vec::new(),
            pinned: false,
            until: Deadline::Now,
        }
    }

    /// The policy and its view.
    fn policy_and_view(&mut self) -> (&mut P, View<'_>) {
        let view = self.world.view(self.hot.len(), self.cold.watched());
        (&mut self.policy, view)
    }

    /// Moves a descriptor from epoll to the array.
    fn promote(&mut self, cx: &mut Context<'_>, index: u32) {
        if cx.table.slot(index).place().is_some()
            || self.cold.change(cx, index, Change::Park).is_err()
        {
            return;
        }
        cx.table.slot_mut(index).account.parked = cx.table.slot(index).applied().is_some();
        self.enter(cx, index);
        cx.stats.moves_to_hot += 1;
    }

    fn enter(&mut self, cx: &mut Context<'_>, index: u32) {
        self.hot.put(cx.table, index);
        let (policy, view) = self.policy_and_view();
        policy.moved_to_hot(&mut cx.table.slot_mut(index).account, &view);
    }

    /// Moves a descriptor from the array to epoll. A descriptor that epoll refuses stays.
    fn demote(&mut self, cx: &mut Context<'_>, index: u32, handed_off: bool) {
        let slot = cx.table.slot(index);
        let watch = slot.watch();
        let level = watch.mode == Mode::Auto
            && !slot.is_in_lasting_trouble()
            && self.policy.prefers_level(slot.account.kind);
        let mode = if level { Mode::Level } else { watch.mode };
        if !watch.interest.is_empty()
            && !matches!(
                self.cold.change(cx, index, Change::Watch(watch.interest, mode)),
                Ok(Synced::Applied)
            )
        {
            return;
        }
        self.hot.remove(cx.table, index);
        cx.table.slot_mut(index).account.parked = false;
        let (policy, view) = self.policy_and_view();
        policy.moved_to_cold(&mut cx.table.slot_mut(index).account, handed_off, &view);
        cx.stats.moves_to_cold += 1;
    }

    fn demote_all(&mut self, cx: &mut Context<'_>) {
        for place in (0..self.hot.len()).rev() {
            let index = self.hot.index(place);
            self.demote(cx, index, true);
        }
    }

    /// Looks at a part of the array, in turn.
    fn turn_hand(&mut self, cx: &mut Context<'_>) {
        let (policy, view) = self.policy_and_view();
        let looks = policy.hand(&view).min(self.hot.len());
        for _ in 0..looks {
            if self.hot.is_empty() {
                return;
            }
            // From the end to the front: the slot that a demotion moves into the gap has been
            // examined.
            self.hand = if self.hand == 0 { self.hot.len() } else { self.hand.min(self.hot.len()) };
            self.hand -= 1;
            let index = self.hot.index(self.hand);
            let (policy, view) = self.policy_and_view();
            match policy.review(&mut cx.table.slot_mut(index).account, &view) {
                Verdict::Stay => {}
                Verdict::Demote => {
                    self.demote(cx, index, false);
                    if self.compacted_in != self.world.passes {
                        self.compacted_in = self.world.passes;
                        cx.stats.compactions += 1;
                    }
                }
                Verdict::Settle => {
                    self.forget(cx, index);
                    cx.table.slot_mut(index).account.parked = false;
                }
            }
        }
    }

    /// Reports the events that epoll has returned. Returns how many events were delivered.
    #[inline(always)]
    fn report_cold(
        &mut self,
        cx: &mut Context<'_>,
        answer: io::Result<usize>,
    ) -> io::Result<usize> {
        self.candidates.clear();
        let view = self.world.view(self.hot.len(), self.cold.watched());
        let (policy, pinned) = (&mut self.policy, self.pinned);
        let (candidates, retrigger) = (&mut self.candidates, &mut self.retrigger);
        let alone = view.hot == 0 && self.cold.is_in_turn();
        let active = self.cold.report(cx, alone, answer, |cx, index, found| {
            let slot = cx.table.slot_mut(index);
            let mode = slot.watch().mode;
            if found.is_trouble() && mode == Mode::Auto {
                // No evidence for a place where a level is reported in each pass.
                if slot.note_trouble() && slot.has_mode(Mode::Level) {
                    retrigger.push(index);
                }
                return;
            }
            let is_well = slot.has_recovered();
            let is_busy = policy.cold_event(&mut slot.account, &view);
            if is_busy && !pinned && may_be_hot(mode) && is_well {
                candidates.push(index);
            } else if mode == Mode::Auto && is_well {
                let level = policy.prefers_level(slot.account.kind);
                // A lone busy descriptor stays level-triggered, whatever is better for its kind.
                if level != slot.has_mode(Mode::Level) && (level || view.hot > 0) {
                    retrigger.push(index);
                }
            }
        })?;
        cx.stats.cold.active += active as u64;
        if !self.candidates.is_empty() {
            self.admit_candidates(cx);
        }
        while let Some(index) = self.retrigger.pop() {
            let slot = cx.table.slot(index);
            let level =
                !slot.is_in_lasting_trouble() && self.policy.prefers_level(slot.account.kind);
            self.set_trigger(cx, index, if level { Mode::Level } else { Mode::Auto });
        }
        self.keep_lists_short();
        Ok(active)
    }

    /// Frees the memory that a burst of candidates needed, because idle descriptors should cost
    /// little.
    fn keep_lists_short(&mut self) {
        for list in [&mut self.candidates, &mut self.retrigger] {
            if list.capacity() > KEPT_CANDIDATES {
                *list = Vec::new();
            }
        }
    }

    fn admit_candidates(&mut self, cx: &mut Context<'_>) {
        let candidates = std::mem::take(&mut self.candidates);
        for &index in &candidates {
            learn_kind(cx, index);
        }
        let (policy, view) = self.policy_and_view();
        let admitted = policy.admit(candidates.len(), &view).min(candidates.len());
        for &index in &candidates[..admitted] {
            self.promote(cx, index);
        }
        if self.hot.is_empty() {
            for &index in &candidates {
                self.set_trigger(cx, index, Mode::Level);
            }
        }
        self.candidates = candidates;
    }

    /// Sets the trigger with which epoll watches a registration in [`Mode::Auto`], which allows
    /// level and edge. A busy descriptor may be in epoll because an array would not pay for so few.
    /// A level trigger is cheaper for it then: it stays on the kernel's ready list, and its writer
    /// wakes no thread.
    fn set_trigger(&mut self, cx: &mut Context<'_>, index: u32, mode: Mode) {
        let slot = cx.table.slot(index);
        let (watch, applied) = (slot.watch(), slot.applied());
        // A descriptor that was moved meanwhile is parked: epoll knows it, but without its
        // interest.
        let other = |&(interest, before): &(Interest, Mode)| {
            watch.mode == Mode::Auto
                && interest == watch.interest
                && !interest.is_empty()
                && before != mode
        };
        if let Some((interest, _)) = applied.filter(other) {
            // A refusal leaves the trigger as it was, which is right as well.
            let _ = self.cold.change(cx, index, Change::Watch(interest, mode));
        }
    }

    /// The call that waits in the cold set's epoll set.
    #[inline(always)]
    fn cold_wait<'a>(&'a mut self, cx: &mut Context<'_>, deadline: Deadline) -> WaitCall<'a> {
        let alone = self.hot.is_empty() && self.cold.is_in_turn();
        self.cold.set_mut().wait_call(cx, deadline, alone)
    }

    /// Looks at the array without blocking, timing it now and then.
    #[inline(always)]
    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<usize> {
        if !self.world.clock.is_due(self.world.passes, self.hot.len()) {
            return self.hot.poll(cx.stats, Deadline::Now.left());
        }
        let before = Instant::now();
        let ready = self.hot.poll(cx.stats, Deadline::Now.left())?;
        let took = before.elapsed().as_nanos() as f32;
        let kind = |place| cx.table.slot(self.hot.index(place)).account.kind;
        let expected = ScanClock::expected(&self.world.costs, (0..self.hot.len()).map(kind));
        self.world.clock.correct(took, expected);
        Ok(ready)
    }

    /// Blocks with the array; if the loop goes quiet, without it.
    fn block(&mut self, cx: &mut Context<'_>, deadline: Deadline) -> io::Result<Option<usize>> {
        self.world.blocks = self.world.blocks.wrapping_add(1);
        let (policy, view) = self.policy_and_view();
        let Quiet::HandOffAfter(linger) = policy.quiet(&view) else {
            return self.hot.poll(cx.stats, deadline.left()).map(Some);
        };
        let left = deadline.left();
        if left.is_some_and(|left| left <= linger) {
            return self.hot.poll(cx.stats, left).map(Some);
        }
        if !linger.is_zero() {
            let ready = self.hot.poll(cx.stats, Some(linger))?;
            if ready > 0 {
                return Ok(Some(ready));
            }
        }
        cx.stats.handoffs += 1;
        self.demote_all(cx);
        Ok(None)
    }

    /// Makes epoll forget a descriptor, if it knows it.
    fn forget(&mut self, cx: &mut Context<'_>, index: u32) {
        // It cannot fail: there is nothing to refuse.
        let _ = self.cold.change(cx, index, Change::Forget);
    }

    fn begin_pass(&mut self, cx: &mut Context<'_>, deadline: Deadline) {
        self.until = self.cold.begin(cx, deadline);
        self.world.passes = self.world.passes.wrapping_add(1);
        cx.stats.hot.watched += self.hot.len() as u64;
        cx.stats.cold.watched += self.cold.watched() as u64;
        if !self.hot.is_empty() || !self.cold.is_in_turn() {
            cx.end_kernel_turns();
        }
        if !self.hot.is_empty() {
            let own =
                if self.cold.set().is_idle() { -1 } else { self.cold.set().as_fd().as_raw_fd() };
            self.hot.set_own(own);
        }
    }

    fn end_pass(&mut self, cx: &mut Context<'_>, counts: PassCounts) {
        let (policy, view) = self.policy_and_view();
        policy.pass(counts, &view);
        self.cold.end(cx);
    }
}

/// As the table of back-ends has it.
pub(super) const ENTRY: Entry = Entry {
    kind: BackendKind::Adaptive,
    name: "adaptive",
    abilities: Abilities { calls_per_wait: 2, ..Abilities::EPOLL },
    is_available: || true,
    make: |costs, topology| of_kind(PolicyKind::from_environment()?, costs, topology),
};

/// An adaptive back-end with the policy that a user has chosen.
pub(crate) fn of_kind(
    kind: PolicyKind,
    costs: Option<Costs>,
    topology: Topology,
) -> Result<Box<dyn Backend>> {
    match kind {
        PolicyKind::Adaptive => make(CostBased::default(), costs, topology),
        PolicyKind::Ratio(thresholds) => make(RatioPolicy::new(thresholds), costs, topology),
    }
}

/// An adaptive back-end with this policy.
pub(crate) fn make(
    policy: impl Policy + 'static,
    costs: Option<Costs>,
    topology: Topology,
) -> Result<Box<dyn Backend>> {
    let costs = costs.unwrap_or_else(|| *Costs::calibrated());
    Ok(match topology {
        Topology::Nested => Box::new(Adaptive::new(policy, costs)?),
        #[cfg(feature = "keeper")]
        Topology::Thread(tuning) => Box::new(Adaptive::over(cold::thread(tuning)?, policy, costs)),
        #[cfg(feature = "keeper")]
        Topology::Process(link, tuning) => {
            Box::new(Adaptive::over(cold::process(link, tuning)?, policy, costs))
        }
    })
}

impl<P: Policy, C: Cold> Backend for Adaptive<P, C> {
    fn status(&self) -> Status<'_> {
        let (hot, cold) = (self.hot.len(), self.cold.watched());
        let mut status = Status::new("adaptive", Lengths { hot, cold, away: 0 });
        status.placement = Some(Placement { costs: &self.world.costs, policy: &self.policy });
        self.cold.add_keeper(&mut status);
        status
    }

    fn memory(&self) -> Memory {
        let lists = (self.candidates.capacity() + self.retrigger.capacity()) * size_of::<u32>();
        let lists = Memory { own: lists, mirrors: 0 };
        let parts = [self.cold.set().memory(), self.cold.more_memory(), self.hot.memory(), lists];
        Memory {
            own: parts.iter().map(|part| part.own).sum(),
            mirrors: parts.iter().map(|part| part.mirrors).sum(),
        }
    }

    fn admit(&self, _fd: RawFd, _watch: Watch) -> Result<()> {
        Ok(())
    }

    fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced> {
        let slot = cx.table.slot(index);
        let watch = slot.watch();
        let is_hot = slot.place().is_some();
        if !slot.is_live() {
            self.hot.remove(cx.table, index);
            return self.cold.change(cx, index, Change::Agree);
        }
        let is_new = !slot.is_placed();
        if is_hot && is_new {
            // Another file has the same number: the knowledge of the array and of epoll is void.
            self.hot.remove(cx.table, index);
            self.forget(cx, index);
        } else if is_hot && may_be_hot(watch.mode) {
            self.hot.put(cx.table, index);
            return Ok(Synced::Unchanged);
        } else if is_hot {
            self.hot.remove(cx.table, index);
            return self.cold.change(cx, index, Change::Watch(watch.interest, watch.mode));
        }
        if is_new && !self.pinned && may_be_hot(watch.mode) && !watch.interest.is_empty() {
            let (policy, view) = self.policy_and_view();
            let slot = cx.table.slot_mut(index);
            slot.set_placed();
            if policy.start(&mut slot.account, watch.hint, &view) == Set::Hot {
                learn_kind(cx, index);
                // Known to epoll under an ended registration, if at all.
                self.forget(cx, index);
                self.enter(cx, index);
                return Ok(Synced::Unchanged);
            }
        }
        self.cold.change(cx, index, Change::Agree)
    }

    fn prepare_wait<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
    ) -> Option<WaitCall<'a>> {
        if self.hot.is_empty() {
            self.begin_pass(cx, deadline);
            return Some(self.cold_wait(cx, self.until));
        }
        // A pass that the clock times is made in one place.
        if self.world.clock.is_due(self.world.passes.wrapping_add(1), self.hot.len()) {
            return None;
        }
        self.begin_pass(cx, deadline);
        Some(self.hot.wait_call(cx.stats, Deadline::Now.left()))
    }

    fn finish_wait(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
        answer: Option<io::Result<usize>>,
    ) -> io::Result<()> {
        let answer = match answer {
            Some(answer) => answer,
            None => {
                self.begin_pass(cx, deadline);
                if self.hot.is_empty() {
                    self.cold_wait(cx, self.until).issue()
                } else {
                    self.look(cx)
                }
            }
        };
        let mut counts =
            PassCounts { hot: self.hot.len(), cold: self.cold.watched(), ..PassCounts::default() };
        if self.hot.is_empty() {
            counts.cold_ready = self.report_cold(cx, answer)?;
            self.end_pass(cx, counts);
            return Ok(());
        }
        let mut ready =
            answer.or_else(|error| self.hot.poll_again(cx.stats, Deadline::Now.left(), error))?;
        let deadline = self.until;
        if ready == 0 && deadline != Deadline::Now && cx.may_block() {
            match self.block(cx, deadline)? {
                Some(found) => ready = found,
                None => {
                    let deadline = if self.cold.must_look() { Deadline::Now } else { deadline };
                    let answer = self.cold_wait(cx, deadline).issue();
                    counts.cold_ready = self.report_cold(cx, answer)?;
                    self.end_pass(cx, counts);
                    return Ok(());
                }
            }
        }
        let cold_is_ready = self.hot.own_is_ready();
        let view = self.world.view(self.hot.len(), self.cold.watched());
        let policy = &mut self.policy;
        counts.hot_ready = self.hot.collect(cx, ready, |cx, index| {
            policy.hot_event(&mut cx.table.slot_mut(index).account, &view);
        });
        cx.stats.hot.active += counts.hot_ready as u64;
        if cold_is_ready || self.cold.must_look() {
            let answer = self.cold_wait(cx, Deadline::Now).issue();
            counts.cold_ready = self.report_cold(cx, answer)?;
        }
        self.end_pass(cx, counts);
        while let Some(index) = self.hot.pop_troubled() {
            self.demote(cx, index, false);
        }
        self.turn_hand(cx);
        if self.world.passes % SORTED_EVERY == 1 {
            self.hot.sort(cx.table);
        }
        Ok(())
    }

    fn lifecycle(&mut self) -> &mut dyn Lifecycle {
        self
    }

    fn keeper(&mut self) -> Option<&mut dyn KeeperClient> {
        self.cold.keeper()
    }
}

impl<P: Policy, C: Cold> Lifecycle for Adaptive<P, C> {
    fn attach_waker(&mut self, cx: &mut Context<'_>, fd: BorrowedFd<'_>) -> Result<()> {
        self.cold.set_mut().attach_waker(cx, fd)
    }

    fn after_fork(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.cold.stay_in_set(cx, true);
        self.cold.set_mut().after_fork(cx)?;
        for place in 0..self.hot.len() {
            cx.table.slot_mut(self.hot.index(place)).account.parked = false;
        }
        Ok(())
    }

    fn nest(&mut self, cx: &mut Context<'_>) -> Result<BorrowedFd<'_>> {
        self.pinned = true;
        self.cold.stay_in_set(cx, false);
        self.assume_idle(cx);
        self.cold.set_mut().nest(cx)
    }

    fn assume_idle(&mut self, cx: &mut Context<'_>) {
        self.demote_all(cx);
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.cold.flush(cx)
    }

    fn shrink_to_fit(&mut self, _: &mut Context<'_>) {
        self.hot.shrink_to_fit();
        self.candidates.shrink_to_fit();
        self.retrigger.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Fixed;

    fn adaptive() -> Adaptive<Fixed> {
        Adaptive::new(Fixed::new(Set::Cold), Costs::ASSUMED).unwrap()
    }

    #[test]
    fn memory_is_that_of_both_sets_and_of_the_lists() {
        let mut adaptive = adaptive();
        let (cold, hot) = (adaptive.cold.memory(), adaptive.hot.memory());
        adaptive.candidates.reserve_exact(100);
        adaptive.retrigger.reserve_exact(10);
        let memory = adaptive.memory();
        assert_eq!(memory.own, cold.own + hot.own + 4 * (100 + 10));
        assert_eq!(memory.mirrors, cold.mirrors + hot.mirrors);
    }

    #[test]
    fn only_a_list_that_a_burst_has_made_long_is_given_back() {
        for (capacity, kept) in [(1, true), (1023, true), (1024, true), (1025, false)] {
            let mut adaptive = adaptive();
            adaptive.candidates.reserve_exact(capacity);
            adaptive.retrigger.reserve_exact(capacity);
            adaptive.keep_lists_short();
            let left = if kept { capacity } else { 0 };
            assert_eq!(adaptive.candidates.capacity(), left);
            assert_eq!(adaptive.retrigger.capacity(), left);
        }
    }
}
