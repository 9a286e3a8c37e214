//! Loads made up on the spot, by an adversary that sees where each descriptor is watched.
//!
//! The cruellest thing to do to a placement rule is to stop a descriptor as soon as it has been
//! moved to the array and to wake it as soon as it is back. No rule can do well against that; a
//! good rule bounds its loss.

use superpoll::backend::policy::Set;

use crate::random::Random;

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
