//! The plots of `superpoll-lab ring`: time per hop over the number of pipes, and over the share of
//! them that has a byte; bars where there is only one point.

use crate::plot::{self, Plot};
use crate::ring::Row;
use crate::ring::table::{self, points};

/// Time per hop over the number of pipes, for the first measured number of bytes in flight.
pub(crate) fn over_total(rows: &[Row]) -> Option<Plot> {
    let bytes = rows.first()?.in_flight;
    plot::over_powers_of_ten(table::bytes(bytes), ["pipes", "ns per hop"], rows, |row| {
        let point = (row.total as f64, row.ns_per_hop_median);
        (row.in_flight == bytes).then_some((row.subject.as_str(), point))
    })
}

/// Time per hop over the share of pipes with a byte, for the first measured number of pipes.
pub(crate) fn over_share(rows: &[Row]) -> Option<Plot> {
    let total = rows.first()?.total;
    let curves = plot::curves(rows, |row| {
        let point = (row.in_flight as f64 / total as f64, row.ns_per_hop_median);
        (row.total == total).then_some((row.subject.as_str(), point))
    });
    Plot::of(format!("{total} pipes"), "bytes in flight / pipes", "ns per hop", curves).drawn()
}

/// The first point as bars.
pub(crate) fn bars(rows: &[Row]) -> String {
    let all = points(rows);
    let Some(((total, in_flight), rows)) = all.first() else { return String::new() };
    let times: Vec<f64> = rows.iter().map(|row| row.ns_per_hop_median).collect();
    // The bar of a back-end that checks every pipe again and again would dwarf the rest.
    let most =
        crate::statistics::maximum(&times).min(crate::statistics::median(&times) * 4.0).max(1.0);
    let bars = rows.iter().map(|row| {
        let time = row.ns_per_hop_median;
        (row.subject.clone(), time.min(most) / most, time)
    });
    plot::bars(&format!("ns per hop, {}", table::name(*total, *in_flight)), 190.0, bars)
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
