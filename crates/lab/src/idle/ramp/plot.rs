//! The plot of `superpoll-lab idle --ramp`: memory over the number of connections.

use crate::idle::ramp::Row;
use crate::plot::{self, Curve, Plot};

/// Two curves for each kind of connection: the server's own memory and, in thin lines, the decrease
/// of the machine's memory. None if there was only one step.
pub(crate) fn over_connections(rows: &[Row]) -> Option<Plot> {
    let curves = |of: fn(&Row) -> f64, what: &str, thin: bool| -> Vec<Curve> {
        let mebibytes = |row: &Row| of(row) * row.connections as f64 / f64::from(1 << 20);
        // A logarithmic axis has no room for negative values, which appear if other processes gave
        // memory back.
        let curves = plot::curves(rows, |row| {
            let point = (row.connections as f64, mebibytes(row));
            (point.1 > 0.0).then_some((row.subject.as_str(), point))
        });
        let named = |curve: Curve| Curve { name: format!("{}, {what}", curve.name), thin, ..curve };
        curves.into_iter().map(named).collect()
    };
    let curves = [
        curves(|row| row.user_bytes_per_connection, "its own", false),
        curves(|row| row.machine_bytes_per_connection, "machine", true),
    ]
    .concat();
    Plot::of("memory of idle connections".to_owned(), "connections", "MiB", curves)
        .drawn_over_powers_of_ten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_drawn_over_all_connections_without_negative_values() {
        let row = |connections, user, machine| Row {
            subject: "ours".to_owned(),
            connections,
            user_bytes_per_connection: user,
            machine_bytes_per_connection: machine,
            ..Row::default()
        };
        let rows = [row(1 << 10, 1024.0, -5.0), row(1 << 11, 512.0, 2048.0)];
        let plot = over_connections(&rows).unwrap();
        assert_eq!(
            (plot.curves[0].name.as_str(), plot.curves[0].points.len()),
            ("ours, its own", 2)
        );
        assert_eq!((plot.curves[0].points[0].1, plot.curves[1].points.len()), (1.0, 1));
        assert!(over_connections(&rows[..1]).is_none());
    }
}
