//! Chooses the descriptors that are read without being watched.
//!
//! A descriptor that has something in most waits is cheaper to read, and to find empty now and
//! then, than to watch: a poll in the ring costs an event, and its writer a wake-up, each time.
//! That is the bargain of the poll array once more, with other prices. There a descriptor pays a
//! scan in each pass; here it pays for a read that finds nothing, if the read does find nothing. So
//! the same rule decides ([`CostBased`]), given the prices of a ring ([`prices`](super::prices)): a
//! hit saves the event, the wake-up and the price of a miss.
//!
//! Where a good part of those reads find nothing, the poll array itself is the better bargain: one
//! `poll` for all of them names the reads that would succeed, at a tenth of the cost of each read
//! that would not. So there are two ways of going through the same set, and a rule for each,
//! because a descriptor that is cheap to look at may stay with less to show. The share of reads
//! that had something, over some passes, decides between them.
//!
//! A loop about to block arms all of them again, since nothing else would wake it for them.

use std::os::fd::RawFd;
use std::time::Duration;

use crate::costs::{Costs, Kind};
use crate::policy::{Account, CostBased, PassCounts, Policy, Verdict, View};
use crate::stats::{Calls, SetStats};
use crate::sys::poll::{self, Slot};

/// The weight of the last pass in the share of reads that had something.
const LATEST: f32 = 0.125;

/// The other way of going through the set must be this much cheaper.
const CLEARLY: f32 = 0.9;

/// A way of going through the set: its rule, and its prices in the terms of that rule.
#[derive(Debug)]
struct Way {
    policy: CostBased,
    costs: Costs,
}

impl Way {
    fn new(costs: Costs) -> Way {
        Way { policy: CostBased::new(), costs }
    }
}

/// The descriptors that are read in each wait.
#[derive(Debug)]
pub(super) struct Speculation {
    read: Way,
    look: Way,
    /// Whether the descriptors are looked at before they are read.
    looks: bool,
    /// The share of reads that have something.
    share: f32,
    /// The cost of going through all of them: reads that find nothing, looks, and the extra cost of
    /// a look that finds something.
    vain: f32,
    scans: f32,
    finds: f32,
    passes: u32,
    /// Indices of sources, and for each the question to `poll`.
    hot: Vec<u32>,
    slots: Vec<Slot>,
    /// Reads of hot sources that had something, and all reads of hot sources.
    hits: u64,
    reads: u64,
    /// The same when the last wait began.
    before: (u64, u64),
    /// Moves into the set, and back.
    moves: (u64, u64),
    /// The position of the clock hand, and where the reads of the next wait begin.
    hand: usize,
    next: usize,
}

impl Speculation {
    /// A set in which nothing is hot. The costs are those of reading and of looking.
    pub(super) fn new(read: Costs, look: Costs) -> Speculation {
        Speculation {
            read: Way::new(read),
            look: Way::new(look),
            looks: false,
            share: 1.0,
            vain: 0.0,
            scans: 0.0,
            finds: 0.0,
            passes: 0,
            hot: Vec::new(),
            slots: Vec::new(),
            hits: 0,
            reads: 0,
            before: (0, 0),
            moves: (0, 0),
            hand: 0,
            next: 0,
        }
    }

    /// Replaces the costs of reads from now on. There must be no account of any descriptor.
    pub(super) fn begin_anew(&mut self, read: Costs) {
        // One clock for both.
        (self.read, self.look) = (Way::new(read), Way::new(self.look.costs));
    }

    /// The terms of reading.
    #[cfg(test)]
    pub(super) fn terms(&self) -> Costs {
        self.read.costs
    }

    /// The rule that is in force, and the view that it gets.
    fn policy_and_view(&mut self, registered: usize) -> (&mut CostBased, View<'_>) {
        let (hot, passes) = (self.hot.len(), self.passes);
        let cold = registered.saturating_sub(hot);
        let Way { policy, costs } = if self.looks { &mut self.look } else { &mut self.read };
        (policy, View { costs, scan_factor: 1.0, passes, blocks: 0, hot, cold })
    }

    /// Makes the account of a new descriptor of this kind.
    pub(super) fn account(&mut self, kind: Kind) -> Account {
        let mut account = Account { kind, ..Account::default() };
        let (policy, view) = self.policy_and_view(0);
        policy.start(&mut account, crate::Hint::None, &view);
        account
    }

    /// The number of descriptors.
    pub(super) fn len(&self) -> usize {
        self.hot.len()
    }

    /// The statistics of the descriptors.
    pub(super) fn stats(&self) -> SetStats {
        SetStats { len: self.hot.len(), watched: self.reads, active: self.hits }
    }

    /// How many descriptors have moved into the set, and back.
    pub(super) fn moves(&self) -> (u64, u64) {
        self.moves
    }

