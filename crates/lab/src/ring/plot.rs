//! The plots of `superpoll-lab ring`: time per hop over the number of pipes, and over the share of them that has a
//! byte; bars where there is one point only.

use std::fmt::Write as _;

use crate::plot::{self, Plot};
use crate::ring::Row;
use crate::ring::table::{self, points};

/// Time per hop over the number of pipes, for the number of bytes in flight that was measured first.
pub fn over_total(rows: &[Row]) -> Option<Plot> {
    let bytes = rows.first()?.in_flight;
    let plot = Plot {
        title: table::bytes(bytes),
        x_label: "pipes".to_owned(),
        y_label: "ns per hop".to_owned(),
        curves: plot::curves(rows, |row| {
            let point = (row.total as f64, row.ns_per_hop_median);
            (row.in_flight == bytes).then_some((row.subject.as_str(), point))
        }),
        ..Plot::default()
    };
    plot.is_worth_drawing().then(|| plot.over_powers_of_ten())
}

/// Time per hop over the share of pipes with a byte, for the number of pipes that was measured first.
pub fn over_share(rows: &[Row]) -> Option<Plot> {
    let total = rows.first()?.total;
    let plot = Plot {
        title: format!("{total} pipes"),
        x_label: "bytes in flight / pipes".to_owned(),
        y_label: "ns per hop".to_owned(),
        curves: plot::curves(rows, |row| {
            let point = (row.in_flight as f64 / total as f64, row.ns_per_hop_median);
            (row.total == total).then_some((row.subject.as_str(), point))
        }),
        ..Plot::default()
    };
    plot.is_worth_drawing().then_some(plot)
}

/// The first point as bars.
pub fn bars(rows: &[Row]) -> String {
    const LEFT: f64 = 190.0;
    const WIDTH: f64 = 560.0;
    let all = points(rows);
    let Some(((total, in_flight), rows)) = all.first() else { return String::new() };
    let most = rows.iter().map(|row| row.ns_per_hop_median).fold(0.0, f64::max).max(1.0);
    // Of a back-end that looks at every pipe again and again one bar would dwarf all others.
    let usual = crate::statistics::median(
        &rows.iter().map(|row| row.ns_per_hop_median).collect::<Vec<_>>(),
    );
    let full = most.min(usual * 4.0).max(1.0);
    let mut body = format!(
        "<text x=\"20\" y=\"22\" font-size=\"15\">ns per hop, {}</text>\n",
        table::name(*total, *in_flight)
    );
    let mut y = 40.0;
    for row in rows {
        let width = row.ns_per_hop_median.min(full) / full * WIDTH;
        let colour = if row.subject.starts_with("superpoll") { "#2a9d4a" } else { "#2f7ed8" };
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{LEFT}\" y=\"{y}\" \
             width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{}\">{:.0}</text>",
            LEFT - 8.0,
            y + 11.0,
            row.subject,
            LEFT + width + 6.0,
            y + 11.0,
            row.ns_per_hop_median
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

    fn row(subject: &str, total: usize, in_flight: usize, ns_per_hop_median: f64) -> Row {
        Row { subject: subject.to_owned(), total, in_flight, ns_per_hop_median, ..Row::default() }
    }

    #[test]
    fn curves_need_several_points_and_bars_only_one() {
        let one = [row("tokio", 100, 1, 2000.0), row("superpoll-rt-poll", 100, 1, 90_000.0)];
        assert!(over_total(&one).is_none() && over_share(&one).is_none());
        let svg = bars(&one);
        assert!(svg.starts_with("<svg") && svg.contains("90000") && svg.contains("tokio"));
        assert_eq!(bars(&[]), "");
        let mut more = one.to_vec();
        more.push(row("tokio", 1000, 1, 2100.0));
        more.push(row("tokio", 100, 50, 1500.0));
        let total = over_total(&more).unwrap();
        assert_eq!(total.curves[0].points, [(2.0, 2000.0), (3.0, 2100.0)]);
        assert_eq!(total.x_range, 2.0..3.0);
        let share = over_share(&more).unwrap();
        assert_eq!(share.curves[0].points, [(0.01, 2000.0), (0.5, 1500.0)]);
        assert!(
            total.svg().unwrap().contains("pipes") && share.svg().unwrap().contains("in flight")
        );
    }
}
