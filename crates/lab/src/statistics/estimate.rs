//! The ratio of two costs from blocks that took turns, with a confidence interval.
//!
//! Interference only ever adds time: another process, an interrupt, a neighbour on the same host.
//! The cheapest blocks of a subject are those that were disturbed least, so the cost of a subject
//! is the lowest decile of its blocks, and the headline of a comparison is the ratio of two lowest
//! deciles. Up to ten blocks the lowest decile is the minimum. For a rate, where more is better,
//! the same holds for its inverse: take the ratio of the times.
//!
//! The interval of 90 % is a percentile bootstrap (Efron 1979): blocks are drawn with replacement,
//! a thousand times, and the ratio is computed each time. Blocks of the same turn are drawn
//! together, since interference that lasts hits both. The generator has a fixed seed, so the same
//! blocks always give the same interval.

use serde::{Deserialize, Serialize};

use super::{mean, median, minimum, quantile};
use crate::random::Random;

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
    pub(super) enum Estimator {
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
    pub(super) fn estimate(self, own: &[f64], other: &[f64], resamples: usize) -> Option<Estimate> {
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
    pub(super) fn ratio(self, own: &[f64], other: &[f64]) -> Option<f64> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
