//! Plots as SVG text.
//!
//! No font of the system is needed: the program that shows the SVG draws the text. Black is written
//! as `currentColor`, so that a plot inside a page takes the page's colour, light or dark; the
//! colours of the curves are of a middling brightness that shows on either.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::error::{Error, Result};

/// One curve.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Its points, ascending in x.
    pub points: Vec<(f64, f64)>,
    /// The number of its colour.
    pub colour: usize,
    /// Whether it is drawn thin and faint: a companion of another curve.
    pub thin: bool,
}

/// A plot of curves.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// Its heading.
    pub title: String,
    /// The quantity on the x axis.
    pub x_label: String,
    /// The values of x that are shown.
    pub x_range: Range<f64>,
    /// Whether x is the decimal logarithm of that quantity.
    pub x_power_of_ten: bool,
    /// The quantity on the y axis.
    pub y_label: String,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Where y is 1, drawn as a line, if that means something.
    pub break_even: bool,
    /// Above this, curves leave the plot: values far above would flatten all the rest.
    pub top: f64,
    /// Points to be marked on that line, each with the name of the curve that a fitted line crosses
    /// there.
    pub marks: Vec<(f64, String)>,
    /// A value of x with a dotted line of its own, and its name in the legend.
    pub upright: Option<(f64, &'static str)>,
}

/// The width of a plot without the names of its curves, and its least height.
const WIDTH: u32 = 820;
const HEIGHT: u32 = 520;

/// The colours of curves, as in `#rrggbb`.
const COLOURS: [u32; 16] = [
    0x2f7ed8, 0xe07b00, 0x2a9d4a, 0xd1495b, 0x8a5cd0, 0x1a9aa0, 0xa0703c, 0xd05ca8, 0x7a8a2a,
    0x808080, 0x5a6ac8, 0xc8a020, 0xff6f4f, 0x50b8e8, 0x6ac86a, 0xb07ab0,
];

/// Returns a curve for each name, with the points that `at` returns, in the order of the first
/// points.
pub(crate) fn curves<'a, T>(
    items: &'a [T],
    at: impl Fn(&'a T) -> Option<(&'a str, (f64, f64))>,
) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (name, point) in items.iter().filter_map(at) {
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve {
                name: name.to_owned(),
                points: vec![point],
                colour: curves.len(),
                thin: false,
            }),
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    curves
}

/// Returns the plot of [`curves`], with labels for both axes and x on a logarithmic axis that spans
/// the curves; `None` if no curve has more than one point.
pub(crate) fn over_powers_of_ten<'a, T>(
    title: impl Into<String>,
    [x_label, y_label]: [&str; 2],
    items: &'a [T],
    at: impl Fn(&'a T) -> Option<(&'a str, (f64, f64))>,
) -> Option<Plot> {
    Plot::of(title.into(), x_label, y_label, curves(items, at)).drawn_over_powers_of_ten()
}

impl Default for Plot {
    /// Creates an empty plot over the active/total ratio.
    fn default() -> Plot {
        Plot {
            title: String::new(),
            x_label: "active / total".to_owned(),
            x_range: 0.0..1.0,
            x_power_of_ten: false,
            y_label: String::new(),
            curves: Vec::new(),
            break_even: false,
            top: f64::INFINITY,
            marks: Vec::new(),
            upright: None,
        }
    }
}

impl Curve {
    fn style(&self) -> ShapeStyle {
        let colour = colour(self.colour);
        if self.thin { colour.mix(0.75).stroke_width(1) } else { colour.stroke_width(2) }
    }
}

impl Plot {
    /// Creates a plot of some curves under a title, with labels for both axes.
    pub(crate) fn of(title: String, x_label: &str, y_label: &str, curves: Vec<Curve>) -> Plot {
        let (x_label, y_label) = (x_label.to_owned(), y_label.to_owned());
        Plot { title, x_label, y_label, curves, ..Plot::default() }
    }

    /// Returns the plot; `None` if no curve has more than one point.
    pub(crate) fn drawn(self) -> Option<Plot> {
        let is_worth_it = self.curves.iter().any(|curve| curve.points.len() > 1);
        is_worth_it.then_some(self)
    }

    /// Like `drawn`, with x on a logarithmic axis that spans the curves.
    pub(crate) fn drawn_over_powers_of_ten(self) -> Option<Plot> {
        let mut plot = self.drawn()?;
        let mut ends = (f64::INFINITY, f64::NEG_INFINITY);
        for (x, _) in plot.curves.iter_mut().flat_map(|curve| &mut curve.points) {
            *x = x.log10();
            ends = (ends.0.min(*x), ends.1.max(*x));
        }
        if ends.0 < ends.1 {
            plot.x_range = ends.0..ends.1;
        }
        Some(Plot { x_power_of_ten: true, ..plot })
    }

