//! Loads: the descriptors that are active in each round.
//!
//! A load is generated from a seed, before any timing, and replayed to every subject: the same
//! descriptors are active in the same rounds for all.

use crate::random::Random;

/// The active pairs of each round, ascending within a round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    pairs: Vec<u32>,
    /// Where each round ends in `pairs`.
    ends: Vec<usize>,
}

impl Load {
    /// Creates a load whose active descriptors are always the same.
    pub(crate) fn constant(active: Vec<u32>) -> Load {
        Load { ends: vec![active.len()], pairs: active }
    }

    /// Creates a load from its rounds. Each round is sorted; a pair named twice in a round counts
    /// once.
    pub(crate) fn from_rounds(rounds: impl IntoIterator<Item = Vec<u32>>) -> Load {
        let mut load = Load { pairs: Vec::new(), ends: Vec::new() };
        for mut round in rounds {
            round.sort_unstable();
            round.dedup();
            load.pairs.append(&mut round);
            load.ends.push(load.pairs.len());
        }
        load
    }

    /// Creates a load with a hot set that is active in every round, and a few cold descriptors,
    /// drawn for each round. Every `shift_every` rounds (0: never) the whole hot set moves to other
    /// descriptors.
    pub(crate) fn hot_and_cold(mix: Mix, shift_every: usize, rounds: usize, seed: u64) -> Load {
        let mut random = Random::new(seed);
        let total = mix.hot + mix.cold;
        let order = random.permutation(total);
        Load::from_rounds((0..rounds).map(|round| {
            let shift = round.checked_div(shift_every).unwrap_or(0);
            let first = shift * mix.hot % total.max(1);
            let mut active: Vec<u32> = (0..mix.hot).map(|n| order[(first + n) % total]).collect();
            for _ in 0..mix.stray.min(mix.cold) {
                active.push(order[(first + mix.hot + random.below(mix.cold)) % total]);
            }
            active
        }))
    }

    /// Creates a load in which each of `total` descriptors is active with the same probability,
    /// independently. A round without an active descriptor gets one.
    pub(crate) fn random(total: usize, probability: f64, rounds: usize, seed: u64) -> Load {
        let mut random = Random::new(seed);
        Load::from_rounds((0..rounds).map(|_| {
            let mut active: Vec<u32> =
                (0..total as u32).filter(|_| random.chance(probability)).collect();
            if active.is_empty() {
                active.push(random.below(total) as u32);
            }
            active
        }))
    }

    /// Returns the active descriptors of a round. A load that ends begins again.
    pub(crate) fn round(&self, round: usize) -> &[u32] {
        let round = round % self.ends.len().max(1);
        let start = round.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.pairs[start..self.ends.get(round).copied().unwrap_or(start)]
    }

    /// Returns the number of rounds before the load begins again.
    #[cfg(test)]
    pub(crate) fn rounds(&self) -> usize {
        self.ends.len()
    }

    /// Returns the mean number of active descriptors.
    pub(crate) fn mean_active(&self) -> f64 {
        self.pairs.len() as f64 / self.ends.len().max(1) as f64
    }
}

/// A load of busy and idle descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mix {
    /// Active in every round.
    pub hot: usize,
    /// Idle, but for a few.
    pub cold: usize,
    /// How many of the idle descriptors are active in a round, drawn anew for each round.
    pub stray: usize,
}

// Where the active descriptors lie among all.
//
// Their placement matters to `poll`: a scan that finds nothing at first joins wait queues until it
// finds something. The test behind the well-known break-even of 0.6 had its active pipes at the
// end.

crate::by_name::named! {
    /// A place for the active descriptors.
    pub(crate) enum Placement {
        /// The last ones registered.
        End = "end",
        /// Evenly among all.
        Spread = "spread",
        /// The first ones registered.
        Front = "front",
    }
}

