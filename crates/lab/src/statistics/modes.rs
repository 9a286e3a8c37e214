//! Two modes: samples that lie around two values and hardly between them.
//!
//! A median or a lowest decile of such samples says how often each mode occurred, and not what the
//! subject costs. The samples are split, in logarithms, where the two parts vary least within
//! themselves (Otsu 1979). They have two modes if each part has its share of them, the parts lie
//! far apart, and the gap between the parts is wide compared with that distance. A single cluster
//! that is cut in two has no gap, and interference makes no part of its own: it is spread.

use crate::statistics::{mean, median, quantile};

/// The fewest samples that can show two modes.
const FEWEST: usize = 12;

/// The smallest share of the samples in a mode, and the smallest number.
const SHARE: f64 = 1.0 / 6.0;
const LEAST: usize = 3;

/// How many times as large the samples of the upper mode are, at least.
const APART: f64 = 1.5;

/// The gap between the parts, without a twentieth of each, as a share of the distance of their
/// means. A normal distribution that is cut in two has 0.08 of it, a uniform one 0.1.
const GAP: f64 = 0.55;

/// The medians of two modes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Modes {
    /// That of the lower one.
    pub low: f64,
    /// That of the upper one.
    pub high: f64,
}

/// Returns the modes of some positive samples, if there are two.
pub(crate) fn two_modes(samples: &[f64]) -> Option<Modes> {
    let mut logs: Vec<f64> = samples.iter().map(|sample| sample.max(1e-9).ln()).collect();
    logs.sort_unstable_by(f64::total_cmp);
    let least = (logs.len() as f64 * SHARE).ceil() as usize;
    let least = least.max(LEAST);
    if logs.len() < FEWEST {
        return None;
    }
    // Least variance within is most variance between.
    let (mut sum, total): (f64, f64) = (logs[..least].iter().sum(), logs.iter().sum());
    let (mut split, mut most) = (least, f64::NEG_INFINITY);
    for at in least..=logs.len() - least {
        let (below, above) = (at as f64, (logs.len() - at) as f64);
        let distance = (total - sum) / above - sum / below;
        let between = below * above * distance * distance;
        if between > most {
            (split, most) = (at, between);
        }
        sum += logs[at];
    }
    let (below, above) = logs.split_at(split);
    let distance = mean(above) - mean(below);
    let gap = quantile(above, 0.05) - quantile(below, 0.95);
    let has_two = distance >= APART.ln() && gap >= GAP * distance;
    has_two.then(|| Modes { low: median(below).exp(), high: median(above).exp() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// A number that is distributed nearly normally around zero, with variance one.
    fn normal(random: &mut Random) -> f64 {
        (0..12).map(|_| random.below(1_000_000) as f64 / 1e6).sum::<f64>() - 6.0
    }

    /// The share of a hundred planted series in which two modes are found.
    fn found(count: usize, sample: impl Fn(&mut Random) -> f64) -> usize {
        let series = |seed| {
            let mut random = Random::new(seed);
            (0..count).map(|_| sample(&mut random)).collect::<Vec<f64>>()
        };
        (1..=100).filter(|&seed| two_modes(&series(seed)).is_some()).count()
    }

    fn chance(random: &mut Random, percent: usize) -> bool {
        random.below(100) < percent
    }

    #[test]
    fn two_planted_modes_are_found() {
        for count in [16, 40, 200, 1000] {
            for upper in [30, 50, 70] {
                let found = found(count, |random| {
                    let mode = if chance(random, upper) { 25.0 } else { 8.0 };
                    mode * (1.0 + 0.1 * normal(random))
                });
                let bound = if count < 40 { 80 } else { 95 };
                assert!(found >= bound, "{found} of 100, {count} samples, {upper} % above");
            }
        }
        let modes = two_modes(&[[8.0; 15], [25.0; 15]].concat()).unwrap();
        assert!((modes.low - 8.0).abs() < 1e-6 && (modes.high - 25.0).abs() < 1e-6, "{modes:?}");
    }

    #[test]
    fn one_planted_mode_is_one() {
        for count in [12, 20, 40, 200, 1000] {
            let narrow = found(count, |random| 8.0 * (1.0 + 0.1 * normal(random)));
            let wide = found(count, |random| 8.0 * (0.4 * normal(random)).exp());
            let even = found(count, |random| 8.0 + 17.0 * random.below(1000) as f64 / 1e3);
            // One in ten is disturbed, by up to five times its time.
            let disturbed = found(count, |random| {
                let more = if chance(random, 10) { random.below(400) as f64 / 1e2 } else { 0.0 };
                8.0 * (1.0 + 0.05 * normal(random) + more)
            });
            let all = [narrow, wide, even, disturbed];
            // A dozen may look like two clusters by chance: a point needs half of its subjects.
            let bound = if count < 20 { 12 } else { 6 };
            assert!(all.iter().all(|found| *found <= bound), "{all:?} of 100, {count} samples");
        }
        assert_eq!(two_modes(&[[8.0; 5], [25.0; 5]].concat()), None);
        assert_eq!((two_modes(&[]), two_modes(&[0.0; 30])), (None, None));
    }
}
