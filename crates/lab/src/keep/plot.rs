//! The plot of `superpoll-lab keep`: the cost for one descriptor to leave, over the size of the
//! batch.

use crate::keep::Row;
use crate::plot::{self, Plot};

/// A curve for each topology and side; none if only one size was measured.
pub(crate) fn over_batches(rows: &[Row]) -> Option<Plot> {
    let own: Vec<(String, (f64, f64))> = rows
        .iter()
        .filter(|row| row.part == "move" && row.median > 0.0)
        .map(|row| {
            let name = format!("{}: {}", row.subject, row.figure);
            (name, (row.descriptors as f64, row.median))
        })
        .collect();
    let (title, labels) =
        ("leaving for a keeper and coming back", ["descriptors together", "cpu ns for one"]);
    plot::over_powers_of_ten(title, labels, &own, |(name, at)| Some((name.as_str(), *at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_a_curve() {
        let row = |figure: &str, descriptors, median| Row {
            part: "move".to_owned(),
            subject: "thread".to_owned(),
            descriptors,
            figure: figure.to_owned(),
            median,
            ..Row::default()
        };
        let rows = [
            row("leave, main", 1, 3000.0),
            row("leave, main", 10, 900.0),
            row("leave, keeper", 1, 2000.0),
            row("leave, keeper", 10, 700.0),
        ];
        let plot = over_batches(&rows).unwrap();
        let names: Vec<&str> = plot.curves.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names, ["thread: leave, main", "thread: leave, keeper"]);
        assert_eq!(plot.curves[0].points, [(0.0, 3000.0), (1.0, 900.0)]);
        assert!(over_batches(&rows[..1]).is_none());
    }
}
