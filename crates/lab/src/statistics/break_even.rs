//! The point where two costs are equal.

use super::median;

/// Points within this factor of one count in the estimate of where a curve of ratios falls through
/// one.
const NEAR: f64 = 4.0;

/// Returns where a falling curve of ratios over a share (ascending, above zero) falls through one;
/// `None` if it does not do so between its first and its last point.
///
/// Such curves are nearly flat there, so that between two points a little noise would move the
/// result far. With four points or more near one, the result is where the line through their
/// logarithms is one, by the estimator of Theil and Sen (the median of all slopes, Sen 1968), which
/// tolerates one outlier of any size in four points.
pub(crate) fn break_even(points: &[(f64, f64)]) -> Option<f64> {
    let near: Vec<(f64, f64)> = points
        .iter()
        .filter(|(x, y)| *x > 0.0 && (1.0 / NEAR..=NEAR).contains(y))
        .map(|(x, y)| (x.ln(), y.ln()))
        .collect();
    if near.len() < 4 {
        return crossing(points, 1.0);
    }
    let pairs =
        near.iter().enumerate().flat_map(|(n, a)| near[n + 1..].iter().map(move |b| (a, b)));
    let slopes: Vec<f64> = pairs.map(|(a, b)| (b.1 - a.1) / (b.0 - a.0)).collect();
    let slope = median(&slopes);
    let heights: Vec<f64> = near.iter().map(|(x, y)| y - slope * x).collect();
    let at = (-median(&heights) / slope).exp();
    let (first, last) = (points.first()?.0, points.last()?.0);
    (slope < 0.0 && (first..=last).contains(&at)).then_some(at)
}

/// Returns where a curve of points with ascending `x` last falls through `level`, on a straight
/// line between two points; `None` if it ends above the level or was never above it.
///
/// The last time, because noise may make a curve touch the level more than once, and from there on
/// it stays below.
fn crossing(points: &[(f64, f64)], level: f64) -> Option<f64> {
    let above = points.iter().rposition(|&(_, y)| y > level)?;
    let (&(x0, y0), &(x1, y1)) = (&points[above], points.get(above + 1)?);
    Some(x0 + (x1 - x0) * (y0 - level) / (y0 - y1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crossing_lies_on_the_line_between_its_neighbours() {
        assert_eq!(crossing(&[(0.0, 3.0), (0.5, 2.0), (1.0, 0.0)], 1.0), Some(0.75));
        let twice = crossing(&[(0.0, 3.0), (0.2, 0.9), (0.4, 1.1), (0.5, 0.9)], 1.0).unwrap();
        assert!((twice - 0.45).abs() < 1e-9, "{twice}");
        assert_eq!(crossing(&[(0.0, 3.0), (1.0, 1.5)], 1.0), None);
        assert_eq!(crossing(&[(0.0, 0.5), (1.0, 0.2)], 1.0), None);
        assert_eq!(crossing(&[(0.0, 2.0), (1.0, 1.0)], 1.0), Some(1.0));
        assert_eq!(crossing(&[], 1.0), None);
    }

    #[test]
    fn a_break_even_does_not_hang_on_single_points() {
        let falls = |x: f64| (0.6 / x).powf(0.7);
        let mut points: Vec<(f64, f64)> =
            (0..=10).map(|n| f64::from(n.max(1)) / 10.0).map(|x| (x, falls(x))).collect();
        points.dedup_by_key(|point| point.0);
        let near = |points: &[(f64, f64)], at: f64| {
            let found = break_even(points).unwrap();
            assert!((found - at).abs() < 0.02, "{found}");
        };
        near(&points, 0.6);
        // The last crossing would be near 1.
        points[8].1 = 1.2;
        near(&points, 0.6);
        let all_above: Vec<_> = points.iter().map(|&(x, y)| (x, y + 1.0)).collect();
        assert_eq!(break_even(&all_above), None);
        let rises: Vec<_> = points.iter().map(|&(x, y)| (x, 1.0 / y)).collect();
        assert_eq!(break_even(&rises), None);
        assert_eq!(break_even(&[(0.0, 3.0), (0.5, 2.0), (1.0, 0.0)]), Some(0.75));
        assert_eq!(break_even(&[]), None);
    }
}
