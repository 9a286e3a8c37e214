//! The adaptive back-end, without descriptors.
//!
//! Each step makes the same calls of the policy in the same order as
//! [`Adaptive`](superpoll::backend::Adaptive) does in one wait, and moves the same numbers between
//! the same two sets, and changes the same triggers. Epoll's ready list is kept as the kernel keeps
//! it: a level-triggered descriptor stays on it until the wait after its last report, which looks
//! at it to no effect; until then its writer has no task to wake. The cost of a step is charged to
//! four accounts. The writer pays before the wait, by where the descriptor was watched then.

use std::time::Duration;

use superpoll::Hint;
use superpoll::backend::policy::{Account, PassCounts, Policy, Quiet, Set, Verdict, View};
use superpoll::diagnostics::{Costs, Kind};

use crate::simulator::run::Setting;

/// The cost so far, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spent {
    /// Waiting.
    pub wait: f64,
    /// Moving descriptors.
    pub upkeep: f64,
    /// The extra cost of the writes compared with descriptors that are not watched.
    pub writes: f64,
    /// Reading.
    pub reads: f64,
}

impl Spent {
    /// Returns the sum of all accounts.
    pub fn total(&self) -> f64 {
        self.wait + self.upkeep + self.writes + self.reads
    }

    /// Returns the loop's own part, without the cost of the writes.
    pub fn own(&self) -> f64 {
        self.total() - self.writes
    }
}

/// The place of a descriptor that is not in the array.
const COLD: u32 = u32::MAX;

/// An adaptive back-end that only computes costs.
#[derive(Debug)]
pub struct Machine<P> {
    policy: P,
    setting: Setting,
    accounts: Vec<Account>,
    /// The place of each descriptor in the array, or `COLD`.
    places: Vec<u32>,
    array: Vec<u32>,
    /// Sum of the costs of one scan of all slots.
    scan: f64,
    hand: usize,
    passes: u32,
    blocks: u32,
    candidates: Vec<u32>,
    /// The descriptors that epoll should watch with another trigger.
    retrigger: Vec<u32>,
    /// Whether epoll was told to watch each descriptor level-triggered.
    level: Vec<bool>,
    /// Epoll's ready list after the last wait, and whether each descriptor is on it.
    ready_list: Vec<u32>,
    queued: Vec<bool>,
    spent: Spent,
    moves: u64,
    triggers: u64,
}

impl<P: Policy> Machine<P> {
    /// Creates a machine with this many descriptors, all registered with the same hint.
    pub fn new(policy: P, setting: &Setting, total: usize, hint: Hint) -> Machine<P> {
        let mut machine = Machine {
            policy,
            setting: *setting,
            accounts: vec![Account { kind: setting.kind, ..Account::default() }; total],
            places: vec![COLD; total],
            array: Vec::new(),
            scan: 0.0,
            hand: 0,
            passes: 0,
            blocks: 0,
            candidates: Vec::new(),
            retrigger: Vec::new(),
            level: vec![setting.level; total],
            ready_list: Vec::new(),
            queued: vec![false; total],
            spent: Spent::default(),
            moves: 0,
            triggers: 0,
        };
        for index in 0..total as u32 {
            let start =
                machine.ask(index, |policy, account, view| policy.start(account, hint, view));
            if start == Set::Hot {
                machine.enter(index);
            }
        }
        machine
    }

    fn policy_and_view(&mut self) -> (&mut P, View<'_>) {
        let view = View {
            costs: &self.setting.costs,
            scan_factor: self.setting.scan_factor,
            passes: self.passes,
            blocks: self.blocks,
            hot: self.array.len(),
            cold: self.places.len() - self.array.len(),
        };
        (&mut self.policy, view)
    }

