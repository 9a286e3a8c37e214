//! The plot of `superpoll-lab mix`: bars of cost, a group for each load.
//!
//! Drawn by hand: bars with names next to them are a dozen lines of SVG.

use crate::mix::table::find;
use crate::mix::{self, Row};
use crate::record::Figures;

/// The subjects that get a bar, with their colours.
const BARS: [(&str, &str); 6] = [
    ("poll", "#2f7ed8"),
    ("epoll-lt", "#e07b00"),
    ("epoll-et", "#a0703c"),
    ("adaptive", "#2a9d4a"),
    ("adaptive-threshold", "#d1495b"),
    ("floor", "#808080"),
];

/// Plots the cost relative to the best pure subject, with a line at 1. A bar that would leave the
/// plot is cut, and keeps its number.
pub(crate) fn svg(rows: &[Row]) -> String {
    const LEFT: f64 = 330.0;
    const UNIT: f64 = 230.0;
    const MOST: f64 = 2.0;
    let mut body = String::new();
    let mut y = 46.0;
    for (place, (name, colour)) in BARS.iter().enumerate() {
        let x = 20.0 + 140.0 * place as f64;
        body += &format!(
            "<rect x=\"{x}\" y=\"10\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"21\">{name}</text>\n",
            x + 17.0
        );
    }
    for ((kind, load), rows) in mix::loads(rows) {
        let top = y;
        for (name, colour) in BARS {
            let Some(ratio) = find(&rows, name).and_then(Figures::cost) else {
                continue;
            };
            let width = ratio.min(MOST) * UNIT;
            body += &format!(
                "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"9\" \
                 fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{}\" font-size=\"9\">{ratio:.2}</text>\n",
                LEFT + width + 4.0,
                y + 8.0
            );
            y += 11.0;
        }
        if y > top {
            let load = load.split(" (").next().unwrap_or(load);
            body += &format!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{kind}: {load}</text>\n",
                LEFT - 8.0,
                (top + y) / 2.0 + 3.0
            );
            y += 9.0;
        }
    }
    let line = LEFT + UNIT;
    format!(
        "<svg width=\"900\" height=\"{height}\" viewBox=\"0 0 900 {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"12\" \
         fill=\"currentColor\">\n{body}<line x1=\"{line}\" y1=\"34\" x2=\"{line}\" y2=\"{y}\" \
         stroke=\"currentColor\" stroke-dasharray=\"5 4\"/><text x=\"{line}\" y=\"38\" \
         text-anchor=\"middle\" font-size=\"10\">best pure</text>\n</svg>\n",
        height = y + 10.0
    )
}
