//! The screen: a head, a page, and a line with keys.
//!
//! From 40 columns and 10 rows upward each page is there, with fewer rows and columns where there
//! is little room. On a smaller screen a line says so.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Color;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use superpoll_gateway::control::Snapshot;

use super::columns::{bold, dim};
use super::state::{Page, State};
use super::{engines, help, requests};
use crate::top::figures::{ratio, time, whole};
use crate::top::model::Model;

/// The smallest screen.
pub(super) const SMALLEST: (u16, u16) = (40, 10);

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, state: &State) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let (width, height) = SMALLEST;
        let line = format!("at least {width} columns and {height} rows are needed (q quits)");
        return frame.render_widget(Paragraph::new(line), area);
    }
    let rows = [Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)];
    let [top, page, bottom] = Layout::vertical(rows).areas(area);
    head(frame, top, model.snapshot.as_ref(), state);
    match (state.help, state.page(model)) {
        (Some(scrolled), shown) => help::draw(frame, page, shown, scrolled),
        (None, Page::Requests) => requests::draw(frame, page, model, state),
        (None, Page::Engines) => engines::draw(frame, page, model, state),
    }
    foot(frame, bottom, model, state);
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
        Some(Snapshot {
            program, process, backend, connections, uptime_ns, active_ratio, ..
        }) => {
            spans.push(format!(" {program} [{process}]").into());
            // The ratios have to fit into 80 columns.
            if area.width >= 100 {
                spans.push(format!(" {backend}  up {}", time(*uptime_ns)).into());
            }
            spans.push(format!("  {} conns", whole(*connections)).into());
            if let Some(all) = active_ratio {
                let (now, minute) = (ratio(all.last_second.ratio), ratio(all.minute.ratio));
                let hour = ratio(all.hour.ratio);
                spans.push(format!("  active/all {now}, 1m {minute}, 1h {hour}").into());
            }
        }
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

fn foot(frame: &mut Frame<'_>, area: Rect, model: &Model, state: &State) {
    let every = state.interval_ms as f64 / 1000.0;
    let page = state.page(model);
    let keys = if state.is_typing {
        format!("/{}_  Enter keeps it, Esc shows all", state.filter)
    } else if state.help.is_some() {
        "help: Up and Down scroll, Esc closes it".to_owned()
    } else if page == Page::Requests {
        let filter = match state.filter.is_empty() {
            true => "/ filter".to_owned(),
            false => format!("/{} (Esc: all)", state.filter),
        };
        let (order, list) = (state.order.name(), state.list.name());
        format!(
            "q quit ? help Tab engines  s by {order}  1-4 {list}  {filter}  p pause  +/- {every} s"
        )
    } else {
        let (engine, order) = (state.engine, state.engine_order.name());
        format!(
            "q quit ? help Tab requests  s by {order}  Up/Down engine {engine}  p pause  +/- {every} s"
        )
    };
    frame.render_widget(Paragraph::new(keys).style(dim()), area);
}

