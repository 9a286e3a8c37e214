//! A cost in comparison with tokio's.

use serde::{Deserialize, Serialize};

use super::{Estimate, median, minimum, ratio};

/// A cost relative to tokio's in the same turns, as part of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToTokio {
    /// The ratio of the medians.
    pub tokio_ratio: Option<f64>,
    /// The ratio of the cheapest rounds.
    pub tokio_ratio_min: Option<f64>,
    /// The ratio of the lowest deciles; older records have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokio_decile: Option<Estimate>,
}

impl ToTokio {
    /// Compares the costs of each round; nothing without rounds of tokio.
    pub(crate) fn of(own: &[f64], tokio: &[f64]) -> ToTokio {
        let (tokio_ratio, tokio_ratio_min, tokio_decile) = ratios(own, tokio);
        ToTokio { tokio_ratio, tokio_ratio_min, tokio_decile }
    }

    /// Returns the headline: from lowest deciles, or from medians in older records.
    pub(crate) fn headline(self) -> Option<f64> {
        self.tokio_decile.map(|ratio| ratio.value).or(self.tokio_ratio)
    }
}

/// Returns the ratios of the medians, of the minima and of the lowest deciles of two costs.
pub(crate) fn ratios(own: &[f64], other: &[f64]) -> (Option<f64>, Option<f64>, Option<Estimate>) {
    let of = |figure: fn(&[f64]) -> f64| {
        Some(figure(own) / figure(other)).filter(|_| figure(other) > 0.0)
    };
    (of(median), of(minimum), ratio(own, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_need_tokio() {
        let ratios = ToTokio::of(&[60.0, 40.0, 90.0], &[120.0, 100.0, 130.0]);
        assert_eq!((ratios.tokio_ratio, ratios.tokio_ratio_min), (Some(0.5), Some(0.4)));
        assert_eq!(ratios.headline(), Some(0.4));
        assert_eq!(ToTokio::of(&[60.0], &[]), ToTokio::default());
    }
}
