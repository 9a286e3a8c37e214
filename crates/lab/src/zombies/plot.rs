//! The plots of `superpoll-lab zombies`: processor time of a request, over the number of
//! connections.

use crate::plot::{self, Plot};
use crate::zombies::Row;

/// A curve for each server of a family; none if only one number of zombies was measured.
pub(crate) fn over_zombies(rows: &[Row], family: &str) -> Option<Plot> {
    let own: Vec<(String, &Row)> =
        rows.iter().filter(|row| row.family == family).map(|row| (name(row), row)).collect();
    let active = own.first()?.1.active;
    let mut plot = Plot {
        title: format!("{family}: {active} connections ask, the others have asked once"),
        // A logarithmic axis has no room for zero zombies.
        x_label: "connections".to_owned(),
        y_label: "cpu ns per request of the server's processes".to_owned(),
        curves: plot::curves(&own, |(name, row)| {
            let connections = (row.active + row.zombies) as f64;
            Some((name.as_str(), (connections, row.figures.cpu_ns_per_request_median)))
        }),
        ..Plot::default()
    };
    for curve in &mut plot.curves {
        curve.thin = own.iter().any(|(name, row)| *name == curve.name && row.workers > 1);
    }
    plot.drawn_over_powers_of_ten()
}

/// Several processes count as another server: each has fewer requests at a time.
fn name(row: &Row) -> String {
    match row.workers {
        0 | 1 => row.subject.clone(),
        workers => format!("{}, {workers} processes", row.subject),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::turns::Figures;

    #[test]
    fn a_family_is_drawn_over_all_connections() {
        let row = |family: &str, zombies, cpu_ns_per_request_median| Row {
            subject: "raw-epoll".to_owned(),
            family: family.to_owned(),
            active: 10,
            zombies,
            figures: Figures { cpu_ns_per_request_median, ..Figures::default() },
            ..Row::default()
        };
        let rows = [row("echo", 0, 5000.0), row("echo", 990, 5100.0), row("web", 0, 9000.0)];
        let plot = over_zombies(&rows, "echo").unwrap();
        assert_eq!(plot.curves[0].points, [(1.0, 5000.0), (3.0, 5100.0)]);
        assert!(plot.svg().unwrap().contains("connections"));
        let shared = |zombies| Row { workers: 6, ..row("echo", zombies, 7000.0) };
        let all = [&rows[..], &[shared(0), shared(102_400)]].concat();
        let curves = over_zombies(&all, "echo").unwrap().curves;
        assert_eq!((curves[1].name.as_str(), curves[1].thin), ("raw-epoll, 6 processes", true));
        assert!(!curves[0].thin && curves[0].points.len() == 2 && curves[1].points.len() == 2);
        assert!(over_zombies(&rows, "web").is_none() && over_zombies(&rows, "other").is_none());
    }
}
