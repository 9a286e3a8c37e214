//! Figures from samples: quantiles here, the ratio of two costs and its confidence interval too,
//! and the place where two curves meet in `break_even.rs`. `modes.rs` detects samples that have two
//! values instead of one.
//!
//! `simulation.rs` is the reason for the choice of the estimator: it plants a difference under
//! noise like that of a shared machine and shows how far each estimator is from it.

pub(crate) use break_even::break_even;
pub(crate) use modes::{Modes, two_modes};
use serde::{Deserialize, Serialize};
pub(crate) use simulation::{Options, run};

use crate::random::Random;

mod break_even;
mod modes;
mod simulation;

/// Returns the sample below which this share of all samples lies (the nearest rank); zero without
/// samples.
pub(crate) fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count => sorted[((count - 1) as f64 * share.clamp(0.0, 1.0)).round() as usize],
    }
}

/// Returns the middle sample, or the mean of the two in the middle; zero without samples.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[half],
        _ => (sorted[half - 1] + sorted[half]) / 2.0,
    }
}

/// Returns the smallest sample; zero without samples.
pub(crate) fn minimum(samples: &[f64]) -> f64 {
    samples.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0)
}

/// Returns the largest sample; zero without samples.
pub(crate) fn maximum(samples: &[f64]) -> f64 {
    samples.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0)
}

/// Returns the mean; zero without samples.
pub(crate) fn mean(samples: &[f64]) -> f64 {
    if samples.is_empty() { 0.0 } else { samples.iter().sum::<f64>() / samples.len() as f64 }
}

// The ratio of two costs from blocks that took turns, with a confidence interval.
//
// Interference only ever adds time: another process, an interrupt, a neighbour on the same host.
// The cheapest blocks of a subject are those that were disturbed least, so the cost of a subject
// is the lowest decile of its blocks, and the headline of a comparison is the ratio of two lowest
// deciles. Up to ten blocks the lowest decile is the minimum. For a rate, where more is better,
// the same holds for its inverse: take the ratio of the times.
//
// The interval of 90 % is a percentile bootstrap (Efron 1979): blocks are drawn with replacement,
// a thousand times, and the ratio is computed each time. Blocks of the same turn are drawn
// together, since interference that lasts hits both. The generator has a fixed seed, so the same
// blocks always give the same interval.

/// A ratio and its confidence interval of 90 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Estimate {
    /// The ratio.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// The ratio of two costs that took turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    /// The median of the turns' ratios.
    pub median: f64,
    /// The 10th percentile of the turns' ratios.
    pub low: f64,
    /// The 90th percentile of the turns' ratios.
    pub high: f64,
    /// The ratio of the lowest deciles; older records have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decile: Option<Estimate>,
}

impl Ratio {
    /// Compares two costs, block by block; `None` if no turn has a second cost.
    pub(crate) fn of(own: &[f64], other: &[f64]) -> Option<Ratio> {
        let turns = own.iter().zip(other).filter(|(_, other)| **other > 0.0);
        let ratios: Vec<f64> = turns.map(|(own, other)| own / other).collect();
        let [low, high] = [0.1, 0.9].map(|share| quantile(&ratios, share));
        let median = median(&ratios);
        (!ratios.is_empty()).then(|| Ratio { median, low, high, decile: ratio(own, other) })
    }

    /// Returns the headline with the ends of its interval: from lowest deciles, or from medians if
    /// the record is too old.
    pub(crate) fn headline(self) -> Estimate {
        let Ratio { median: value, low, high, decile } = self;
        decile.unwrap_or(Estimate { value, low, high })
    }
}

crate::by_name::named! {
    /// A way to get the ratio of two costs from blocks.
    enum Estimator {
        /// The ratio of the medians.
        Median = "median",
        /// The median of the ratios of blocks that took turns.
        OfRatios = "median of ratios",
        /// The ratio of the means.
        Mean = "mean",
        /// The ratio of the lowest quartiles.
        LowestQuartile = "lowest quartile",
        /// The ratio of the lowest deciles.
        LowestDecile = "lowest decile",
        /// The ratio of the minima.
        Minimum = "minimum",
    }
}

/// How often the blocks are drawn for an interval.
const RESAMPLES: usize = 1000;

/// The share of resampled ratios below the interval, and above it.
const TAIL: f64 = 0.05;

/// Returns the ratio of the lowest deciles of two costs, with its interval; `None` without blocks
/// of both, or where the second cost is zero.
pub(crate) fn ratio(own: &[f64], other: &[f64]) -> Option<Estimate> {
    Estimator::LowestDecile.estimate(own, other, RESAMPLES)
}

/// Returns the lowest decile of some costs: the least of which a tenth of them is no larger; zero
/// without costs. Up to ten costs it is the minimum.
pub(crate) fn lowest_decile(costs: &[f64]) -> f64 {
    nth_of(costs, costs.len().div_ceil(10))
}

/// Returns the cost in this place, counted from one, in ascending order.
fn nth_of(costs: &[f64], place: usize) -> f64 {
    let mut costs = costs.to_vec();
    match place.checked_sub(1).filter(|place| *place < costs.len()) {
        Some(place) => *costs.select_nth_unstable_by(place, f64::total_cmp).1,
        None => 0.0,
    }
}

