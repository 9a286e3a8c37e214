//! The screen: the data, drawn in the room that there is.
//!
//! From 60 columns and 15 rows upward all parts are there, with fewer rows each where there is
//! little room. On a smaller screen a line says so. The parts that belong to one engine show the
//! selected engine.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table};
use superpoll_gateway::telemetry::socket::{Snapshot, Turn};

use super::figures::{count, rate, ratio, time, whole};
use super::model::{Model, Point, Track};

/// The smallest screen with everything on it.
pub(super) const SMALLEST: (u16, u16) = (60, 15);

/// The scale of ratios in a history.
const WHOLE: u64 = 1000;

/// The order of the engines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Sort {
    #[default]
    Number,
    Events,
    Calls,
    Moves,
}

impl Sort {
    /// Returns the next order.
    pub(super) fn next(self) -> Sort {
        match self {
            Sort::Number => Sort::Events,
            Sort::Events => Sort::Calls,
            Sort::Calls => Sort::Moves,
            Sort::Moves => Sort::Number,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Sort::Number => "number",
            Sort::Events => "events",
            Sort::Calls => "calls",
            Sort::Moves => "moves",
        }
    }
}

/// The user's choices, and messages to the user.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// The number of the engine that is selected.
    pub engine: usize,
    pub sort: Sort,
    pub paused: bool,
    pub interval_ms: u64,
    /// The number of seconds without a snapshot.
    pub silent: Option<u64>,
}

/// Returns the engines in the order in which they are shown.
pub(super) fn order(model: &Model, sort: Sort) -> Vec<usize> {
    let mut numbers: Vec<usize> = model.tracks.keys().copied().collect();
    let key = |number: &usize| {
        let rates = model.tracks[number].rates.as_ref();
        rates.map_or(0.0, |rates| match sort {
            Sort::Number => 0.0,
            Sort::Events => rates.events,
            Sort::Calls => rates.calls,
            Sort::Moves => rates.to_hot + rates.to_cold,
        })
    };
    numbers.sort_by(|one, other| key(other).total_cmp(&key(one)));
    numbers
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().fg(Color::DarkGray)
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, state: &State) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let (width, height) = SMALLEST;
        let line = format!("at least {width} columns and {height} rows are needed (q quits)");
        return frame.render_widget(Paragraph::new(line), area);
    }
    let numbers = order(model, state.sort);
    let (tall, taller) = (area.height >= 24, area.height >= 40);
    let most = if taller {
        12
    } else if tall {
        4
    } else {
        2
    };
    let listed = u16::try_from(numbers.len()).unwrap_or(u16::MAX).clamp(1, most);
    let each = if taller {
        4
    } else if tall {
        2
    } else {
        1
    };
    let costs = if tall { 4 } else { 2 };
    let rows = [
        Constraint::Length(1),
        Constraint::Length(1 + listed),
        Constraint::Length(3 * each),
        Constraint::Length(if tall { 2 } else { 1 }),
        Constraint::Length(costs),
        Constraint::Min(2),
        Constraint::Length(1),
    ];
    let [top, engines, history, calls, costs, turns, bottom] = Layout::vertical(rows).areas(area);
    head(frame, top, model.snapshot.as_ref(), state);
    list(frame, engines, model, &numbers, state);
    if let Some(track) = model.tracks.get(&state.engine) {
        past(frame, history, track, each);
        called(frame, calls, track);
        priced(frame, costs, track);
        slow(frame, turns, track);
    }
    foot(frame, bottom, state);
}

