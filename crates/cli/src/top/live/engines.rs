//! The page of engines: their sets, ratios, moves and calls, and more of the selected one.
//!
//! From 60 columns and 15 rows upward all parts are there, with fewer rows each where there is
//! little room; a smaller screen has the list and the calls. Rows that remain explain the columns,
//! and then make the histories taller.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table};
use superpoll_gateway::telemetry::snapshot::Turn;
use superpoll_gateway::telemetry::snapshot::verdict;

use super::columns::{bold, dim};
use super::help;
use super::state::{self, State};
use crate::top::figures::{count, rate, ratio, turn, whole};
use crate::top::model::{Model, Point, Track};

/// The smallest area with all parts.
const COMPLETE: (u16, u16) = (60, 13);

/// The most rows of a history.
const TALLEST: u16 = 10;

/// The rows that slow turns have at least where the legend is shown.
const FEWEST_TURNS: u16 = 4;

/// The scale of ratios in a history.
const WHOLE: u64 = 1000;

/// Draws the page into an area.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, state: &State) {
    let numbers = state::engines(model, state.engine_order);
    let Some(track) = model.tracks.get(&state.engine) else {
        return list(frame, area, model, &numbers, state);
    };
    let wanted = u16::try_from(numbers.len()).unwrap_or(u16::MAX).max(1);
    if area.width < COMPLETE.0 || area.height < COMPLETE.1 {
        let listed = wanted.saturating_add(1).min(area.height.saturating_sub(2).max(2));
        let rows = [Constraint::Length(listed), Constraint::Min(0)];
        let [engines, calls] = Layout::vertical(rows).areas(area);
        list(frame, engines, model, &numbers, state);
        return called(frame, calls, model, track);
    }
    let (tall, taller) = (area.height >= 22, area.height >= 38);
    let listed = 1 + wanted.min(if taller {
        12
    } else if tall {
        4
    } else {
        2
    });
    let calls = if taller {
        3
    } else if tall {
        2
    } else {
        1
    };
    let costs = match track.engine.costs.len().min(3) as u16 {
        0 => 1,
        kinds if tall => 1 + kinds,
        _ => 2,
    };
    let left = area.height.saturating_sub(listed + calls + costs + 3);
    let legend = help::ENGINES.len() as u16;
    let legend = if left >= legend + FEWEST_TURNS { legend } else { 0 };
    let turns = turns_height(area.width, track).min(left - legend);
    let each = (1 + (left - legend - turns) / 3).min(TALLEST);
    let rows = [
        Constraint::Length(listed),
        Constraint::Length(3 * each),
        Constraint::Length(calls),
        Constraint::Length(costs),
        Constraint::Length(turns),
        Constraint::Length(legend),
        Constraint::Min(0),
    ];
    let [engines, history, calls, costs, turns, legend, _] = Layout::vertical(rows).areas(area);
    list(frame, engines, model, &numbers, state);
    past(frame, history, track, each);
    called(frame, calls, model, track);
    priced(frame, costs, track);
    slow(frame, turns, track);
    let lines: Vec<Line<'_>> = help::ENGINES.iter().map(|text| Line::from(*text)).collect();
    frame.render_widget(Paragraph::new(lines).style(dim()), legend);
}

/// The width from which on the two lists of slow turns are side by side.
const SIDE_BY_SIDE: u16 = 110;

/// Returns the rows that the lists of slow turns take.
fn turns_height(width: u16, track: &Track) -> u16 {
    let rows = |turns: &[Turn]| 1 + turns.len().max(1) as u16;
    let (lately, ever) = (rows(&track.engine.slowest_lately), rows(&track.engine.slowest));
    if width >= SIDE_BY_SIDE { lately.max(ever) } else { lately + ever }
}