impl Placement {
    /// Returns the active descriptors: `active` different numbers below `total`, ascending; at most
    /// `total` of them.
    pub(crate) fn choose(self, total: usize, active: usize) -> Vec<u32> {
        let active = active.min(total);
        let place = |n: usize| match self {
            Placement::End => total - active + n,
            // The middle of the nth of `active` equal parts.
            Placement::Spread => (2 * n + 1) * total / (2 * active),
            Placement::Front => n,
        };
        (0..active).map(|n| place(n) as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_load_and_another_one_another() {
        let mix = Mix { hot: 5, cold: 95, stray: 2 };
        let load = Load::hot_and_cold(mix, 10, 100, 1);
        assert_eq!(load, Load::hot_and_cold(mix, 10, 100, 1));
        assert_ne!(load, Load::hot_and_cold(mix, 10, 100, 2));
        assert_eq!(load.rounds(), 100);
        assert_eq!(load.round(0), load.round(100));
    }

    #[test]
    fn the_hot_set_stays_for_its_period_and_then_moves_as_a_whole() {
        let mix = Mix { hot: 5, cold: 95, stray: 0 };
        let load = Load::hot_and_cold(mix, 10, 40, 1);
        for round in 0..40 {
            assert_eq!(load.round(round).len(), 5);
            assert_eq!(load.round(round), load.round(round / 10 * 10));
        }
        for shift in 1..4 {
            let (before, after) = (load.round(shift * 10 - 1), load.round(shift * 10));
            assert!(after.iter().all(|pair| !before.contains(pair)));
        }
        let still = Load::hot_and_cold(mix, 0, 40, 1);
        assert!((1..40).all(|round| still.round(round) == still.round(0)));
    }

    #[test]
    fn strays_are_cold_and_change() {
        let mix = Mix { hot: 5, cold: 95, stray: 3 };
        let load = Load::hot_and_cold(mix, 0, 50, 9);
        let hot: Vec<u32> = load
            .round(0)
            .iter()
            .copied()
            .filter(|pair| (0..50).all(|round| load.round(round).contains(pair)))
            .collect();
        assert_eq!(hot.len(), 5);
        assert!((0..50).all(|round| (6..=8).contains(&load.round(round).len())));
        assert!(load.mean_active() > 7.0);
    }

    #[test]
    fn random_loads_have_their_share_and_never_an_empty_round() {
        let load = Load::random(100, 0.25, 400, 4);
        assert!((24.0..26.0).contains(&load.mean_active()), "{}", load.mean_active());
        let sparse = Load::random(10, 0.0, 20, 4);
        assert!((0..20).all(|round| sparse.round(round).len() == 1));
    }

    #[test]
    fn rounds_given_are_sorted_and_counted_once() {
        let load = Load::from_rounds([vec![3, 1, 3], vec![2]]);
        assert_eq!(
            (load.round(0), load.round(1), load.round(2)),
            (&[1, 3][..], &[2][..], &[1, 3][..])
        );
        assert_eq!(Load::constant(vec![4, 5]).round(17), [4, 5]);
    }

    #[test]
    fn each_place_is_where_it_says() {
        assert_eq!(Placement::End.choose(10, 3), [7, 8, 9]);
        assert_eq!(Placement::Front.choose(10, 3), [0, 1, 2]);
        assert_eq!(Placement::Spread.choose(9, 3), [1, 4, 7]);
        assert_eq!(Placement::Spread.choose(1000, 1), [500]);
        assert!(Placement::Spread.choose(0, 0).is_empty());
    }

    #[test]
    fn they_are_always_different_ascending_and_within() {
        for placement in Placement::ALL {
            for total in [1, 2, 7, 100] {
                for active in 0..=total {
                    let chosen = placement.choose(total, active);
                    assert_eq!(chosen.len(), active);
                    assert!(chosen.windows(2).all(|two| two[0] < two[1]));
                    assert!(chosen.iter().all(|&n| (n as usize) < total));
                }
            }
        }
        assert_eq!(Placement::End.choose(2, 5), [0, 1]);
    }
}