    /// The next descriptor to read, in turn.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u32> {
        self.reads += 1;
        self.next = if self.next == 0 { self.hot.len() } else { self.next.min(self.hot.len()) };
        self.next = self.next.checked_sub(1)?;
        self.hot.get(self.next).copied()
    }

    /// Whether the descriptors are looked at before they are read, if all of them can be read.
    pub(super) fn looks(&self) -> bool {
        self.looks
    }

    /// Looks which descriptors have something, and puts those at the end of the list. A descriptor
    /// that cannot be looked at counts as one that has something.
    pub(super) fn look_at_all(&mut self, calls: &mut Calls, found: &mut Vec<u32>) {
        self.reads += self.hot.len() as u64;
        if poll::wait(calls, &mut self.slots, Some(Duration::ZERO)).is_err() {
            found.extend_from_slice(&self.hot);
            return;
        }
        let ready = self.hot.iter().zip(&self.slots).filter(|(_, slot)| slot.revents != 0);
        found.extend(ready.map(|(&index, _)| index));
    }

    /// Notes that a watched descriptor was reported. Returns whether it should be read without
    /// being watched from now on.
    pub(super) fn was_reported(&mut self, account: &mut Account, registered: usize) -> bool {
        let (policy, view) = self.policy_and_view(registered);
        policy.cold_event(account, &view) && policy.admit(1, &view) == 1
    }

    /// Reads a descriptor without watching it from now on. Returns its place.
    pub(super) fn enter(
        &mut self,
        index: u32,
        fd: RawFd,
        account: &mut Account,
        registered: usize,
    ) -> u32 {
        self.hot.push(index);
        self.slots.push(Slot { fd, events: libc::POLLIN, revents: 0 });
        self.add_prices(account.kind, 1.0);
        self.moves.0 += 1;
        let (policy, view) = self.policy_and_view(registered);
        policy.moved_to_hot(account, &view);
        self.hot.len() as u32 - 1
    }

    /// Notes that a read had something.
    pub(super) fn was_hit(&mut self, account: &mut Account, registered: usize) {
        self.hits += 1;
        let (policy, view) = self.policy_and_view(registered);
        policy.hot_event(account, &view);
    }

    /// Takes out a descriptor that is watched from now on, or gone. Returns the source that has its
    /// place now.
    pub(super) fn leave(&mut self, place: u32, account: &mut Account, quiet: bool) -> Option<u32> {
        let place = place as usize;
        self.hot.swap_remove(place);
        self.slots.swap_remove(place);
        self.add_prices(account.kind, -1.0);
        self.moves.1 += 1;
        let (policy, view) = self.policy_and_view(0);
        policy.moved_to_cold(account, quiet, &view);
        self.hot.get(place).copied()
    }

    fn add_prices(&mut self, kind: Kind, times: f32) {
        let looking = self.look.costs.of(kind);
        self.vain += times * self.read.costs.of(kind).scan;
        self.scans += times * looking.scan;
        self.finds += times * looking.ready;
        if self.hot.is_empty() {
            (self.vain, self.scans, self.finds) = (0.0, 0.0, 0.0);
        }
    }

    /// Ends a wait. Returns how many descriptors must be considered again.
    pub(super) fn pass(&mut self, registered: usize) -> usize {
        self.passes = self.passes.wrapping_add(1);
        self.choose();
        let (hot, looks) = (self.hot.len(), self.looks);
        let (policy, view) = self.policy_and_view(registered);
        policy.pass(PassCounts { hot, ..PassCounts::default() }, &view);
        let count = policy.hand(&view).min(hot);
        // The other way's clock continues, so that later reports to it fit.
        self.looks = !looks;
        let (policy, view) = self.policy_and_view(registered);
        policy.pass(PassCounts::default(), &view);
        self.looks = looks;
        count
    }

    /// Takes the way that costs less, by the results of the last waits.
    fn choose(&mut self) {
        let (hits, reads) = (self.hits - self.before.0, self.reads - self.before.1);
        self.before = (self.hits, self.reads);
        if reads == 0 {
            return;
        }
        self.share += LATEST * (hits as f32 / reads as f32 - self.share);
        let reading = (1.0 - self.share) * self.vain;
        let looking = self.look.costs.poll_call + self.scans + self.share * self.finds;
        if self.looks {
            self.looks = reading > CLEARLY * looking;
        } else {
            self.looks = looking < CLEARLY * reading;
        }
    }

    /// The next descriptor to consider again, from the end to the front, so that a descriptor that
    /// moves to a free place has been considered.
    pub(super) fn candidate(&mut self) -> Option<u32> {
        self.hand = if self.hand == 0 { self.hot.len() } else { self.hand.min(self.hot.len()) };
        self.hand = self.hand.checked_sub(1)?;
        self.hot.get(self.hand).copied()
    }

    /// Whether a descriptor should be watched from now on.
    pub(super) fn has_lost(&mut self, account: &mut Account, registered: usize) -> bool {
        let (policy, view) = self.policy_and_view(registered);
        policy.review(account, &view) == Verdict::Demote
    }

    /// The last descriptor.
    pub(super) fn last(&self) -> Option<u32> {
        self.hot.last().copied()
    }

    /// Heap in use.
    pub(super) fn memory(&self) -> usize {
        self.hot.capacity() * size_of::<u32>() + self.slots.capacity() * size_of::<Slot>()
    }
}