    /// Asks the policy about a descriptor, whose account it may change.
    fn ask<Answer>(
        &mut self,
        index: u32,
        question: impl FnOnce(&mut P, &mut Account, &View<'_>) -> Answer,
    ) -> Answer {
        let mut account = self.accounts[index as usize];
        let (policy, view) = self.policy_and_view();
        let answer = question(policy, &mut account, &view);
        self.accounts[index as usize] = account;
        answer
    }

    /// Returns where a descriptor is watched.
    pub fn place(&self, index: u32) -> Set {
        if self.places[index as usize] == COLD { Set::Cold } else { Set::Hot }
    }

    /// Returns how many descriptors are in the array.
    pub fn hot(&self) -> usize {
        self.array.len()
    }

    /// Returns the cost so far.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Moves in either direction so far.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Changes of the trigger so far.
    pub fn triggers(&self) -> u64 {
        self.triggers
    }

    fn kind_costs(&self) -> superpoll::diagnostics::KindCosts {
        *self.setting.costs.of(self.setting.kind)
    }

    fn enter(&mut self, index: u32) {
        self.places[index as usize] = self.array.len() as u32;
        self.array.push(index);
        self.scan += f64::from(self.kind_costs().scan * self.setting.scan_factor);
        self.ask(index, P::moved_to_hot);
    }

    fn promote(&mut self, index: u32) {
        if self.place(index) == Set::Hot {
            return;
        }
        self.spent.upkeep += f64::from(self.kind_costs().modify);
        self.moves += 1;
        self.accounts[index as usize].parked = true;
        self.level[index as usize] = self.setting.level;
        self.enter(index);
    }

    fn demote(&mut self, index: u32, handed_off: bool) {
        let costs = self.kind_costs();
        let parked = self.accounts[index as usize].parked;
        self.spent.upkeep += f64::from(if parked { costs.modify } else { costs.add });
        self.moves += 1;
        let place = self.places[index as usize] as usize;
        self.array.swap_remove(place);
        if let Some(&moved) = self.array.get(place) {
            self.places[moved as usize] = place as u32;
        }
        self.places[index as usize] = COLD;
        self.level[index as usize] =
            self.setting.level || self.policy.prefers_level(self.setting.kind);
        self.scan -= f64::from(costs.scan * self.setting.scan_factor);
        self.accounts[index as usize].parked = false;
        self.ask(index, |policy, account, view| policy.moved_to_cold(account, handed_off, view));
    }

    fn demote_all(&mut self) {
        for place in (0..self.array.len()).rev() {
            self.demote(self.array[place], true);
        }
    }

    /// Plays one wait, in which these descriptors turn out to be ready, each for one read.
    pub fn round(&mut self, active: &[u32]) {
        let costs = self.kind_costs();
        self.passes = self.passes.wrapping_add(1);
        for &index in active {
            self.spent.writes += f64::from(match self.place(index) {
                Set::Cold if self.queued[index as usize] => costs.queued_wake,
                Set::Cold => costs.wake,
                Set::Hot if self.accounts[index as usize].parked => costs.parked_wake,
                Set::Hot => 0.0,
            });
        }
        self.spent.reads += active.len() as f64 * self.setting.read;
        let mut tally = PassCounts {
            hot: self.array.len(),
            cold: self.places.len() - self.array.len(),
            ..PassCounts::default()
        };
        let base = f64::from(self.setting.costs.cold_wait);
        if self.array.is_empty() {
            self.spent.wait += base;
            tally.cold_ready = self.collect_cold(active);
            self.end_pass(tally);
            return;
        }
        // With nothing in epoll the array does without the slot for it.
        let call = match tally.cold {
            0 => f64::from(self.setting.costs.poll_call),
            _ => base + f64::from(self.setting.costs.pass),
        };
        self.spent.wait += call + self.scan;
        if tally.cold > 0 {
            // Asked by `poll` whether it is ready, epoll goes through its list.
            self.look_again(active);
        }
        if active.is_empty() && self.block() {
            self.spent.wait += base;
            self.collect_cold(active);
            self.end_pass(tally);
            return;
        }
        for &index in active {
            if self.place(index) == Set::Hot {
                self.spent.wait += f64::from(costs.ready * self.setting.scan_factor);
                tally.hot_ready += 1;
                self.ask(index, P::hot_event);
            }
        }
        if tally.hot_ready < active.len() {
            self.spent.wait += base;
            tally.cold_ready = self.collect_cold(active);
        }
        self.end_pass(tally);
        self.turn_hand();
    }

    /// Fetches the ready descriptors of epoll.
    fn collect_cold(&mut self, active: &[u32]) -> usize {
        let costs = self.kind_costs();
        self.look_again(active);
        self.candidates.clear();
        let alone = self.array.is_empty();
        let mut delivered = 0;
        for &index in active {
            if self.place(index) == Set::Hot {
                continue;
            }
            delivered += 1;
            self.spent.wait += f64::from(costs.event);
            let is_level = self.level[index as usize];
            if is_level {
                self.spent.wait += f64::from(costs.level);
                self.queue(index);
            }
            if self.ask(index, P::cold_event) {
                self.candidates.push(index);
            } else if !self.setting.level {
                let level = self.policy.prefers_level(self.setting.kind);
                if level != is_level && (level || !alone) {
                    self.retrigger.push(index);
                }
            }
        }
        if !self.candidates.is_empty() {
            self.admit_candidates();
        }
        while let Some(index) = self.retrigger.pop() {
            let level = self.policy.prefers_level(self.setting.kind);
            self.set_trigger(index, level);
        }
        delivered
    }

    fn admit_candidates(&mut self) {
        let candidates = std::mem::take(&mut self.candidates);
        let (policy, view) = self.policy_and_view();
        let admitted = policy.admit(candidates.len(), &view).min(candidates.len());
        for &index in &candidates[..admitted] {
            self.promote(index);
        }
        if self.array.is_empty() {
            for &index in &candidates {
                self.set_trigger(index, true);
            }
        }
        self.candidates = candidates;
    }

    fn set_trigger(&mut self, index: u32, level: bool) {
        if self.setting.level
            || self.place(index) == Set::Hot
            || self.level[index as usize] == level
        {
            return;
        }
        self.level[index as usize] = level;
        self.spent.upkeep += f64::from(self.kind_costs().modify);
        self.triggers += 1;
        // The reported byte has not been read yet: the kernel looks, and puts the descriptor on the
        // list.
        self.queue(index);
    }

    fn queue(&mut self, index: u32) {
        if !std::mem::replace(&mut self.queued[index as usize], true) {
            self.ready_list.push(index);
        }
    }

    /// Removes descriptors that are no longer ready from the ready list, after a second look; the
    /// rest is about to be reported.
    fn look_again(&mut self, active: &[u32]) {
        let recheck = f64::from(self.kind_costs().recheck);
        while let Some(index) = self.ready_list.pop() {
            self.queued[index as usize] = false;
            if self.place(index) == Set::Hot || active.binary_search(&index).is_err() {
                self.spent.wait += recheck;
            }
        }
    }

    /// Plays a wait in which nothing happens until its time is up. Returns true if everything was
    /// handed over.
    fn block(&mut self) -> bool {
        let costs = self.kind_costs();
        self.blocks = self.blocks.wrapping_add(1);
        let (policy, view) = self.policy_and_view();
        let quiet = policy.quiet(&view);
        let blocking = self.scan + self.array.len() as f64 * f64::from(costs.block);
        match quiet {
            Quiet::HandOffAfter(linger) if linger < self.setting.pause => {
                if linger > Duration::ZERO {
                    self.spent.wait += blocking;
                }
                self.demote_all();
                true
            }
            _ => {
                self.spent.wait += blocking;
                false
            }
        }
    }

    fn end_pass(&mut self, tally: PassCounts) {
        let (policy, view) = self.policy_and_view();
        policy.pass(tally, &view);
    }

    fn turn_hand(&mut self) {
        let (policy, view) = self.policy_and_view();
        let looks = policy.hand(&view).min(self.array.len());
        for _ in 0..looks {
            if self.array.is_empty() {
                return;
            }
            let length = self.array.len();
            self.hand = if self.hand == 0 { length } else { self.hand.min(length) } - 1;
            let index = self.array[self.hand];
            match self.ask(index, P::review) {
                Verdict::Stay => {}
                Verdict::Demote => self.demote(index, false),
                Verdict::Settle => {
                    self.spent.upkeep += f64::from(self.kind_costs().delete);
                    self.accounts[index as usize].parked = false;
                }
            }
        }
    }
}

/// Returns the cost of a read of one byte, by kind, for use without a measurement.
pub(super) fn read_cost(kind: Kind) -> f64 {
    match kind {
        Kind::Unix => 1053.0,
        Kind::Tcp => 864.0,
        _ => 327.0,
    }
}

/// The default costs of simulations.
pub(super) const COSTS: Costs = Costs::ASSUMED;
