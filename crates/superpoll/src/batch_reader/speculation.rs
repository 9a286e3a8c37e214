//! Which descriptors are read without being watched.
//!
//! A descriptor that has something in most waits is cheaper to read and find empty now and then than to watch:
//! a poll in the ring costs an event, and its writer a wake-up, each time. That is the bargain of the poll
//! array once more, with other prices. There a descriptor pays a scan in each pass, here a read that finds
//! nothing, if it does find nothing; so the same rule decides ([`Governed`]), given the prices of a ring
//! ([`prices`](super::prices)): what a hit saves is the event, the wake-up and the miss that it was not.
//!
//! A loop about to block arms them all again, since nobody would wake it for them.

use crate::costs::{Costs, Kind};
use crate::policy::{Account, Governed, Policy, Tally, Verdict, View};
use crate::stats::SetStats;

/// Those that are read in each wait.
#[derive(Debug)]
pub struct Speculation {
    policy: Governed,
    costs: Costs,
    passes: u32,
    /// Indices of sources.
    hot: Vec<u32>,
    /// Reads of hot ones that had something, and their sum with those in vain.
    hits: u64,
    reads: u64,
    /// Moves to them, and back.
    moves: (u64, u64),
    /// Where the clock hand is, and where the reads of the next wait begin.
    hand: usize,
    next: usize,
}

impl Speculation {
    /// Nothing is hot.
    pub fn new(costs: Costs) -> Speculation {
        let policy = Governed::new();
        let (hot, hits, reads, moves) = (Vec::new(), 0, 0, (0, 0));
        Speculation { policy, costs, passes: 0, hot, hits, reads, moves, hand: 0, next: 0 }
    }

    fn view(&self, registered: usize) -> View<'_> {
        let (hot, passes) = (self.hot.len(), self.passes);
        let cold = registered.saturating_sub(hot);
        View { costs: &self.costs, scan_factor: 1.0, passes, blocks: 0, hot, cold }
    }

    /// Policy and view, apart.
    fn judge(&mut self, registered: usize) -> (&mut Governed, View<'_>) {
        let (hot, passes) = (self.hot.len(), self.passes);
        let cold = registered.saturating_sub(hot);
        let costs = &self.costs;
        (&mut self.policy, View { costs, scan_factor: 1.0, passes, blocks: 0, hot, cold })
    }

    /// A new descriptor of this kind.
    pub fn account(&mut self, kind: Kind) -> Account {
        let mut account = Account { kind, ..Account::default() };
        let (policy, view) = self.judge(0);
        policy.start(&mut account, crate::Hint::None, &view);
        account
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.hot.len()
    }

    /// What has been seen of them.
    pub fn stats(&self) -> SetStats {
        SetStats { len: self.hot.len(), watched: self.reads, active: self.hits }
    }

    /// How many have moved to them, and back.
    pub fn moves(&self) -> (u64, u64) {
        self.moves
    }

    /// The next of them to be read, in turn.
    #[inline]
    pub fn next(&mut self) -> Option<u32> {
        self.reads += 1;
        self.next = if self.next == 0 { self.hot.len() } else { self.next.min(self.hot.len()) };
        self.next = self.next.checked_sub(1)?;
        self.hot.get(self.next).copied()
    }

    /// A watched descriptor was reported. Whether it should be read without being watched from now on.
    pub fn was_reported(&mut self, account: &mut Account, registered: usize) -> bool {
        let (policy, view) = self.judge(registered);
        policy.cold_event(account, &view) && policy.admit(1, &view) == 1
    }

    /// It is read without being watched from now on. Returns its place.
    pub fn enter(&mut self, index: u32, account: &mut Account, registered: usize) -> u32 {
        self.hot.push(index);
        self.moves.0 += 1;
        let (policy, view) = self.judge(registered);
        policy.moved_to_hot(account, &view);
        self.hot.len() as u32 - 1
    }

    /// It had something.
    pub fn was_hit(&mut self, account: &mut Account, registered: usize) {
        self.hits += 1;
        let (policy, view) = self.judge(registered);
        policy.hot_event(account, &view);
    }

    /// It is watched from now on, or gone. Returns who has its place now.
    pub fn leave(&mut self, place: u32, account: &mut Account, quiet: bool) -> Option<u32> {
        let place = place as usize;
        self.hot.swap_remove(place);
        self.moves.1 += 1;
        let (policy, view) = self.judge(0);
        policy.moved_to_cold(account, quiet, &view);
        self.hot.get(place).copied()
    }

    /// A wait is over. Returns how many of them are to be looked at.
    pub fn pass(&mut self, registered: usize) -> usize {
        self.passes = self.passes.wrapping_add(1);
        let tally = Tally { hot: self.hot.len(), ..Tally::default() };
        let (policy, view) = self.judge(registered);
        policy.pass(tally, &view);
        self.policy.hand(&self.view(registered)).min(self.hot.len())
    }

    /// The next one to be looked at, from the end to the front, so that what takes a place that became free has
    /// been looked at.
    pub fn look(&mut self) -> Option<u32> {
        self.hand = if self.hand == 0 { self.hot.len() } else { self.hand.min(self.hot.len()) };
        self.hand = self.hand.checked_sub(1)?;
        self.hot.get(self.hand).copied()
    }

    /// Whether it should be watched from now on.
    pub fn has_lost(&mut self, account: &mut Account, registered: usize) -> bool {
        let (policy, view) = self.judge(registered);
        policy.review(account, &view) == Verdict::Demote
    }

    /// The last of them.
    pub fn last(&self) -> Option<u32> {
        self.hot.last().copied()
    }

    /// Heap in use.
    pub fn memory(&self) -> usize {
        self.hot.capacity() * size_of::<u32>()
    }
}