impl Estimator {
    /// Returns the ratio of two costs with its interval, from this many resamples.
    fn estimate(self, own: &[f64], other: &[f64], resamples: usize) -> Option<Estimate> {
        let value = self.ratio(own, other)?;
        let blocks = own.len().max(other.len());
        let drawn_at_once = self.drawn_at_once(blocks);
        let (mut random, mut ratios) = (Random::new(1), Vec::with_capacity(resamples));
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..resamples {
            one.clear();
            two.clear();
            for _ in 0..drawn_at_once {
                let place = random.below(blocks);
                // A rival that failed has fewer blocks.
                one.extend(own.get(place));
                two.extend(other.get(place));
            }
            ratios.extend(self.ratio(&one, &two));
        }
        let (low, high) = (quantile(&ratios, TAIL), quantile(&ratios, 1.0 - TAIL));
        Some(Estimate { value, low: low.min(value), high: high.max(value) })
    }

    /// Returns how many blocks a resample has. As many as there are, but half of them for a
    /// minimum: a resample of all would have the minimum itself in it two times in three, and its
    /// interval would be too narrow (Bickel, Goetze and van Zwet 1997).
    fn drawn_at_once(self, blocks: usize) -> usize {
        let is_minimum = match self {
            Estimator::Minimum => true,
            Estimator::LowestDecile => blocks <= 10,
            Estimator::LowestQuartile => blocks <= 4,
            _ => false,
        };
        if is_minimum { blocks.div_ceil(2) } else { blocks }
    }

    /// Returns the ratio of two costs.
    fn ratio(self, own: &[f64], other: &[f64]) -> Option<f64> {
        if own.is_empty() || other.is_empty() {
            return None;
        }
        let of = |cost: fn(&[f64]) -> f64| (cost(own), cost(other));
        let (own, other) = match self {
            Estimator::Median => of(median),
            Estimator::Mean => of(mean),
            Estimator::LowestQuartile => of(|costs| nth_of(costs, costs.len().div_ceil(4))),
            Estimator::LowestDecile => of(lowest_decile),
            Estimator::Minimum => of(minimum),
            Estimator::OfRatios => {
                let ratios: Vec<f64> =
                    own.iter().zip(other).map(|(own, other)| own / other).collect();
                (median(&ratios), 1.0)
            }
        };
        (other > 0.0).then(|| own / other)
    }
}

// A cost in comparison with tokio's.

/// A cost relative to tokio's in the same turns, as part of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToTokio {
    /// The ratio of the medians.
    pub tokio_ratio: Option<f64>,
    /// The ratio of the lowest deciles; older records have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokio_decile: Option<Estimate>,
}

impl ToTokio {
    /// Compares the costs of each round; nothing without rounds of tokio.
    pub(crate) fn of(own: &[f64], tokio: &[f64]) -> ToTokio {
        let tokio_ratio = Some(median(own) / median(tokio)).filter(|_| median(tokio) > 0.0);
        ToTokio { tokio_ratio, tokio_decile: ratio(own, tokio) }
    }

    /// Returns the headline: from lowest deciles, or from medians in older records.
    pub(crate) fn headline(self) -> Option<f64> {
        self.tokio_decile.map(|ratio| ratio.value).or(self.tokio_ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_and_ends() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(
            (minimum(&[2.0, 1.0]), maximum(&[2.0, 1.0]), mean(&[2.0, 1.0])),
            (1.0, 2.0, 1.5)
        );
        assert_eq!(
            (minimum(&[]), maximum(&[]), mean(&[]), quantile(&[], 0.5)),
            (0.0, 0.0, 0.0, 0.0)
        );
        let ten: Vec<f64> = (0..=10).rev().map(f64::from).collect();
        assert_eq!(
            (quantile(&ten, 0.0), quantile(&ten, 0.9), quantile(&ten, 1.0)),
            (0.0, 9.0, 10.0)
        );
    }

    #[test]
    fn up_to_ten_blocks_the_lowest_decile_is_the_minimum() {
        let costs = |count: usize| -> Vec<f64> { (1..=count).rev().map(|n| n as f64).collect() };
        assert_eq!([0, 1, 5, 10, 11, 20, 21].map(|n| lowest_decile(&costs(n))), {
            [0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 3.0]
        });
    }

    #[test]
    fn the_interval_is_the_same_each_time_and_has_the_ratio_in_it() {
        let own = [1.1, 1.2, 9.0, 1.15, 1.12];
        let other = [1.0, 1.1, 8.0, 1.02, 3.0];
        let found = ratio(&own, &other).unwrap();
        assert_eq!(Some(found), ratio(&own, &other));
        assert_eq!(found.value, 1.1);
        assert!(found.low <= found.value && found.value <= found.high && found.low < found.high);
        assert!(found.high < 1.3, "no block that was disturbed counts: {found:?}");
    }

    #[test]
    fn without_blocks_there_is_no_ratio_and_with_one_no_spread() {
        assert_eq!(
            (ratio(&[], &[1.0]), ratio(&[1.0], &[]), ratio(&[1.0], &[0.0])),
            (None, None, None)
        );
        assert_eq!(ratio(&[3.0], &[2.0]), Some(Estimate { value: 1.5, low: 1.5, high: 1.5 }));
        assert!(ratio(&[1.0, 1.1, 1.2], &[1.0]).is_some());
    }

    #[test]
    fn ratios_of_a_turn_are_compared_within_it() {
        let of = |estimator: Estimator| estimator.ratio(&[2.0, 30.0, 5.0], &[1.0, 10.0, 5.0]);
        assert_eq!((of(Estimator::OfRatios), of(Estimator::Median)), (Some(2.0), Some(1.0)));
        assert_eq!(of(Estimator::Minimum), Some(2.0));
    }

    #[test]
    fn ratios_need_tokio() {
        let ratios = ToTokio::of(&[60.0, 40.0, 90.0], &[120.0, 100.0, 130.0]);
        assert_eq!(ratios.tokio_ratio, Some(0.5));
        assert_eq!(ratios.headline(), Some(0.4));
        assert_eq!(ToTokio::of(&[60.0], &[]), ToTokio::default());
    }
}
