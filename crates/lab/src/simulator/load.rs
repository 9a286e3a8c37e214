//! Loads: the descriptors that are active in each round.
//!
//! A load is a sequence of groups of descriptors, each with a pattern, and a seed. Descriptors are
//! numbered consecutively, the first group from zero. Each active descriptor gets one event per
//! round. The same load drives real descriptors and the simulator: [`Load::rounds`] is its whole
//! interface.

use std::fmt;

use crate::random::Random;

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
