//! The plot of `superpoll-lab http`: processor time of a request over the number of connections.

use crate::http::Row;
use crate::plot::{self, Plot};

/// Plots a curve for each server; `None` if only one number of connections was measured.
pub(crate) fn over_connections(rows: &[Row]) -> Option<Plot> {
    let labels = ["connections", "server's cpu ns per request"];
    plot::over_powers_of_ten("one request in flight on each connection", labels, rows, |row| {
        let time = row.figures.cpu_ns_per_request_median;
        Some((row.subject.as_str(), (row.connections as f64, time)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::turns::Figures;

    #[test]
    fn several_numbers_of_connections_are_drawn() {
        let row = |connections, cpu_ns_per_request_median| Row {
            subject: "tokio".to_owned(),
            connections,
            figures: Figures { cpu_ns_per_request_median, ..Figures::default() },
            ..Row::default()
        };
        let rows = [row(1, 9000.0), row(100, 7000.0)];
        let plot = over_connections(&rows).unwrap();
        assert_eq!(plot.curves[0].points, [(0.0, 9000.0), (2.0, 7000.0)]);
        assert!(plot.svg().unwrap().contains("connections"));
        assert!(over_connections(&rows[..1]).is_none());
    }
}
