//! The plot of `superpoll-lab idle`: bars of user memory by connection, on a logarithmic scale.

use std::fmt::Write as _;

use crate::idle::Row;

/// A bar for each row.
pub fn bars(rows: &[Row]) -> String {
    const LEFT: f64 = 250.0;
    const WIDTH: f64 = 540.0;
    // From 16 bytes to 256 KiB.
    let share = |bytes: f64| ((bytes.max(16.0).log2() - 4.0) / 14.0).min(1.0);
    let mut body =
        "<text x=\"20\" y=\"22\" font-size=\"15\">user memory of an idle connection, in bytes \
                    (logarithmic)</text>\n"
            .to_owned();
    let mut y = 40.0;
    for row in rows {
        let bytes = row.user_bytes_per_connection.median;
        let width = share(bytes) * WIDTH;
        let colour = if row.subject.starts_with("superpoll") { "#2a9d4a" } else { "#2f7ed8" };
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}, {}</text><rect x=\"{LEFT}\" y=\"{y}\" \
             width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{}\">{bytes:.0}</text>",
            LEFT - 8.0,
            y + 11.0,
            row.subject,
            row.arrival,
            LEFT + width + 6.0,
            y + 11.0,
        );
        y += 21.0;
    }
    format!(
        "<svg width=\"900\" height=\"{height}\" viewBox=\"0 0 900 {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"12\" \
         fill=\"currentColor\">\n{body}</svg>\n",
        height = y + 10.0
    )
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
