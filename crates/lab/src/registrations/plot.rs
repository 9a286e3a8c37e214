//! The plots of `superpoll-lab registrations`: the cost of a registration over the size of the
//! batch.

use crate::plot::{self, Plot};
use crate::registrations::Row;

/// A curve for each registry, for one kind of descriptors; none if there is only one size of
/// batches.
pub(crate) fn over_batches(rows: &[Row], kind: &str) -> Option<Plot> {
    let own: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
    let plot = Plot {
        title: format!("registering and deregistering, {kind}"),
        x_label: "descriptors of a batch".to_owned(),
        y_label: "processor time / epoll_ctl".to_owned(),
        curves: plot::curves(&own, |row| {
            Some((row.subject.as_str(), (row.batch as f64, row.headline()?.value)))
        }),
        break_even: true,
        ..Plot::default()
    };
    plot.drawn_over_powers_of_ten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_plot() {
        let row = |kind: &str, batch, ratio| Row {
            kind: kind.to_owned(),
            subject: "uring".to_owned(),
            batch,
            ratio: Some(ratio),
            ..Row::default()
        };
        let rows = [row("pipe", 1, 0.9), row("pipe", 100, 0.5), row("tcp", 1, 0.8)];
        let plot = over_batches(&rows, "pipe").unwrap();
        assert_eq!(plot.curves[0].points, [(0.0, 0.9), (2.0, 0.5)]);
        assert!(plot.svg().unwrap().contains("uring"));
        assert!(over_batches(&rows, "tcp").is_none());
    }
}