fn head(frame: &mut Frame<'_>, area: Rect, snapshot: Option<&Snapshot>, state: &State) {
    let mut spans = vec![Span::styled("superpoll", bold())];
    // Comes before parts that may be cut off on a small screen.
    if state.paused {
        spans.push(Span::styled(" paused", bold().fg(Color::Yellow)));
    }
    if let Some(seconds) = state.silent {
        spans.push(Span::styled(format!(" silent for {seconds} s"), bold().fg(Color::Red)));
    }
    match snapshot {
        None => spans.push(" waiting for the first snapshot".into()),
        Some(Snapshot { program, process, backend, connections, uptime_ns, .. }) => {
            let (up, connections) = (time(*uptime_ns), whole(*connections));
            let told = format!(" {program} [{process}] {backend}  up {up}  {connections} conns");
            spans.push(told.into());
        }
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

fn list(frame: &mut Frame<'_>, area: Rect, model: &Model, numbers: &[usize], state: &State) {
    let names =
        ["eng", "hot", "ratio", "cold", "ratio", "→hot", "→cold", "waits", "event", "calls"];
    let header = Row::new(names.map(|name| Cell::new(Line::from(name).right_aligned())));
    // The selected engine is always among those that there is room for.
    let room = usize::from(area.height.saturating_sub(1)).max(1);
    let at = numbers.iter().position(|&number| number == state.engine).unwrap_or(0);
    let first = (at + 1).saturating_sub(room);
    let row = |number: &usize| {
        let Track { engine, rates, .. } = &model.tracks[number];
        let per = |of: fn(&super::model::Rates) -> f64| rate(rates.as_ref().map(of));
        let part = |of: fn(&super::model::Rates) -> Option<f64>| ratio(rates.as_ref().and_then(of));
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
        let row = Row::new(cells.map(|text| Cell::new(Line::from(text).right_aligned())));
        let style = if *number == state.engine {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        row.style(if engine.answers { style } else { style.fg(Color::Red) })
    };
    let rows = numbers.iter().skip(first).take(room).map(row);
    let widths = [Constraint::Fill(1); 10];
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

fn called(frame: &mut Frame<'_>, area: Rect, track: &Track) {
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
        told = format!("{active} active  {parked} parked  {told}");
    }
    if engine.away.len > 0 {
        told = format!("{} away  {told}", whole(engine.away.len as u64));
    }
    second.push(told.into());
    frame.render_widget(Paragraph::new(vec![Line::from(first), Line::from(second)]), area);
}

fn priced(frame: &mut Frame<'_>, area: Rect, track: &Track) {
    let names = ["costs, ns", "slot s", "event e", "move D", "rise", "break-even", "writers"];
    let header = Row::new(names).style(bold());
    // On a small screen, the kind that servers have most of comes first.
    let costs = track.engine.costs.iter().rev();
    let row = |costs: &superpoll_gateway::telemetry::socket::Costs| {
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

/// Formats a turn in a line. Times of the coarse clock are only approximate.
pub(super) fn turn(turn: &Turn) -> String {
    let about = if turn.step_ns > 0 { "~" } else { "" };
    let Turn { tasks, events, timers, .. } = turn;
    format!(
        "{about}{}  {} ago  {tasks} tasks, {events} events, {timers} timers",
        time(turn.took_ns),
        time(turn.ago_ns)
    )
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
    if area.width >= 110 {
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

fn foot(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let every = state.interval_ms as f64 / 1000.0;
    let keys = format!(
        "q quit  p pause  +/- every {every} s  Tab engine {}  s by {}",
        state.engine,
        state.sort.name()
    );
    frame.render_widget(Paragraph::new(keys).style(dim()), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::tests::{model, snapshot};
    use super::*;

    fn drawn(width: u16, height: u16, model: &Model, state: &State) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    fn state() -> State {
        State { interval_ms: 1000, ..State::default() }
    }

    /// Compares the screen with the one that is stored next to this file.
    fn is_as_kept(lines: &[String], name: &str) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/top/screens");
        let kept = std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
        let kept: Vec<&str> = kept.lines().collect();
        assert!(lines == kept, "{name} is now\n{}\n", lines.join("\n"));
    }

    #[test]
    fn a_small_screen_has_all_parts() {
        let lines = drawn(60, 15, &model(1, 90), &state());
        is_as_kept(&lines, "60x15.txt");
    }

    #[test]
    fn a_usual_screen_has_all_parts() {
        let lines = drawn(80, 24, &model(2, 30), &State { engine: 1, ..state() });
        is_as_kept(&lines, "80x24.txt");
    }

    #[test]
    fn a_large_screen_has_all_parts() {
        let lines = drawn(200, 50, &model(8, 100), &State { engine: 7, ..state() });
        is_as_kept(&lines, "200x50.txt");
    }

    #[test]
    fn no_size_is_too_small_or_too_large_to_be_drawn() {
        for (engines, seconds) in [(0, 0), (1, 1), (1, 2), (3, 600), (40, 3)] {
            let model = model(engines, seconds);
            for width in [1, 2, 10, 59, 60, 61, 79, 109, 110, 300] {
                for height in [1, 2, 14, 15, 16, 23, 24, 25, 39, 40, 80] {
                    let state = State { engine: engines.saturating_sub(1), ..state() };
                    drawn(width, height, &model, &state);
                }
            }
        }
        let lines = drawn(59, 15, &model(1, 2), &state());
        assert!(lines[0].starts_with("at least 60 columns and 15 rows"), "{lines:?}");
    }

    #[test]
    fn the_view_shows_problems_and_the_chosen_settings() {
        let mut model = model(8, 3);
        let chosen =
            State { engine: 7, sort: Sort::Calls, paused: true, silent: Some(4), interval_ms: 250 };
        let text = drawn(120, 30, &model, &chosen).join("\n");
        for part in ["paused", "silent for 4 s", "7?", "every 0.25 s", "engine 7", "by calls"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert_eq!(order(&model, Sort::Calls), [7, 6, 5, 4, 3, 2, 1, 0]);
        assert_eq!(order(&model, Sort::Number), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Sort::Moves.next(), Sort::Number);
        let mut other = snapshot(1, 4);
        other.engines[0].costs.clear();
        other.engines[0].slowest_lately.clear();
        model.take(other);
        let text = drawn(80, 24, &model, &state()).join("\n");
        assert!(text.contains("does not place by cost") && text.contains("none was noticed"));
    }
}