    /// Draws it with a logarithmic y axis.
    pub(crate) fn svg(&self) -> Result<String> {
        let failed = |what: String| Error::usage(format!("drawing {:?}: {what}", self.title));
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, self.size()).into_drawing_area();
            self.draw(&root).map_err(failed)?;
            root.present().map_err(|error| failed(error.to_string()))?;
        }
        Ok(text.replace("#000000", "currentColor"))
    }

    fn draw(&self, root: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), String> {
        let say = |error: DrawingAreaErrorKind<std::io::Error>| error.to_string();
        let faint = BLACK.mix(0.12);
        let Range { start: low, end: high } = self.span();
        let (area, key) = root.split_horizontally(WIDTH);
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(70)
            .build_cartesian_2d(self.x_range.clone(), self.span().log_scale())
            .map_err(say)?;
        chart
            .configure_mesh()
            .x_desc(self.x_label.clone() + &self.cut())
            // The axis may have few labels, so its ends are named.
            .y_desc(format!("{} ({} to {})", self.y_label, number(low), number(high)))
            .x_labels(11)
            .x_label_formatter(&|x| {
                if self.x_power_of_ten { number(10f64.powf(*x)) } else { format!("{x:.1}") }
            })
            .y_label_formatter(&|y| number(*y))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .bold_line_style(faint)
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(say)?;
        let mut legend: Vec<(String, ShapeStyle)> = Vec::new();
        if self.break_even {
            let (line, style) = ([self.x_range.start, self.x_range.end], BLACK.mix(0.7).into());
            let line = line.map(|x| (x, 1.0));
            chart.draw_series(DashedLineSeries::new(line, 6, 4, style)).map_err(say)?;
            legend.push(("1: break-even".to_owned(), style));
        }
        if let Some((x, name)) = self.upright {
            let (ends, style) = (self.span(), BLACK.mix(0.5).into());
            let line = [(x, ends.start), (x, ends.end)];
            chart.draw_series(DashedLineSeries::new(line, 2, 4, style)).map_err(say)?;
            legend.push((name.to_owned(), style));
        }
        for curve in &self.curves {
            let (colour, style) = (colour(curve.colour), curve.style());
            let points = below(&curve.points, self.top);
            chart.draw_series(LineSeries::new(points.iter().copied(), style)).map_err(say)?;
            let dots = points.iter().map(|&at| Circle::new(at, 2, colour.filled()));
            chart.draw_series(dots).map_err(say)?;
            let crossing = self.marks.iter().find(|(_, name)| *name == curve.name);
            let crossing = crossing.map_or_else(String::new, |(x, _)| format!(": 1 at {x:.2}"));
            legend.push((curve.name.clone() + &crossing, style));
        }
        for (place, (x, name)) in self.marks.iter().enumerate() {
            let Some(curve) = self.curves.iter().find(|curve| curve.name == *name) else {
                continue;
            };
            let (up, style) = (20 + 16 * (place as i32 % 2), curve.style());
            let text = ("sans-serif", 13).into_font().color(&colour(curve.colour));
            let mark = EmptyElement::at((*x, 1.0))
                + Circle::new((0, 0), 5, style.stroke_width(2))
                + Text::new(format!("{x:.2}"), (-12, -up), text);
            chart.draw_series([mark]).map_err(say)?;
        }
        if !self.marks.is_empty() {
            legend.push(("circle: a fitted line crosses 1".to_owned(), BLACK.mix(0.7).into()));
        }
        for (place, (name, style)) in legend.into_iter().enumerate() {
            let y = 50 + 20 * place as i32;
            key.draw(&PathElement::new([(4, y), (26, y)], style)).map_err(say)?;
            let text = ("sans-serif", 14).into_font();
            key.draw(&Text::new(name, (32, y - 5), text)).map_err(say)?;
        }
        Ok(())
    }

    /// Returns the size of the picture, whose right part names the curves.
    fn size(&self) -> (u32, u32) {
        let longest = self.curves.iter().map(|curve| curve.name.len()).max().unwrap_or(0).max(24);
        let crossing = if self.marks.is_empty() { 0 } else { ": 1 at 0.00".len() };
        let lines = self.curves.len() + 5;
        (WIDTH + 40 + 7 * (longest + crossing) as u32, HEIGHT.max(40 + 20 * lines as u32))
    }

    /// Says which curves leave the plot at the top, and how high they go.
    fn cut(&self) -> String {
        let highest = |curve: &Curve| curve.points.iter().map(|&(_, y)| y).fold(0.0, f64::max);
        let cut = self.curves.iter().filter(|curve| highest(curve) > self.top);
        let cut: Vec<String> =
            cut.map(|curve| format!("{} (to {})", curve.name, number(highest(curve)))).collect();
        match &cut[..] {
            [] => String::new(),
            [.., more] if cut.len() > 3 => {
                let (first, others) = (&cut[0], cut.len() - 2);
                format!(". Cut above {}: {first}, {more} and {others} others", number(self.top))
            }
            _ => format!(". Cut above {}: {}", number(self.top), cut.join(", ")),
        }
    }

    /// Returns the range of y, with a margin; it includes 1 if that line is marked.
    fn span(&self) -> Range<f64> {
        let values = || self.curves.iter().flat_map(|c| &c.points).map(|&(_, y)| y);
        let mut low = values().fold(f64::INFINITY, f64::min);
        let mut high = values().fold(0.0, f64::max);
        if self.break_even {
            (low, high) = (low.min(0.8), high.max(1.3));
        }
        high = high.min(self.top);
        if low.is_finite() && low > 0.0 && high > 0.0 { low / 1.1..high * 1.1 } else { 0.5..2.0 }
    }
}

