//! The plots of `superpoll-lab atr --latency` and `superpoll-lab mix --latency`: wake-ups over the
//! number of descriptors.

use crate::latency::Row;
use crate::plot::{self, Plot};

/// Plots two curves for each subject, the median and, thin, the 99th percentile; `None` if there is
/// one size only.
pub(crate) fn over_total(name: &str, rows: &[&Row]) -> Option<Plot> {
    let at = |of: fn(&Row) -> f64| {
        plot::curves(rows, |row| Some((row.subject.as_str(), (row.total as f64, of(row)))))
    };
    let (medians, mut tails) = (at(|row| row.times.wake_ns_p50), at(|row| row.wake_ns_p99));
    for tail in &mut tails {
        tail.thin = true;
    }
    let named = |percentile: &str, mut curves: Vec<plot::Curve>| {
        for curve in &mut curves {
            curve.name = format!("{}, {percentile}", curve.name);
        }
        curves
    };
    let curves = [named("p50", medians), named("p99", tails)].concat();
    Plot::of(
        format!("from a write until a blocked loop has read it ({name})"),
        "descriptors",
        "ns",
        curves,
    )
    .drawn_over_powers_of_ten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waking::Times;

    #[test]
    fn each_subject_has_its_median_and_its_tail_in_one_colour() {
        let row = |subject: &str, total, p50, p99| Row {
            subject: subject.to_owned(),
            total,
            times: Times { wake_ns_p50: p50, ..Times::default() },
            wake_ns_p99: p99,
            ..Row::default()
        };
        let rows = [
            row("poll", 1000, 50.0, 90.0),
            row("poll", 10, 5.0, 9.0),
            row("epoll-lt", 10, 4.0, 8.0),
            row("epoll-lt", 1000, 4.0, 8.0),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let plot = over_total("pipe mixed", &rows).unwrap();
        let names: Vec<&str> = plot.curves.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names, ["poll, p50", "epoll-lt, p50", "poll, p99", "epoll-lt, p99"]);
        assert_eq!(plot.curves[2].points, [(1.0, 9.0), (3.0, 90.0)]);
        assert_eq!(plot.curves[2].colour, plot.curves[0].colour);
        assert!(plot.curves[2].thin && !plot.curves[0].thin);
        assert!(over_total("pipe mixed", &rows[1..3]).is_none());
    }
}
