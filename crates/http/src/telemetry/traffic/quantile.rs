//! Quantiles of a histogram.
//!
//! A histogram knows how many durations are between two bounds, and not where. So a quantile is
//! known as far as its bucket: the estimate is on the straight line between the bucket's bounds, as
//! Prometheus does it (`histogram_quantile`), and the true value is between them as well.

use std::fmt;

/// A quantile of durations, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Quantile {
    /// In the first bucket, up to this bound.
    Below(u64),
    /// About this; the true value is between the same two bounds.
    About(u64),
    /// Longer than the last bound.
    Above(u64),
}

impl Quantile {
    /// Returns a value to sort by, in nanoseconds.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        match *self {
            // A quantile of the next bucket is longer, even if it is at its beginning.
            Quantile::Below(bound) => bound.saturating_sub(1),
            Quantile::About(nanos) => nanos,
            Quantile::Above(bound) => bound.saturating_add(1),
        }
    }
}

impl fmt::Display for Quantile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mark, nanos) = match *self {
            Quantile::Below(bound) => ("<", bound),
            Quantile::About(nanos) => ("", nanos),
            Quantile::Above(bound) => (">", bound),
        };
        let nanos = nanos as f64;
        let (value, unit) = match nanos {
            _ if nanos < 999.5e3 => (nanos / 1e3, "us"),
            _ if nanos < 999.5e6 => (nanos / 1e6, "ms"),
            _ => (nanos / 1e9, "s"),
        };
        let digits = usize::from(value < 9.95 && value.fract() > 0.0);
        write!(f, "{mark}{value:.digits$}{unit}")
    }
}

/// Returns the quantile `part`, from 0 to 1, of a histogram whose buckets have these upper bounds
/// and one more bucket after them; `None` if nothing is in it.
#[must_use]
pub fn quantile(bounds_ns: &[u64], buckets: &[u64], part: f64) -> Option<Quantile> {
    let all = buckets.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    if all == 0 {
        return None;
    }
    // The rank of the duration, from 1: with one duration, it is every quantile.
    let rank = (part.clamp(0.0, 1.0) * all as f64).ceil().max(1.0);
    let mut before = 0.0;
    for (index, count) in buckets.iter().enumerate() {
        let count = *count as f64;
        if count == 0.0 || before + count < rank {
            before += count;
            continue;
        }
        let Some(&upper) = bounds_ns.get(index) else { break };
        let Some(&lower) = index.checked_sub(1).and_then(|index| bounds_ns.get(index)) else {
            return Some(Quantile::Below(upper));
        };
        let way = (rank - before) / count;
        let nanos = lower as f64 + way * upper.saturating_sub(lower) as f64;
        return Some(Quantile::About(nanos.round() as u64));
    }
    // A histogram of another program may have no bounds at all.
    bounds_ns.last().map(|last| Quantile::Above(*last))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: [u64; 3] = [1_000_000, 2_500_000, 10_000_000];

    #[test]
    fn quantiles_of_known_histograms() {
        let of = |buckets: &[u64], part| quantile(&BOUNDS, buckets, part);
        assert_eq!(of(&[0, 0, 0, 0], 0.5), None);
        assert_eq!(of(&[], 0.5), None);
        assert_eq!(of(&[10, 0, 0, 0], 0.99), Some(Quantile::Below(1_000_000)));
        assert_eq!(of(&[0, 0, 0, 1], 0.0), Some(Quantile::Above(10_000_000)));
        // The median of two is the first, at half of the way.
        assert_eq!(of(&[0, 2, 0, 0], 0.5), Some(Quantile::About(1_750_000)));
        assert_eq!(of(&[0, 2, 0, 0], 1.0), Some(Quantile::About(2_500_000)));
        assert_eq!(of(&[98, 0, 2, 0], 0.98), Some(Quantile::Below(1_000_000)));
        assert_eq!(of(&[98, 0, 2, 0], 0.99), Some(Quantile::About(6_250_000)));
        assert_eq!(quantile(&[], &[3], 0.5), None);
        assert_eq!(of(&[u64::MAX, u64::MAX, 0, 0], 0.1), Some(Quantile::Below(1_000_000)));
    }

    #[test]
    fn quantiles_are_short_texts() {
        let texts = [
            (Quantile::Below(500_000), "<500us"),
            (Quantile::About(1_240_000), "1.2ms"),
            (Quantile::About(2_000_000), "2ms"),
            (Quantile::About(42_400_000), "42ms"),
            (Quantile::About(999_600_000), "1.0s"),
            (Quantile::Above(10_000_000_000), ">10s"),
        ];
        for (quantile, text) in texts {
            assert_eq!(quantile.to_string(), text);
        }
    }

    /// A generator of numbers that looks random (xorshift).
    fn next(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn the_true_quantile_is_in_the_same_bucket_and_sums_of_histograms_are_histograms_of_all() {
        let mut state = 0x2545_f491_4f6c_dd1d;
        let bucket = |nanos: u64| BOUNDS.iter().position(|bound| nanos <= *bound).unwrap_or(3);
        for _ in 0..2000 {
            let mut all = Vec::new();
            let mut summed = [0_u64; 4];
            // Some processes, each with a histogram of its own.
            for _ in 0..1 + next(&mut state) % 4 {
                let mut own = [0_u64; 4];
                for _ in 0..next(&mut state) % 30 {
                    let nanos = next(&mut state) % (1 << (17 + next(&mut state) % 8));
                    own[bucket(nanos)] += 1;
                    all.push(nanos);
                }
                summed.iter_mut().zip(own).for_each(|(sum, count)| *sum += count);
            }
            all.sort_unstable();
            for part in [0.0, 0.1, 0.5, 0.9, 0.99, 1.0] {
                let found = quantile(&BOUNDS, &summed, part);
                if all.is_empty() {
                    assert_eq!(found, None);
                    continue;
                }
                let rank = (part * all.len() as f64).ceil().max(1.0) as usize;
                let expected = bucket(all[rank - 1]);
                let is_there = match found.unwrap() {
                    Quantile::Below(bound) => expected == 0 && bound == BOUNDS[0],
                    Quantile::About(nanos) => {
                        nanos > BOUNDS[expected - 1] && nanos <= BOUNDS[expected]
                    }
                    Quantile::Above(bound) => expected == 3 && bound == BOUNDS[2],
                };
                assert!(is_there, "{part} of {all:?}: {found:?}");
            }
        }
    }
}
