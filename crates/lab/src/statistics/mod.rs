//! Figures from samples: quantiles here, the ratio of two costs and its confidence interval in
//! `estimate.rs`, the place where two curves meet in `break_even.rs`.
//!
//! `simulation.rs` is the reason for the choice of the estimator: it plants a difference under
//! noise like that of a shared machine and shows how far each estimator is from it.

mod break_even;
mod estimate;
mod simulation;
mod to_tokio;

pub(crate) use break_even::break_even;
pub(crate) use estimate::{Estimate, Ratio, lowest_decile, ratio};
pub(crate) use simulation::{Options, run};
pub(crate) use to_tokio::{ToTokio, ratios};

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
}
