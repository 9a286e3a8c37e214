//! The plots of `superpoll-lab threads`: threads against the best event loop, over the ratio of
//! active to all, and the cost of an event for each subject.

use crate::plot::{self, Curve, Plot};
use crate::statistics::break_even;
use crate::threads::subject::THREADS;
use crate::threads::table::ACCOUNTS;
use crate::threads::{Row, sweeps};

/// Threads against the best loop, by both accounts, for each sweep: where a curve is below one,
/// threads win. None if there is only one point.
pub(crate) fn ratios(rows: &[Row]) -> Option<Plot> {
    let mut curves = Vec::new();
    let mut marks = Vec::new();
    for (name, rows) in sweeps(rows) {
        for (number, account) in ACCOUNTS.iter().enumerate() {
            let points = account.curve(&rows);
            if let Some(at) = break_even(&points) {
                marks.push((at, format!("{at:.2}")));
            }
            let (colour, thin) = (curves.len(), number > 0);
            curves.push(Curve { name: format!("{name}: {}", account.name), points, colour, thin });
        }
    }
    let plot = Plot {
        title: "a thread for each descriptor / the best loop over events".to_owned(),
        y_label: "threads / events (below 1: threads win)".to_owned(),
        curves,
        break_even: true,
        marks,
        ..Plot::default()
    };
    plot.drawn()
}

/// Processor time for an event, for each subject and including the writer's share; none if there is
/// only one point.
pub(crate) fn costs(name: &str, rows: &[&Row]) -> Option<Plot> {
    let curves =
        plot::curves(rows, |row| Some((row.subject.as_str(), (row.atr(), row.cost_ns_per_event))));
    Plot::of(
        format!("processor time for an event ({name})"),
        "active / total",
        "ns, writer's share included",
        curves,
    )
    .drawn()
}

/// Time on the clock for an event, for each subject; none if there is only one point.
pub(crate) fn clocks(name: &str, rows: &[&Row]) -> Option<Plot> {
    let curves = plot::curves(rows, |row| {
        let event = row.clock_ns_per_round / row.active.max(1) as f64;
        Some((row.subject.as_str(), (row.atr(), event)))
    });
    Plot::of(
        format!("time on the clock for an event ({name})"),
        "active / total",
        "ns per event",
        curves,
    )
    .drawn()
}

/// Whether a row belongs to the subject of the hypothesis, a thread for each descriptor.
pub(super) fn is_threads(row: &&&Row) -> bool {
    row.subject == THREADS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn break_even_is_marked_where_a_curve_comes_down() {
        let row = |subject: &str, active, clock_ratio, cost_ratio| Row {
            kind: "pipe".to_owned(),
            total: 10,
            active,
            subject: subject.to_owned(),
            clock_ns_per_round: 1000.0,
            cost_ns_per_event: 500.0,
            clock_ratio: Some(clock_ratio),
            cost_ratio: Some(cost_ratio),
            ..Row::default()
        };
        let rows = [
            row(THREADS, 1, 2.0, 4.0),
            row(THREADS, 6, 1.5, 3.0),
            row(THREADS, 10, 0.5, 2.0),
            row("raw-poll", 1, 1.0, 1.0),
            row("raw-poll", 10, 1.0, 1.0),
        ];
        let plot = ratios(&rows).unwrap();
        assert_eq!(plot.curves.len(), 2);
        assert_eq!(plot.curves[1].points, [(0.1, 4.0), (0.6, 3.0), (1.0, 2.0)]);
        assert_eq!(plot.marks, [(0.8, "0.80".to_owned())]);
        assert!(plot.svg().unwrap().contains("threads win"));
        assert!(ratios(&rows[..1]).is_none());
        let refs: Vec<&Row> = rows.iter().collect();
        assert_eq!(clocks("x", &refs).unwrap().curves[0].points[2], (1.0, 100.0));
        assert_eq!(costs("x", &refs).unwrap().curves.len(), 2);
    }
}
