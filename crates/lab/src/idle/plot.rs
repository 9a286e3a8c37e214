//! The plot of `superpoll-lab idle`: bars of user memory per connection, on a logarithmic scale.

use crate::idle::Row;
use crate::plot;

/// A bar for each row.
pub(crate) fn bars(rows: &[Row]) -> String {
    // From 16 bytes to 256 KiB.
    let share = |bytes: f64| ((bytes.max(16.0).log2() - 4.0) / 14.0).min(1.0);
    let heading = "user memory of an idle connection, in bytes (logarithmic)";
    let bars = rows.iter().map(|row| {
        let bytes = row.user_bytes_per_connection.median;
        (format!("{}, {}", row.subject, row.arrival), share(bytes), bytes)
    });
    plot::bars(heading, 250.0, bars)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idle::Spread;

    #[test]
    fn each_row_has_a_bar_with_its_figure() {
        let row = |subject: &str, median| Row {
            subject: subject.to_owned(),
            arrival: "burst".to_owned(),
            user_bytes_per_connection: Spread { median, ..Spread::default() },
            ..Row::default()
        };
        let svg = bars(&[row("superpoll-tls", 9000.0), row("raw-epoll", 0.0)]);
        assert!(svg.starts_with("<svg") && svg.matches("<rect").count() == 2);
        assert!(svg.contains(">9000<") && svg.contains("width=\"0.0\""), "{svg}");
    }
}
