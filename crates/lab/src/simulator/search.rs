//! The search for the load that a policy likes least.
//!
//! Random loads of one or two groups, then small changes to the worst ones, kept when they make it
//! worse. The result is a load, so it can be played on real descriptors.

use superpoll::backend::policy::{Policy, Set};

use crate::random::Random;
use crate::simulator::machine::{Group, Load, Pattern};
use crate::simulator::run::{Outcome, Setting, play};

/// How to search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Random loads to try first.
    pub tries: u32,
    /// Changes to the worst of them.
    pub climbs: u32,
    /// Rounds that each load is played.
    pub rounds: u32,
    /// The fewest descriptors of a group.
    pub smallest: usize,
    /// The most.
    pub largest: usize,
    /// The seed of the search.
    pub seed: u64,
}

impl Default for Search {
    fn default() -> Search {
        Search { tries: 300, climbs: 300, rounds: 2000, smallest: 50, largest: 1000, seed: 1 }
    }
}

/// The worst load found.
#[derive(Clone, Debug)]
pub struct Worst {
    /// The load.
    pub load: Load,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Searches for the load with the highest cost relative to the best pure back-end.
pub fn worst_load<P: Policy>(policy: impl Fn() -> P, setting: &Setting, search: &Search) -> Worst {
    let mut random = Random::new(search.seed);
    let evaluate = |load: Load| {
        let outcome = play(policy(), &load, search.rounds, setting);
        Worst { load, outcome }
    };
    let mut worst = evaluate(invent(&mut random, search));
    for _ in 1..search.tries {
        let next = evaluate(invent(&mut random, search));
        if next.outcome.ratio() > worst.outcome.ratio() {
            worst = next;
        }
    }
    for _ in 0..search.climbs {
        let next = evaluate(change(&worst.load, &mut random, search));
        if next.outcome.ratio() > worst.outcome.ratio() {
            worst = next;
        }
    }
    worst
}

/// Returns a number from 1 to `end` with an evenly distributed order of magnitude.
fn magnitude(random: &mut Random, end: u64) -> u64 {
    let exponent = random.unit() * ((end + 1) as f64).ln();
    (exponent.exp() as u64).clamp(1, end)
}

fn invent(random: &mut Random, search: &Search) -> Load {
    let groups = random.between(1, 2);
    let groups = (0..groups).map(|_| invent_group(random, search)).collect();
    Load { groups, seed: random.bits() }
}

fn invent_group(random: &mut Random, search: &Search) -> Group {
    let size = magnitude(random, search.largest as u64).max(search.smallest as u64) as usize;
    let pattern = match random.below(8) {
        0 => Pattern::Idle,
        1 => Pattern::Steady,
        2 => Pattern::Chance(random.unit()),
        3 => Pattern::Few(magnitude(random, size as u64) as usize),
        4 | 5 => {
            let every = magnitude(random, 300) as u32;
            let active = magnitude(random, size as u64) as usize;
            Pattern::Rotating { active, every, jitter: random.below(every as usize) as u32 }
        }
        _ => {
            let (on, off) = (magnitude(random, 300) as u32, magnitude(random, 300) as u32);
            Pattern::Bursts { on, off, jitter: random.below(on as usize) as u32 }
        }
    };
    Group { size, pattern }
}

fn nudge(random: &mut Random, number: u64, end: u64) -> u64 {
    let factor = 0.7 + 0.6 * random.unit();
    let step = random.between(0, 2);
    ((number as f64 * factor) as u64 + step).saturating_sub(1).clamp(1, end.max(1))
}

fn change(load: &Load, random: &mut Random, search: &Search) -> Load {
    let mut load = load.clone();
    let place = random.below(load.groups.len());
    if random.chance(0.1) {
        load.groups[place] = invent_group(random, search);
        return load;
    }
    let group = &mut load.groups[place];
    if random.chance(0.3) {
        let size = nudge(random, group.size as u64, search.largest as u64) as usize;
        group.size = size.max(search.smallest);
    }
    let size = group.size as u64;
    match &mut group.pattern {
        Pattern::Idle | Pattern::Steady => {}
        Pattern::Chance(chance) => {
            *chance = (*chance + (random.unit() - 0.5) * 0.2).clamp(0.0, 1.0);
        }
        Pattern::Few(few) => *few = nudge(random, *few as u64, size) as usize,
        Pattern::Rotating { active, every, jitter } => {
            *active = nudge(random, *active as u64, size) as usize;
            *every = nudge(random, (*every).into(), 400) as u32;
            *jitter = random.below(*jitter as usize + 2) as u32;
        }
        Pattern::Bursts { on, off, jitter } => {
            *on = nudge(random, (*on).into(), 400) as u32;
            *off = nudge(random, (*off).into(), 400) as u32;
            *jitter = random.below(*jitter as usize + 2) as u32;
        }
    }
    load
}

// Loads made up on the spot, by an adversary that sees where each descriptor is watched.
//
// The cruellest thing to do to a placement rule is to stop a descriptor as soon as it has been
// moved to the array and to wake it as soon as it is back. No rule can do well against that; a
// good rule bounds its loss.

/// The tactic of an adversary.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Tactic {
    /// Active exactly while in epoll.
    Contrary,
    /// Like `Contrary`, but after a move it stays active for so many rounds, or keeps still for so
    /// many.
    Delayed(u32),
    /// Like `Contrary`, but in each round it does the opposite with this probability.
    Careless(f64),
}

/// An adversary that makes a policy lose.
#[derive(Clone, Debug)]
pub struct Adversary {
    tactic: Tactic,
    random: Random,
    places: Vec<Set>,
    since: Vec<u32>,
}

impl Adversary {
    /// Creates an adversary with this many descriptors.
    pub fn new(tactic: Tactic, total: usize, seed: u64) -> Adversary {
        Adversary {
            tactic,
            random: Random::new(seed),
            places: vec![Set::Cold; total],
            since: vec![u32::MAX; total],
        }
    }

    /// Returns its number of descriptors.
    pub fn total(&self) -> usize {
        self.places.len()
    }

    /// Chooses the descriptors that are active next, from where each is watched.
    pub fn next_round(&mut self, place: impl Fn(u32) -> Set, active: &mut Vec<u32>) {
        active.clear();
        for index in 0..self.places.len() {
            let now = place(index as u32);
            let since = &mut self.since[index];
            *since = if now == self.places[index] { since.saturating_add(1) } else { 0 };
            self.places[index] = now;
            let contrary = now == Set::Cold;
            let is_active = match self.tactic {
                Tactic::Contrary => contrary,
                Tactic::Delayed(rounds) => contrary == (*since >= rounds),
                Tactic::Careless(chance) => contrary != self.random.chance(chance),
            };
            if is_active {
                active.push(index as u32);
            }
        }
    }
}
