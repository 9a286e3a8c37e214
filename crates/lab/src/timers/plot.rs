//! The plot of `superpoll-lab timers`: the cost of a timer over the number of timers.

use crate::plot::{self, Plot};
use crate::timers::Row;

/// A curve for each runtime and order in which all are cancelled; none if there is only one number.
pub(crate) fn over_timers(rows: &[Row]) -> Option<Plot> {
    let named: Vec<(String, &Row)> = rows
        .iter()
        .filter(|row| row.insert_ns_median.is_some())
        .map(|row| (format!("{}, {}", row.subject, row.load), row))
        .collect();
    let labels = ["timers at a time", "cpu ns for each"];
    plot::over_powers_of_ten("timers set and taken back", labels, &named, |(name, row)| {
        Some((name.as_str(), (row.timers as f64, row.timer_ns_median)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_numbers_of_timers_are_drawn() {
        let row = |timers, timer_ns_median| Row {
            subject: "tokio".to_owned(),
            load: "shuffled".to_owned(),
            timers,
            timer_ns_median,
            insert_ns_median: Some(1.0),
            ..Row::default()
        };
        let rows = [row(10, 90.0), row(1000, 120.0)];
        let plot = over_timers(&rows).unwrap();
        assert_eq!(plot.curves[0].points, [(1.0, 90.0), (3.0, 120.0)]);
        assert!(plot.svg().unwrap().contains("tokio, shuffled"));
        assert!(over_timers(&rows[..1]).is_none());
    }
}
