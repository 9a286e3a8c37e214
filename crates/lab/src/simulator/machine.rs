//! The adaptive back-end, without descriptors.
//!
//! Each step makes the same calls of the policy in the same order as
//! [`Adaptive`](superpoll::backend::Adaptive) does in one wait, and moves the same numbers between
//! the same two sets, and changes the same triggers. Epoll's ready list is kept as the kernel keeps
//! it: a level-triggered descriptor stays on it until the wait after its last report, which looks
//! at it to no effect; until then its writer has no task to wake. The cost of a step is charged to
//! four accounts. The writer pays before the wait, by where the descriptor was watched then.

use std::fmt;
use std::time::Duration;

use superpoll::Hint;
use superpoll::backend::policy::{Account, PassCounts, Policy, Quiet, Set, Verdict, View};
use superpoll::diagnostics::{Costs, Kind};

use crate::random::Random;
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
    /// How many descriptors are registered.
    members: usize,
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
            accounts: Vec::new(),
            places: Vec::new(),
            array: Vec::new(),
            members: 0,
            scan: 0.0,
            hand: 0,
            passes: 0,
            blocks: 0,
            candidates: Vec::new(),
            retrigger: Vec::new(),
            level: Vec::new(),
            ready_list: Vec::new(),
            queued: Vec::new(),
            spent: Spent::default(),
            moves: 0,
            triggers: 0,
        };
        for index in 0..total as u32 {
            machine.register(index, hint);
        }
        machine
    }

    /// Registers a descriptor, and returns where it starts.
    fn register(&mut self, index: u32, hint: Hint) -> Set {
        let length = self.places.len().max(index as usize + 1);
        self.accounts.resize(length, Account::default());
        self.places.resize(length, COLD);
        self.level.resize(length, self.setting.level);
        self.queued.resize(length, false);
        self.members += 1;
        self.accounts[index as usize] = Account { kind: self.setting.kind, ..Account::default() };
        self.level[index as usize] = self.setting.level;
        let start = self.ask(index, |policy, account, view| policy.start(account, hint, view));
        if start == Set::Hot {
            self.enter(index);
        }
        start
    }

    /// Registers a descriptor that is not registered, at the cost of an `EPOLL_CTL_ADD` if it
    /// starts in epoll.
    pub fn join(&mut self, index: u32) {
        if self.register(index, Hint::None) == Set::Cold {
            self.spent.upkeep += f64::from(self.kind_costs().add);
        }
    }

    /// Ends the registration of a descriptor, at the cost of an `EPOLL_CTL_DEL` if epoll knows it.
    pub fn leave(&mut self, index: u32) {
        let costs = self.kind_costs();
        if self.place(index) == Set::Cold || self.accounts[index as usize].parked {
            self.spent.upkeep += f64::from(costs.delete);
        }
        if self.place(index) == Set::Hot {
            self.take_out(index);
        }
        if std::mem::take(&mut self.queued[index as usize]) {
            self.ready_list.retain(|queued| *queued != index);
        }
        self.members -= 1;
    }

    fn policy_and_view(&mut self) -> (&mut P, View<'_>) {
        let view = View {
            costs: &self.setting.costs,
            scan_factor: self.setting.scan_factor,
            passes: self.passes,
            blocks: self.blocks,
            hot: self.array.len(),
            cold: self.members - self.array.len(),
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
        self.take_out(index);
        self.level[index as usize] =
            self.setting.level || self.policy.prefers_level(self.setting.kind);
        self.accounts[index as usize].parked = false;
        self.ask(index, |policy, account, view| policy.moved_to_cold(account, handed_off, view));
    }

    /// Takes a descriptor out of the array.
    fn take_out(&mut self, index: u32) {
        let place = self.places[index as usize] as usize;
        self.array.swap_remove(place);
        if let Some(&moved) = self.array.get(place) {
            self.places[moved as usize] = place as u32;
        }
        self.places[index as usize] = COLD;
        self.scan -= f64::from(self.kind_costs().scan * self.setting.scan_factor);
    }

    fn demote_all(&mut self) {
        for place in (0..self.array.len()).rev() {
            self.demote(self.array[place], true);
        }
    }

    /// Plays one wait, in which these descriptors turn out to be ready, each for one read. Without
    /// any it blocks for the time that the setting says.
    pub fn round(&mut self, active: &[u32]) {
        self.wait(active, active.is_empty().then_some(self.setting.pause));
    }

    /// The writers' cost, by where each descriptor is watched now.
    fn write(&mut self, active: &[u32]) {
        let costs = self.kind_costs();
        for &index in active {
            self.spent.writes += f64::from(match self.place(index) {
                Set::Cold if self.queued[index as usize] => costs.queued_wake,
                Set::Cold => costs.wake,
                Set::Hot if self.accounts[index as usize].parked => costs.parked_wake,
                Set::Hot => 0.0,
            });
        }
    }

    /// Plays one wait that returns these descriptors, in ascending order. `blocked` is how long it
    /// had to wait for them, or in vain; `None`: it returned what was there.
    pub fn wait(&mut self, active: &[u32], blocked: Option<Duration>) {
        let costs = self.kind_costs();
        self.passes = self.passes.wrapping_add(1);
        // Those that come later are not there yet.
        let at_first = if blocked.is_none() { active } else { &[] };
        self.write(at_first);
        self.spent.reads += active.len() as f64 * self.setting.read;
        let mut tally = PassCounts {
            hot: self.array.len(),
            cold: self.members - self.array.len(),
            ..PassCounts::default()
        };
        let base = f64::from(self.setting.costs.cold_wait);
        if self.array.is_empty() {
            self.spent.wait += base;
            if blocked.is_some() {
                self.look_again(at_first);
                self.write(active);
            }
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
            self.look_again(at_first);
        }
        if let Some(blocked) = blocked {
            let is_handed_over = self.block(blocked, call);
            self.write(active);
            if is_handed_over {
                self.spent.wait += base;
                tally.cold_ready = self.collect_cold(active);
                self.end_pass(tally);
                return;
            }
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

    /// Plays the part of a wait in which nothing happens, for this time: after the look, a call
    /// that scans again before it sleeps, and once more when it wakes. Returns true if everything
    /// was handed over.
    fn block(&mut self, time: Duration, call: f64) -> bool {
        let costs = self.kind_costs();
        self.blocks = self.blocks.wrapping_add(1);
        let (policy, view) = self.policy_and_view();
        let quiet = policy.quiet(&view);
        let blocking = call + 2.0 * self.scan + self.array.len() as f64 * f64::from(costs.block);
        match quiet {
            Quiet::HandOffAfter(linger) if linger < time => {
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

// Loads: the descriptors that are active in each round.
//
// A load is a sequence of groups of descriptors, each with a pattern, and a seed. Descriptors are
// numbered consecutively, the first group from zero. Each active descriptor gets one event per
// round. The same load drives real descriptors and the simulator: [`Load::rounds`] is its whole
// interface.

/// How the members of a group behave.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pattern {
    /// Never active.
    Idle,
    /// Active in each round.
    Steady,
    /// Each member is active with this probability in each round, independently.
    Chance(f64),
    /// This many members, drawn anew in each round, are active.
    Few(usize),
    /// `active` neighbours are active at a time; the next neighbours follow after `every` rounds,
    /// more or less by up to `jitter`.
    Rotating {
        /// How many are active at a time.
        active: usize,
        /// For how many rounds.
        every: u32,
        /// The most rounds by which that varies.
        jitter: u32,
    },
    /// Each member alone is active for `on` rounds and then not for `off`, each more or less by up
    /// to `jitter`; members start at random points of this cycle.
    Bursts {
        /// Rounds of activity.
        on: u32,
        /// Rounds without.
        off: u32,
        /// The most rounds by which either varies.
        jitter: u32,
    },
}

/// Descriptors that behave alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Group {
    /// How many there are.
    pub size: usize,
    /// Their activity.
    pub pattern: Pattern,
}

/// A whole load.
#[derive(Clone, PartialEq, Debug)]
pub struct Load {
    /// Its groups.
    pub groups: Vec<Group>,
    /// The seed of its random numbers.
    pub seed: u64,
}

impl Load {
    /// Creates a load of one group.
    pub fn new(size: usize, pattern: Pattern) -> Load {
        Load { groups: vec![Group { size, pattern }], seed: 1 }
    }

    /// Returns the same load with one group more.
    #[must_use]
    pub fn and(mut self, size: usize, pattern: Pattern) -> Load {
        self.groups.push(Group { size, pattern });
        self
    }

    /// Returns the same load from another seed.
    #[must_use]
    pub fn seed(self, seed: u64) -> Load {
        Load { seed, ..self }
    }

    /// Returns how many descriptors it needs.
    pub fn total(&self) -> usize {
        self.groups.iter().map(|group| group.size).sum()
    }

    /// Returns the activity, round by round, without end.
    pub fn rounds(&self) -> Rounds {
        let mut random = Random::new(self.seed);
        let mut first = 0;
        let groups = self
            .groups
            .iter()
            .map(|&group| {
                let state = State::new(group, first, &mut random);
                first += group.size as u32;
                state
            })
            .collect();
        Rounds { groups, random }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Pattern::Idle => f.write_str("idle"),
            Pattern::Steady => f.write_str("steady"),
            Pattern::Chance(chance) => write!(f, "chance {chance}"),
            Pattern::Few(few) => write!(f, "{few} at random"),
            Pattern::Rotating { active, every, jitter } => {
                write!(f, "{active} rotating every {every}+-{jitter}")
            }
            Pattern::Bursts { on, off, jitter } => write!(f, "bursts {on}/{off}+-{jitter}"),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, group) in self.groups.iter().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            write!(f, "{separator}{}: {}", group.size, group.pattern)?;
        }
        Ok(())
    }
}

/// The rounds of a load; made by [`Load::rounds`]. Also an iterator, which allocates for each
/// round.
#[derive(Clone, Debug)]
pub struct Rounds {
    groups: Vec<State>,
    random: Random,
}

#[derive(Clone, Debug)]
struct State {
    first: u32,
    group: Group,
    /// The state of a rotation: its first active member, and the rounds until it moves on.
    start: u32,
    left: u32,
    /// The state of bursts: whether each member is active, and for how many rounds more.
    members: Vec<(bool, u32)>,
}

fn about(rounds: u32, jitter: u32, random: &mut Random) -> u32 {
    let low = rounds.saturating_sub(jitter).max(1);
    random.between(low.into(), u64::from(rounds.saturating_add(jitter)).max(low.into())) as u32
}

impl State {
    fn new(group: Group, first: u32, random: &mut Random) -> State {
        let mut state = State { first, group, start: 0, left: 0, members: Vec::new() };
        match group.pattern {
            Pattern::Rotating { every, jitter, .. } => state.left = about(every, jitter, random),
            Pattern::Bursts { on, off, .. } => {
                let cycle = on as usize + off as usize;
                state.members = (0..group.size)
                    .map(|_| match random.below(cycle) as u32 {
                        at if at < on => (true, on - at),
                        at => (false, (on + off).saturating_sub(at).max(1)),
                    })
                    .collect();
            }
            _ => {}
        }
        state
    }

    fn next_round(&mut self, random: &mut Random, active: &mut Vec<u32>) {
        let size = self.group.size as u32;
        if size == 0 {
            return;
        }
        let members = self.first..self.first + size;
        match self.group.pattern {
            Pattern::Idle => {}
            Pattern::Steady => active.extend(members),
            Pattern::Chance(chance) => active.extend(members.filter(|_| random.chance(chance))),
            Pattern::Few(few) => {
                let from = active.len();
                while active.len() - from < few.min(size as usize) {
                    let member = self.first + random.below(size as usize) as u32;
                    if !active[from..].contains(&member) {
                        active.push(member);
                    }
                }
            }
            Pattern::Rotating { active: at_a_time, every, jitter } => {
                if self.left == 0 {
                    self.start = (self.start + at_a_time as u32) % size;
                    self.left = about(every, jitter, random);
                }
                self.left -= 1;
                let at_a_time = at_a_time.min(size as usize) as u32;
                active.extend((0..at_a_time).map(|i| self.first + (self.start + i) % size));
            }
            Pattern::Bursts { on, off, jitter } => {
                for (member, (is_on, left)) in members.zip(&mut self.members) {
                    if *left == 0 {
                        *is_on = !*is_on;
                        *left = about(if *is_on { on } else { off }, jitter, random);
                    }
                    *left -= 1;
                    if *is_on {
                        active.push(member);
                    }
                }
            }
        }
    }
}

impl Rounds {
    /// Puts the descriptors that are active in the next round into `active`, which is emptied
    /// first. None appears twice.
    pub fn next_round(&mut self, active: &mut Vec<u32>) {
        active.clear();
        for group in &mut self.groups {
            group.next_round(&mut self.random, active);
        }
    }
}

impl Iterator for Rounds {
    type Item = Vec<u32>;

    fn next(&mut self) -> Option<Vec<u32>> {
        let mut active = Vec::new();
        self.next_round(&mut active);
        Some(active)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_numbered_through() {
        let load = Load::new(2, Pattern::Idle).and(2, Pattern::Steady).and(1, Pattern::Few(3));
        assert_eq!(load.total(), 5);
        assert_eq!(load.rounds().next(), Some(vec![2, 3, 4]));
        assert_eq!(load.to_string(), "2: idle, 2: steady, 1: 3 at random");
    }

    #[test]
    fn a_rotation_moves_on_after_its_period_and_comes_round() {
        let load = Load::new(3, Pattern::Rotating { active: 2, every: 2, jitter: 0 });
        let rounds: Vec<_> = load.rounds().take(7).collect();
        let expected: [&[u32]; 7] = [&[0, 1], &[0, 1], &[2, 0], &[2, 0], &[1, 2], &[1, 2], &[0, 1]];
        assert_eq!(rounds, expected);
    }

    #[test]
    fn bursts_keep_their_duty_cycle() {
        let load = Load::new(100, Pattern::Bursts { on: 10, off: 30, jitter: 0 });
        let events: usize = load.rounds().take(400).map(|active| active.len()).sum();
        assert!((9_900..=10_100).contains(&events), "{events}");
        let one = Load::new(1, Pattern::Bursts { on: 3, off: 2, jitter: 0 });
        let trace: Vec<_> = one.rounds().take(60).map(|active| active.len()).collect();
        for window in trace.windows(5) {
            assert_eq!(window.iter().sum::<usize>(), 3);
        }
    }

    #[test]
    fn jitter_varies_a_period_within_its_bounds() {
        let load = Load::new(50, Pattern::Rotating { active: 1, every: 5, jitter: 2 });
        let mut lengths = [0; 10];
        let rounds: Vec<_> = load.rounds().take(4000).map(|active| active[0]).collect();
        for run in rounds.chunk_by(|a, b| a == b) {
            lengths[run.len()] += 1;
        }
        assert!(lengths[3..=7].iter().all(|&count| count > 50), "{lengths:?}");
        assert_eq!(lengths[..3].iter().sum::<i32>() + lengths[8..].iter().sum::<i32>(), 0);
    }

    #[test]
    fn the_seed_decides() {
        let load = Load::new(1000, Pattern::Chance(0.3)).and(100, Pattern::Few(5));
        let take = |load: &Load| load.rounds().take(3).collect::<Vec<_>>();
        assert_eq!(take(&load), take(&load.clone()));
        assert_ne!(take(&load), take(&load.clone().seed(2)));
        let count: usize = take(&load).iter().map(Vec::len).sum();
        assert!((800..1030).contains(&count), "{count}");
    }

    #[test]
    fn empty_and_degenerate_groups_are_harmless() {
        for pattern in [
            Pattern::Rotating { active: 5, every: 0, jitter: 0 },
            Pattern::Bursts { on: 0, off: 0, jitter: 0 },
            Pattern::Few(9),
            Pattern::Chance(f64::NAN),
        ] {
            assert_eq!(Load::new(0, pattern).rounds().nth(3), Some(vec![]));
            assert!(Load::new(2, pattern).rounds().take(4).all(|active| active.len() <= 2));
        }
    }
}
