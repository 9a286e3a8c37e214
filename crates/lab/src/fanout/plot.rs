//! The plot of `superpoll-lab fanout`: bars of processor time for each message and subscriber.

use crate::fanout::Row;
use crate::plot;
use crate::statistics;

/// Returns a bar for each row.
pub(crate) fn bars(rows: &[Row]) -> String {
    let all: Vec<f64> = rows.iter().map(|row| row.cpu_ns_per_delivery_median).collect();
    let most = statistics::maximum(&all).max(1.0);
    let bars = rows.iter().map(|row| {
        let name = format!("{}, {} {}", row.subject, row.subscribers, row.transport);
        (name, row.cpu_ns_per_delivery_median / most, row.cpu_ns_per_delivery_median)
    });
    plot::bars("server's cpu ns for each message and subscriber", 260.0, bars)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_a_bar_with_its_figure() {
        let row = |subject: &str, cpu_ns_per_delivery_median| Row {
            subject: subject.to_owned(),
            transport: "sse".to_owned(),
            cpu_ns_per_delivery_median,
            ..Row::default()
        };
        let svg = bars(&[row("superpoll-epoll", 6000.0), row("nchan", 12_000.0)]);
        assert!(svg.starts_with("<svg") && svg.matches("<rect").count() == 2);
        assert!(svg.contains(">6000<") && svg.contains("width=\"530.0\""), "{svg}");
    }
}
