//! The plots of `lab zombies`: processor time of a request, over the number of connections.

use crate::plot::{self, Plot};
use crate::zombies::Row;

/// A curve for each server of a family; none if only one number of zombies was measured.
pub fn over_zombies(rows: &[Row], family: &str) -> Option<Plot> {
    let own: Vec<&Row> = rows.iter().filter(|row| row.family == family).collect();
    let active = own.first()?.active;
    let plot = Plot {
        title: format!("{family}: {active} connections ask, the others have asked once"),
        // A logarithmic axis has no place for no zombies.
        x_label: "connections".to_owned(),
        y_label: "server's cpu ns per request".to_owned(),
        curves: plot::curves(&own, |row| {
            let connections = (row.active + row.zombies) as f64;
            Some((row.subject.as_str(), (connections, row.cpu_ns_per_request_median)))
        }),
        ..Plot::default()
    };
    plot.is_worth_drawing().then(|| plot.over_powers_of_ten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_drawn_over_all_connections() {
        let row = |family: &str, zombies, cpu_ns_per_request_median| Row {
            subject: "raw-epoll".to_owned(),
            family: family.to_owned(),
            active: 10,
            zombies,
            cpu_ns_per_request_median,
            ..Row::default()
        };
        let rows = [row("echo", 0, 5000.0), row("echo", 990, 5100.0), row("web", 0, 9000.0)];
        let plot = over_zombies(&rows, "echo").unwrap();
        assert_eq!(plot.curves[0].points, [(1.0, 5000.0), (3.0, 5100.0)]);
        assert!(plot.svg().unwrap().contains("connections"));
        assert!(over_zombies(&rows, "web").is_none() && over_zombies(&rows, "other").is_none());
    }
}
