//! The plot of `superpoll-lab herd`: the time of a `connect` over the number of waiters.

use crate::herd::Row;
use crate::plot::{self, Plot};

/// With duplicates of the listener, or with duplicates of a pipe; none if there is only one size.
pub(crate) fn over_processes(rows: &[Row], dups_of: &str) -> Option<Plot> {
    let dups = rows.first()?.dups;
    let title = match dups {
        0 => "connect() while others wait".to_owned(),
        _ => format!("connect() while others wait, each for {dups} duplicates of a {dups_of}"),
    };
    plot::over_powers_of_ten(title, ["waiting processes", "ns"], rows, |row| {
        let point = (row.processes as f64, row.connect_ns_median);
        (row.dups_of == dups_of).then_some((row.subject.as_str(), point))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn herds_of_several_sizes_are_drawn() {
        let row = |processes, connect_ns_median| Row {
            subject: "poll".to_owned(),
            processes,
            dups_of: "listener".to_owned(),
            connect_ns_median,
            ..Row::default()
        };
        let rows = [row(1, 20_000.0), row(1000, 4_000_000.0)];
        let plot = over_processes(&rows, "listener").unwrap();
        assert_eq!(plot.curves[0].points, [(0.0, 20_000.0), (3.0, 4_000_000.0)]);
        assert!(plot.svg().unwrap().contains("waiting processes"));
        assert!(over_processes(&rows, "pipe").is_none());
        assert!(over_processes(&rows[..1], "listener").is_none());
    }
}