/// Returns the colour with this number.
fn colour(number: usize) -> RGBColor {
    let [_, red, green, blue] = COLOURS[number % COLOURS.len()].to_be_bytes();
    RGBColor(red, green, blue)
}

/// Returns the part of a curve that is not above `top`, cut where it crosses that line.
fn below(points: &[(f64, f64)], top: f64) -> Vec<(f64, f64)> {
    let mut kept = Vec::new();
    let mut before: Option<(f64, f64)> = None;
    for &(x, y) in points {
        if let Some((x0, y0)) = before.filter(|&(_, y0)| (y0 > top) != (y > top)) {
            // On a logarithmic axis a straight line is straight in the logarithm.
            let share = (y0.ln() - top.ln()) / (y0.ln() - y.ln());
            kept.push((x0 + (x - x0) * share, top));
        }
        if y <= top {
            kept.push((x, y));
        }
        before = Some((x, y));
    }
    kept
}

/// Formats a label of the axis, without needless digits.
fn number(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", (v / 1e5).round() / 10.0),
        v if v >= 1e3 => format!("{}k", (v / 1e2).round() / 10.0),
        v if v >= 10.0 => format!("{v:.0}"),
        v => format!("{}", (v * 100.0).round() / 100.0),
    }
}

/// Returns an SVG as a file of its own: with a background, since black in a dark viewer would be
/// invisible.
pub(crate) fn standalone(svg: &str) -> String {
    match svg.find('>') {
        Some(end) if svg.starts_with("<svg") => {
            let (head, rest) = svg.split_at(end + 1);
            format!("{head}\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>{rest}")
        }
        _ => svg.to_owned(),
    }
}

/// Bars with names to their left, as SVG: each bar has a name, a length as a share of the longest
/// possible bar, and a number after it. A longer bar is cut, and says so. Ours have a colour of
/// their own.
pub(crate) fn bars(
    heading: &str,
    left: f64,
    bars: impl IntoIterator<Item = (String, f64, f64)>,
) -> String {
    let mut body = format!("<text x=\"20\" y=\"22\" font-size=\"15\">{heading}</text>\n");
    let mut y = 40.0;
    for (name, share, number) in bars {
        let width = share.min(1.0) * (790.0 - left);
        let cut = if share > 1.0 { " (cut)" } else { "" };
        let colour = if name.starts_with("superpoll") { "#2a9d4a" } else { "#2f7ed8" };
        body += &format!(
            "<text x=\"{}\" y=\"{text_y}\" text-anchor=\"end\">{name}</text><rect x=\"{left}\" y=\"{y}\" \
             width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{text_y}\">{number:.0}{cut}</text>\n",
            left - 8.0,
            left + width + 6.0,
            text_y = y + 11.0,
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

    #[test]
    fn a_plot_has_its_curves_line_mark_and_no_fixed_black() {
        let points = [(0.1, 5.0), (0.5, 1.0), (1.0, 0.7)];
        let plot = Plot {
            title: "a < b".to_owned(),
            y_label: "ratio".to_owned(),
            curves: curves(&points, |&at| Some(("curve one", at))),
            break_even: true,
            top: 4.0,
            marks: vec![(0.5, "curve one".to_owned())],
            upright: Some((0.6, "0.6 as in the text")),
            ..Plot::default()
        };
        let svg = plot.svg().unwrap();
        for text in
            ["a &lt; b", "curve one", "curve one: 1 at 0.50", "break-even", "0.6 as in the text"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.contains("active / total. Cut above 4: curve one (to 5)"), "{svg}");
        assert!(!svg.contains("#000000") && svg.contains("currentColor"));
        assert!(standalone(&svg).contains("#ffffff"));
    }

    #[test]
    fn a_plot_of_nothing_is_an_empty_plot() {
        let plot = Plot { top: 4.0, ..Plot::default() };
        assert!(plot.svg().unwrap().starts_with("<svg"));
    }

    #[test]
    fn a_curve_is_cut_where_it_leaves_the_plot() {
        let cut = below(&[(0.0, 100.0), (1.0, 1.0), (2.0, 1.0)], 10.0);
        assert_eq!(cut.len(), 3);
        assert!((cut[0].0 - 0.5).abs() < 1e-9 && cut[0].1 == 10.0);
        assert!(below(&[(0.0, 3.0), (1.0, 4.0)], 2.0).is_empty());
    }

    #[test]
    fn labels_have_few_digits() {
        let labels = [0.5, 1.0, 20.0, 1_000.0, 20_000.0, 3e6].map(number);
        assert_eq!(labels, ["0.5", "1", "20", "1k", "20k", "3M"]);
    }
}