fn list(frame: &mut Frame<'_>, area: Rect, model: &Model, numbers: &[usize], state: &State) {
    const NAMES: [&str; 10] =
        ["eng", "hot", "ratio", "cold", "ratio", "→hot", "→cold", "waits", "event", "calls"];
    /// The columns of a narrow screen.
    const NARROW: [usize; 6] = [0, 1, 2, 3, 8, 9];
    let columns: Vec<usize> = match area.width < COMPLETE.0 {
        true => NARROW.to_vec(),
        false => (0..NAMES.len()).collect(),
    };
    let cell = |text: String| Cell::new(Line::from(text).right_aligned());
    let header = Row::new(columns.iter().map(|&column| cell(NAMES[column].to_owned())));
    // The selected engine is always among those that there is room for.
    let room = usize::from(area.height.saturating_sub(1)).max(1);
    let at = numbers.iter().position(|&number| number == state.engine).unwrap_or(0);
    let first = (at + 1).saturating_sub(room);
    let row = |number: &usize| {
        let Track { engine, rates, .. } = &model.tracks[number];
        let per = |of: fn(&crate::top::model::Rates) -> f64| rate(rates.as_ref().map(of));
        let part =
            |of: fn(&crate::top::model::Rates) -> Option<f64>| ratio(rates.as_ref().and_then(of));
        let cells = [
            if engine.answers { format!("{number}") } else { format!("{number}?") },
            whole(engine.hot.len as u64),
            part(|rates| rates.hot),
            whole(engine.cold.len as u64),
            part(|rates| rates.cold),
            per(|rates| rates.to_hot),
            per(|rates| rates.to_cold),
            per(|rates| rates.waits),
            per(|rates| rates.events),
            per(|rates| rates.calls),
        ];
        let row = Row::new(columns.iter().map(|&column| cell(cells[column].clone())));
        let style = if *number == state.engine {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        row.style(if engine.answers { style } else { style.fg(Color::Red) })
    };
    let rows = numbers.iter().skip(first).take(room).map(row);
    let widths = vec![Constraint::Fill(1); columns.len()];
    let table = Table::new(rows, widths).header(header.style(bold())).column_spacing(1);
    frame.render_widget(table, area);
}

fn past(frame: &mut Frame<'_>, area: Rect, track: &Track, each: u16) {
    type Of = fn(&Point) -> Option<f64>;
    let lines: [(&str, Color, Option<u64>, Of); 3] = [
        ("ratio", Color::Green, Some(WHOLE), |point| Some(point.ratio? * WHOLE as f64)),
        ("moves/s", Color::Yellow, None, |point| Some(point.moves)),
        ("calls/s", Color::Cyan, None, |point| Some(point.calls)),
    ];
    let areas: [Rect; 3] = Layout::vertical([Constraint::Length(each); 3]).areas(area);
    for ((name, color, most, of), area) in lines.into_iter().zip(areas) {
        let [label, line] =
            Layout::horizontal([Constraint::Length(15), Constraint::Min(1)]).areas(area);
        let room = usize::from(line.width);
        let skipped = track.history.len().saturating_sub(room);
        let points: Vec<Option<u64>> = track
            .history
            .iter()
            .skip(skipped)
            .map(|point| of(point).map(|value| value.round() as u64))
            .collect();
        let last = track.history.back().and_then(of);
        let last =
            if most.is_some() { ratio(last.map(|value| value / WHOLE as f64)) } else { rate(last) };
        frame.render_widget(Paragraph::new(format!("{name:<8}{last:>6}")), label);
        let mut sparkline = Sparkline::default().data(points).style(color);
        if let Some(most) = most {
            sparkline = sparkline.max(most);
        }
        frame.render_widget(sparkline, line);
    }
}

fn called(frame: &mut Frame<'_>, area: Rect, model: &Model, track: &Track) {
    let engine = &track.engine;
    let mut first = vec![Span::styled("calls/s ", bold())];
    if let Some(rates) = &track.rates {
        let made = rates.by_name.iter().filter(|(_, each)| *each > 0.0);
        let calls = made.map(|(name, each)| format!("{name} {}", count(*each)));
        first.push(calls.collect::<Vec<_>>().join("  ").into());
    }
    let mut second = vec![Span::styled("engine  ", bold())];
    let mut told = format!(
        "{} tasks  {} timers  {} descriptors  {} changes saved  {} slots scanned",
        whole(engine.tasks as u64),
        whole(engine.timers as u64),
        whole(engine.sources as u64),
        whole(engine.changes_saved),
        whole(engine.slots_scanned),
    );
    if let Some(connections) = &engine.connections {
        let (active, parked) = (whole(connections.active), whole(connections.parked));
        told = format!("{active} with a task  {parked} parked  {told}");
    }
    if engine.away.len > 0 {
        told = format!("{} away  {told}", whole(engine.away.len as u64));
    }
    second.push(told.into());
    let mut lines = vec![Line::from(first), Line::from(second)];
    if let Some(snapshot) = &model.snapshot
        && let Some(ratio) = &snapshot.active_ratio
    {
        let told = verdict(ratio, snapshot.watching.as_ref());
        lines.push(Line::from(vec![Span::styled("server  ", bold()), told.into()]));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn priced(frame: &mut Frame<'_>, area: Rect, track: &Track) {
    let names = ["costs, ns", "slot s", "event e", "move D", "rise", "break-even", "writers"];
    let header = Row::new(names).style(bold());
    // On a small screen, the kind that servers have most of comes first.
    let costs = track.engine.costs.iter().rev();
    let row = |costs: &superpoll_gateway::telemetry::snapshot::Costs| {
        let thresholds = costs.thresholds.as_ref();
        let learned = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
        };
        let mark = if costs.measured { "" } else { " assumed" };
        Row::new([
            format!("{}{mark}", costs.kind),
            format!("{:.0}", thresholds.map_or(costs.slot, |known| known.slot)),
            format!("{:.0}", costs.event),
            learned(thresholds.map(|known| known.round_trip)),
            learned(thresholds.map(|known| known.rise)),
            ratio(costs.break_even),
            ratio(costs.break_even_with_writers),
        ])
    };
    let room = usize::from(area.height.saturating_sub(1));
    let rows: Vec<Row<'_>> = costs.take(room).map(row).collect();
    if rows.is_empty() {
        let line = "the back-end does not place by cost";
        return frame.render_widget(Paragraph::new(line).style(dim()), area);
    }
    let widths = [
        Constraint::Min(9),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(10),
        Constraint::Length(7),
    ];
    frame.render_widget(Table::new(rows, widths).header(header).column_spacing(1), area);
}

fn slow(frame: &mut Frame<'_>, area: Rect, track: &Track) {
    let lines = |name: &'static str, turns: &[Turn]| {
        let mut lines = vec![Line::styled(name, bold())];
        if turns.is_empty() {
            lines.push(Line::styled("none was noticed", dim()));
        }
        lines.extend(turns.iter().map(|one| Line::from(turn(one))));
        lines
    };
    let (lately, ever) = (&track.engine.slowest_lately, &track.engine.slowest);
    // Side by side where a line of each fits.
    if area.width >= SIDE_BY_SIDE {
        let halves = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2);
        let [left, right] = halves.areas(area);
        frame.render_widget(Paragraph::new(lines("slowest turns of late", lately)), left);
        return frame.render_widget(Paragraph::new(lines("slowest turns ever", ever)), right);
    }
    let of_late = if area.height >= 6 { area.height / 2 } else { area.height - 1 };
    let parts = [Constraint::Length(of_late), Constraint::Min(0)];
    let [above, below] = Layout::vertical(parts).areas(area);
    frame.render_widget(Paragraph::new(lines("slowest turns of late", lately)), above);
    if below.height >= 2 {
        frame.render_widget(Paragraph::new(lines("slowest turns ever", ever)), below);
    } else if let Some(slowest) = ever.first() {
        frame.render_widget(Paragraph::new(format!("ever: {}", turn(slowest))), below);
    }
}
