//! A small generator of random numbers (SplitMix64): the same seed gives every subject the same
//! load, on every machine.

/// The generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be zero (it is taken as one).
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = bound.max(1) as u128;
        ((u128::from(self.bits()) * bound) >> 64) as usize
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.bits() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// All numbers below `count` in random order.
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
    fn it_is_the_same_for_a_seed_and_even() {
        assert_eq!(Random::new(7).bits(), Random::new(7).bits());
        assert_ne!(Random::new(7).bits(), Random::new(8).bits());
        let mut random = Random::new(1);
        let mut counts = [0; 5];
        let mut hits = 0;
        for _ in 0..10_000 {
            counts[random.below(5)] += 1;
            hits += usize::from(random.chance(0.25));
        }
        assert!(counts.iter().all(|count| (1850..2150).contains(count)), "{counts:?}");
        assert!((2300..2700).contains(&hits), "{hits}");
        assert!(!random.chance(0.0) && random.chance(1.0));
    }

    #[test]
    fn a_permutation_has_everything_once() {
        let mut all = Random::new(3).permutation(100);
        assert_ne!(all, (0..100).collect::<Vec<u32>>());
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<u32>>());
    }
}
