//! A small generator of random numbers (SplitMix64): the same seed gives every subject the same
//! load, on every machine, and the simulator the same search.

/// The generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence of this seed.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`; zero if `bound` is zero.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = bound.max(1) as u128;
        ((u128::from(self.bits()) * bound) >> 64) as usize
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) as usize + 1) as u64
    }

    /// Returns true with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns a number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns all numbers below `count` in random order.
    pub fn permutation(&mut self, count: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..count as u32).collect();
        for last in (1..count).rev() {
            all.swap(last, self.below(last + 1));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn ranges_are_kept_and_evenly_reached() {
        let mut random = Random::new(1);
        let mut counts = [0; 5];
        let mut hits = 0;
        for _ in 0..10_000 {
            counts[random.below(5)] += 1;
            hits += usize::from(random.chance(0.25));
            assert!([3, 4].contains(&random.between(3, 4)));
        }
        assert!(counts.iter().all(|count| (1850..2150).contains(count)), "{counts:?}");
        assert!((2300..2700).contains(&hits), "{hits}");
        assert!(!random.chance(0.0) && random.chance(1.0));
        assert_eq!((random.below(0), random.between(9, 9)), (0, 9));
    }

    #[test]
    fn a_seed_names_a_sequence() {
        let first = |seed| {
            let mut random = Random::new(seed);
            [random.bits(), random.bits()]
        };
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
        // The reference sequence of SplitMix64 from zero.
        assert_eq!(first(0)[0], 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn a_permutation_has_everything_once() {
        let mut all = Random::new(3).permutation(100);
        assert_ne!(all, (0..100).collect::<Vec<u32>>());
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<u32>>());
    }
}
