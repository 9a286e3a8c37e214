//! The plots of `superpoll-lab files`: processor time of a request over the length of the file.

use crate::files::Row;
use crate::plot::{self, Plot};

/// Returns the numbers of connections that were measured, in their order.
pub(crate) fn connections(rows: &[Row]) -> Vec<usize> {
    crate::grouping::distinct(rows.iter().map(|row| row.connections))
}

/// Plots a curve for each server with this number of connections; `None` if only one file was
/// measured.
pub(crate) fn over_bytes(rows: &[Row], connections: usize) -> Option<Plot> {
    let own: Vec<&Row> = rows.iter().filter(|row| row.connections == connections).collect();
    let title = format!("files: {connections} connections");
    plot::over_powers_of_ten(title, ["bytes", "server's cpu us per request"], &own, |row| {
        let time = row.figures.cpu_ns_per_request_median / 1e3;
        Some((row.subject.as_str(), (row.bytes as f64, time)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::turns::Figures;

    #[test]
    fn several_lengths_are_drawn() {
        let row = |bytes, connections, cpu_ns_per_request_median| Row {
            subject: "nginx".to_owned(),
            bytes,
            connections,
            figures: Figures { cpu_ns_per_request_median, ..Figures::default() },
            ..Row::default()
        };
        let rows = [row(10, 64, 9000.0), row(1000, 64, 7000.0), row(10, 1, 5000.0)];
        assert_eq!(connections(&rows), [64, 1]);
        let plot = over_bytes(&rows, 64).unwrap();
        assert_eq!(plot.curves[0].points, [(1.0, 9.0), (3.0, 7.0)]);
        assert!(plot.svg().unwrap().contains("bytes"));
        assert!(over_bytes(&rows, 1).is_none());
    }
}
