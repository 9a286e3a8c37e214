//! The plots of `superpoll-lab atr`: poll time over epoll time, and all subjects per event.

use crate::atr::table::{cost, loop_time};
use crate::atr::{self, Row};
use crate::plot::{self, Curve, Plot};
use crate::record::{Account, Figures, PURE};

/// Plots poll time divided by epoll time over the ratio of active to all descriptors, with the
/// break-even line and the crossings, by both accounts; and our adaptive back-end relative to the
/// best pure one.
pub(crate) fn quotient(name: &str, rows: &[&Row]) -> Plot {
    let accounts: [(&str, Account); 2] = [("loop", loop_time), ("with writes", cost)];
    let mut plot = Plot {
        title: format!("poll time / epoll time ({name})"),
        y_label: "poll / epoll (above 1: epoll is faster)".to_owned(),
        curves: Vec::new(),
        break_even: true,
        top: 8.0,
        ..Plot::default()
    };
    let pairs = [("raw-poll", "raw-epoll-lt"), ("poll", "epoll-lt")];
    for (colour, (above, below)) in pairs.into_iter().enumerate() {
        for (account, of) in accounts {
            let points = atr::curve(rows, above, below, of);
            if points.is_empty() {
                continue;
            }
            if let Some(at) = atr::break_even(rows, above, below, of) {
                plot.marks.push((at, format!("{at:.2}")));
            }
            plot.curves.push(Curve {
                name: format!("{above} / {below}, {account}"),
                points,
                colour,
                thin: account != "loop",
            });
        }
    }
    let ratios: [(&str, Account); 2] =
        [("loop", Figures::loop_part), ("with writes", Figures::cost)];
    for (account, of) in ratios {
        let points = curve_of(rows, "adaptive", of);
        if !points.is_empty() {
            plot.curves.push(Curve {
                name: format!("adaptive / best pure, {account}"),
                points,
                colour: 2,
                thin: account != "loop",
            });
        }
    }
    plot
}

/// Plots the cost of an event for each subject, with the writers' share where it is known.
pub(crate) fn subjects(name: &str, rows: &[&Row]) -> Plot {
    let mut curves = plot::curves(rows, |row| {
        let time = cost(&row.figures).unwrap_or(row.figures.ns_per_round_median);
        Some((row.subject.as_str(), (row.atr(), time / row.active.max(1) as f64)))
    });
    for curve in &mut curves {
        curve.thin = PURE.contains(&curve.name.as_str());
    }
    let low = curves.iter().flat_map(|c| &c.points).map(|&(_, y)| y).fold(f64::INFINITY, f64::min);
    Plot {
        title: format!("cost per event ({name})"),
        y_label: "ns per event, writers' share included".to_owned(),
        curves,
        break_even: false,
        top: low * 6.0,
        ..Plot::default()
    }
}

fn curve_of(rows: &[&Row], subject: &str, of: Account) -> Vec<(f64, f64)> {
    rows.iter()
        .filter(|row| row.subject == subject)
        .filter_map(|row| Some((row.atr(), of(&row.figures)?)))
        .collect()
}