#[cfg(test)]
pub(super) mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::keys::Key;
    use super::super::state::{List, Order};
    use super::*;
    use crate::top::model::tests::{model, snapshot};
    use crate::top::traffic::tests::traffic;

    fn drawn(width: u16, height: u16, model: &Model, state: &State) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    /// Returns a state that shows engines and has selected one.
    fn of_engine(model: &Model, engine: usize) -> State {
        let mut state = State { engine, ..State::new(1000) };
        state.press(Key::Tab, model);
        state
    }

    /// Compares the screen with the one that is stored next to this file. `SUPERPOLL_SCREENS` in
    /// the environment stores it again.
    fn is_as_kept(lines: &[String], name: &str) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/top/live/screens");
        let path = format!("{folder}/{name}");
        if std::env::var_os("SUPERPOLL_SCREENS").is_some() {
            std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap();
        let kept: Vec<&str> = kept.lines().collect();
        assert!(lines == kept, "{name} is now\n{}\n", lines.join("\n"));
    }

    #[test]
    fn screens_of_requests_are_as_they_are_stored() {
        for (width, height, name) in
            [(40, 10, "40x10.txt"), (80, 24, "80x24.txt"), (140, 40, "140x40.txt")]
        {
            is_as_kept(&drawn(width, height, &model(1, 90), &State::new(1000)), name);
        }
    }

    #[test]
    fn screens_of_engines_are_as_they_are_stored() {
        for (width, height, engines, selected, name) in [
            (40, 10, 2, 1, "engines-40x10.txt"),
            (60, 15, 1, 0, "engines-60x15.txt"),
            (80, 24, 2, 1, "engines-80x24.txt"),
            (200, 50, 8, 7, "engines-200x50.txt"),
        ] {
            let model = model(engines, 100);
            is_as_kept(&drawn(width, height, &model, &of_engine(&model, selected)), name);
        }
    }

    #[test]
    fn no_size_is_too_small_or_too_large_to_be_drawn() {
        for (engines, seconds) in [(0, 0), (1, 1), (1, 2), (3, 600), (40, 3)] {
            let model = model(engines, seconds);
            for width in [1, 2, 10, 39, 40, 41, 59, 60, 61, 79, 109, 110, 300] {
                for height in [1, 2, 9, 10, 11, 14, 15, 16, 23, 24, 25, 39, 40, 80] {
                    let mut state = of_engine(&model, engines.saturating_sub(1));
                    drawn(width, height, &model, &state);
                    state.help = Some(7);
                    drawn(width, height, &model, &state);
                    for list in [List::All, List::Routes, List::Servers, List::Channels] {
                        drawn(width, height, &model, &State { list, ..State::new(1000) });
                    }
                }
            }
        }
        let lines = drawn(39, 10, &model(1, 2), &State::new(1000));
        assert!(lines[0].starts_with("at least 40 columns and 10 rows"), "{lines:?}");
    }

    #[test]
    fn a_small_screen_shows_each_list_and_says_what_is_left_out() {
        let mut model = model(1, 3);
        let mut next = snapshot(1, 4);
        next.traffic = Some(traffic(20, 12, 30, 4));
        model.take(next);
        let lines = drawn(40, 10, &model, &State::new(1000));
        let has = |part: &str| {
            assert!(lines.iter().any(|line| line.contains(part)), "{part} in {lines:#?}")
        };
        for part in ["ROUTES", "SERVERS", "CHANNELS", "req/s", "… 19 more routes (2)"] {
            has(part);
        }
        // Each is complete if it has the screen to itself.
        let mut names = std::collections::BTreeSet::new();
        for scroll in 0..20 {
            let state = State { list: List::Routes, scroll: scroll.into(), ..State::new(1000) };
            let lines = drawn(60, 10, &model, &state);
            names.extend(lines.iter().filter_map(|line| {
                Some(line.split_once("example.org/")?.1.split(' ').next()?.to_owned())
            }));
        }
        assert_eq!(names.len(), 20, "{names:?}");
        let state = State { list: List::Servers, scroll: usize::MAX.into(), ..State::new(1000) };
        assert!(drawn(60, 10, &model, &state)[8].contains("10.0.0."));
    }

    #[test]
    fn rows_are_sorted_filtered_and_left_out_where_they_are_empty() {
        let mut model = model(1, 3);
        let names = |state: &State, model: &Model| -> Vec<String> {
            let lines = drawn(100, 30, model, state);
            let routes = lines
                .iter()
                .filter(|line| line.contains("example.org/") || line.contains("no route"));
            routes.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
        };
        let all = ["example.org/", "example.org/api/1", "example.org/api/2"];
        assert_eq!(names(&State::new(1000), &model), all);
        let state = State { order: Order::Errors, ..State::new(1000) };
        assert_eq!(names(&state, &model), all);
        let state = State { filter: "API/2".to_owned(), ..State::new(1000) };
        assert_eq!(names(&state, &model), [all[2]]);
        assert!(!drawn(100, 30, &model, &state).join("\n").contains("CHANNELS"));
        let state = State { filter: "rooms".to_owned(), ..State::new(1000) };
        let text = drawn(100, 30, &model, &state).join("\n");
        assert!(text.contains("/rooms/1") && !text.contains("ROUTES"), "{text}");
        let state = State { filter: "nothing like that".to_owned(), ..State::new(1000) };
        assert!(drawn(100, 30, &model, &state).join("\n").contains("no name has \"nothing like"));
        // The server that is down comes first.
        let text = drawn(100, 30, &model, &State::new(1000)).join("\n");
        assert!(text.find("10.0.0.1:8080") < text.find("10.0.0.0:8080"), "{text}");
        assert!(text.contains("DOWN") && text.contains("ROUTES 3, 1 unused"), "{text}");
        let mut next = snapshot(1, 4);
        next.traffic = Some(traffic(0, 0, 0, 4));
        model.take(next);
        let text = drawn(100, 30, &model, &State::new(1000)).join("\n");
        assert!(text.contains("no request has come yet"), "{text}");
    }

    #[test]
    fn a_process_without_figures_of_requests_says_why() {
        let mut model = Model::default();
        for (program, part) in [("proxy", "sees no requests"), ("serve", "older than this")] {
            let mut next = snapshot(1, 4);
            (next.traffic, next.program) = (None, program.to_owned());
            model.take(next);
            let mut state = State::new(1000);
            assert!(drawn(80, 24, &model, &state).join("\n").contains("slowest turns"));
            state.press(Key::Tab, &model);
            assert!(drawn(40, 10, &model, &state).join("\n").contains(part));
        }
    }

    #[test]
    fn the_view_shows_problems_and_the_chosen_settings() {
        let mut model = model(8, 3);
        let mut state = of_engine(&model, 7);
        for _ in 0..2 {
            state.press(Key::Character('s'), &model);
        }
        (state.paused, state.silent, state.interval_ms) = (true, Some(4), 250);
        let text = drawn(120, 30, &model, &state).join("\n");
        for part in ["paused", "silent for 4 s", "7?", "+/- 0.25 s", "engine 7", "by calls"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let mut other = snapshot(1, 4);
        other.engines[0].costs.clear();
        other.engines[0].slowest_lately.clear();
        model.take(other);
        let text = drawn(80, 24, &model, &of_engine(&model, 0)).join("\n");
        assert!(text.contains("does not place by cost") && text.contains("none was noticed"));
        // The filter that is typed shows.
        let mut state = State::new(1000);
        for key in "/abc".chars() {
            state.press(Key::Character(key), &model);
        }
        assert!(drawn(40, 10, &model, &state)[9].starts_with("/abc_"));
    }

    #[test]
    fn help_names_the_keys_and_the_columns_of_its_page() {
        let model = model(1, 3);
        for (state, part) in [(State::new(1000), "out/s"), (of_engine(&model, 0), "break-even")] {
            let mut all = String::new();
            for scrolled in 0..40 {
                let state = State { help: Some(scrolled), ..state.clone() };
                all += &drawn(40, 10, &model, &state).join("\n");
            }
            for part in ["q, Ctrl-C", part] {
                assert!(all.contains(part), "{part} in {all}");
            }
        }
    }
}
