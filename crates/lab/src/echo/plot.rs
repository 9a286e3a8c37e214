//! The plots of `superpoll-lab echo`: processor time of a request, over the number of connections.

use crate::echo::Row;
use crate::grouping;
use crate::plot::{self, Plot};

/// Plots a curve for each server, for one kind of sockets; `None` if only one number of connections
/// was measured.
pub(crate) fn over_connections(rows: &[Row], kind: &str) -> Option<Plot> {
    let own: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
    let title = format!("one request under way on each connection, {kind}");
    plot::over_powers_of_ten(title, ["connections", "server's cpu ns per request"], &own, |row| {
        let time = row.figures.cpu_ns_per_request_median;
        Some((row.subject.as_str(), (row.connections as f64, time)))
    })
}

/// Returns the kinds of sockets, in the order of their rows.
pub(crate) fn kinds(rows: &[Row]) -> Vec<&str> {
    grouping::distinct(rows.iter().map(|row| row.kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::turns::Figures;

    #[test]
    fn several_numbers_of_connections_are_drawn_for_each_kind() {
        let row = |kind: &str, connections, cpu_ns_per_request_median| Row {
            subject: "raw-epoll".to_owned(),
            kind: kind.to_owned(),
            connections,
            figures: Figures { cpu_ns_per_request_median, ..Figures::default() },
            ..Row::default()
        };
        let rows = [row("tcp", 1, 9000.0), row("tcp", 100, 7000.0), row("unix", 1, 3000.0)];
        assert_eq!(kinds(&rows), ["tcp", "unix"]);
        let plot = over_connections(&rows, "tcp").unwrap();
        assert_eq!(plot.curves[0].points, [(0.0, 9000.0), (2.0, 7000.0)]);
        assert!(plot.svg().unwrap().contains("connections"));
        assert!(over_connections(&rows, "unix").is_none());
    }
}
