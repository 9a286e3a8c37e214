//! The plot of `superpoll-lab relay`: processor time of each relay under each load, relative to
//! haproxy.

use crate::grouping::distinct;
use crate::plot::{self, Plot};
use crate::relay::Row;

/// A curve for each relay over the loads, in their order; none without haproxy or with one load.
pub(crate) fn over_loads(rows: &[Row]) -> Option<Plot> {
    let loads = distinct(rows.iter().map(|row| row.load.as_str()));
    let mut curves = plot::curves(rows, |row| {
        let load = loads.iter().position(|load| *load == row.load)?;
        Some((row.subject.as_str(), (load as f64 + 1.0, row.haproxy_ratio?.headline().value)))
    });
    for curve in &mut curves {
        curve.thin = curve.name.ends_with("-waits");
    }
    let numbered: Vec<String> =
        loads.iter().enumerate().map(|(number, load)| format!("{} {load}", number + 1)).collect();
    let plot = Plot {
        title: "relay: processor time / haproxy's".to_owned(),
        x_label: numbered.join(", "),
        x_range: 1.0..loads.len().max(2) as f64,
        y_label: "ratio".to_owned(),
        curves,
        break_even: true,
        ..Plot::default()
    };
    plot.drawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Ratio;

    #[test]
    fn several_loads_are_drawn_next_to_haproxy() {
        let row = |load: &str, haproxy_ratio| Row {
            subject: "superpoll-epoll".to_owned(),
            load: load.to_owned(),
            haproxy_ratio,
            ..Row::default()
        };
        let ratio = |median| Some(Ratio { median, low: median, high: median, ..Ratio::default() });
        let rows = [row("connection", ratio(0.8)), row("bulk", ratio(0.5))];
        let plot = over_loads(&rows).unwrap();
        assert_eq!(plot.curves[0].points, [(1.0, 0.8), (2.0, 0.5)]);
        assert!(plot.svg().unwrap().contains("2 bulk"));
        assert!(over_loads(&rows[..1]).is_none());
        assert!(over_loads(&[row("connection", None), row("bulk", None)]).is_none());
    }
}
