//! The user's choices, and the keys that change them.

use std::cell::Cell;

use super::keys::Key;
use crate::top::model::Model;

/// The intervals that the keys select, in milliseconds.
const STEPS: [u64; 10] = [50, 100, 250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

/// The most characters of a filter.
const FILTER: usize = 60;

/// The rows by which a page is scrolled on any screen.
const SCREENFUL: usize = 10;

/// A page of the screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Page {
    Requests,
    Engines,
}

superpoll::named! {
    /// The lists of the page of requests.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) enum List {
        /// The beginning of each list.
        #[default]
        All = "all",
        Routes = "routes",
        Servers = "servers",
        Channels = "channels",
    }
}

impl List {
    /// Returns the list so many places further.
    fn step(self, by: usize) -> List {
        List::ALL[(self as usize + by) % List::ALL.len()]
    }
}

superpoll::named! {
    /// The order of the engines.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) enum EngineOrder {
        #[default]
        Number = "number",
        Events = "events",
        Calls = "calls",
        Moves = "moves",
    }
}

impl EngineOrder {
    /// Returns the next order.
    pub(super) fn next(self) -> EngineOrder {
        EngineOrder::ALL[(self as usize + 1) % EngineOrder::ALL.len()]
    }
}

superpoll::named! {
    /// The order of routes, servers and channels.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) enum Order {
        /// By requests a second; channels by subscribers.
        #[default]
        Requests = "requests",
        /// By the ninety-ninth percentile; channels by messages a second.
        Slowest = "p99",
        /// By failed requests a second; channels by messages that slow subscribers do not get.
        Errors = "errors",
        Name = "name",
    }
}

impl Order {
    /// Returns the next order.
    pub(super) fn next(self) -> Order {
        Order::ALL[(self as usize + 1) % Order::ALL.len()]
    }
}

/// The user's choices, and messages to the user.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// `None`: the page of requests if the process has any figures of them.
    pub chosen_page: Option<Page>,
    /// The number of the engine that is selected.
    pub engine: usize,
    pub engine_order: EngineOrder,
    pub list: List,
    pub order: Order,
    /// The rows of the list that are above the screen.
    pub scroll: Cell<usize>,
    /// The text that names have to have.
    pub filter: String,
    /// Keys are text of the filter.
    pub is_typing: bool,
    /// The lines of the help that are above the screen, if it is shown.
    pub help: Option<usize>,
    pub paused: bool,
    pub interval_ms: u64,
    /// The number of seconds without a snapshot.
    pub silent: Option<u64>,
}

/// The effect of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    None,
    /// The process is to send snapshots at another interval.
    Interval,
    Quit,
}

/// Returns the engines in the order in which they are shown.
pub(super) fn engines(model: &Model, order: EngineOrder) -> Vec<usize> {
    let mut numbers: Vec<usize> = model.tracks.keys().copied().collect();
    let key = |number: &usize| {
        let rates = model.tracks[number].rates.as_ref();
        rates.map_or(0.0, |rates| match order {
            EngineOrder::Number => 0.0,
            EngineOrder::Events => rates.events,
            EngineOrder::Calls => rates.calls,
            EngineOrder::Moves => rates.to_hot + rates.to_cold,
        })
    };
    numbers.sort_by(|one, other| key(other).total_cmp(&key(one)));
    numbers
}

impl State {
    pub(super) fn new(interval_ms: u64) -> State {
        State { interval_ms, ..State::default() }
    }

    /// Returns the page that is shown.
    pub(super) fn page(&self, model: &Model) -> Page {
        let has_requests = model.snapshot.is_none() || model.traffic.is_some();
        self.chosen_page.unwrap_or(if has_requests { Page::Requests } else { Page::Engines })
    }

    /// Applies a key.
    pub(super) fn press(&mut self, key: Key, model: &Model) -> Effect {
        if key == Key::Interrupt {
            return Effect::Quit;
        }
        if self.is_typing {
            self.edit(key);
            return Effect::None;
        }
        if let Some(lines) = self.help {
            self.help = match key {
                Key::Up => Some(lines.saturating_sub(1)),
                Key::Down => Some(lines.saturating_add(1)),
                Key::PageUp => Some(lines.saturating_sub(SCREENFUL)),
                Key::PageDown => Some(lines.saturating_add(SCREENFUL)),
                Key::Character('q' | 'Q') => return Effect::Quit,
                _ => None,
            };
            return Effect::None;
        }
        let before = self.interval_ms;
        match key {
            Key::Escape if !self.filter.is_empty() => self.filter.clear(),
            Key::Escape | Key::Character('q' | 'Q') => return Effect::Quit,
            Key::Character('p' | 'P' | ' ') => self.paused = !self.paused,
            Key::Character('+' | '=') => {
                let longer = STEPS.iter().find(|&&step| step > before);
                self.interval_ms = longer.copied().unwrap_or(before);
            }
            Key::Character('-' | '_') => {
                let shorter = STEPS.iter().rev().find(|&&step| step < before);
                self.interval_ms = shorter.copied().unwrap_or(before);
            }
            Key::Character('?' | 'h' | 'H') => self.help = Some(0),
            Key::Tab | Key::BackTab => {
                let other = match self.page(model) {
                    Page::Requests => Page::Engines,
                    Page::Engines => Page::Requests,
                };
                self.chosen_page = Some(other);
            }
            _ => match self.page(model) {
                Page::Requests => self.press_for_requests(key),
                Page::Engines => self.press_for_engines(key, model),
            },
        }
        if self.interval_ms == before { Effect::None } else { Effect::Interval }
    }

    fn edit(&mut self, key: Key) {
        match key {
            Key::Escape => {
                self.filter.clear();
                self.is_typing = false;
            }
            Key::Enter | Key::Tab => self.is_typing = false,
            Key::Backspace => drop(self.filter.pop()),
            Key::Character(character) if self.filter.chars().count() < FILTER => {
                self.filter.push(character);
            }
            _ => {}
        }
        self.scroll.set(0);
    }

    fn press_for_requests(&mut self, key: Key) {
        let by = match key {
            Key::Character('s' | 'S') => {
                self.order = self.order.next();
                self.scroll.set(0);
                return;
            }
            Key::Character('/') => {
                self.is_typing = true;
                return;
            }
            Key::Character(digit @ '1'..='4') => {
                self.show(List::ALL[digit as usize - '1' as usize]);
                return;
            }
            Key::Right => return self.show(self.list.step(1)),
            Key::Left => return self.show(self.list.step(List::ALL.len() - 1)),
            Key::Home => 0,
            Key::End => usize::MAX,
            Key::Up => self.scroll.get().saturating_sub(1),
            Key::Down => self.scroll.get().saturating_add(1),
            Key::PageUp => self.scroll.get().saturating_sub(SCREENFUL),
            Key::PageDown => self.scroll.get().saturating_add(SCREENFUL),
            _ => return,
        };
        if self.list == List::All && by > self.scroll.get() {
            // A list that continues has the screen to itself.
            self.list = List::Routes;
        }
        self.scroll.set(by);
    }

    fn show(&mut self, list: List) {
        self.list = list;
        self.scroll.set(0);
    }

    fn press_for_engines(&mut self, key: Key, model: &Model) {
        let numbers = engines(model, self.engine_order);
        let at = numbers.iter().position(|&number| number == self.engine).unwrap_or(0);
        let count = numbers.len().max(1);
        let at = match key {
            Key::Character('s' | 'S') => {
                self.engine_order = self.engine_order.next();
                return;
            }
            Key::Down | Key::Right => (at + 1) % count,
            Key::Up | Key::Left => (at + count - 1) % count,
            Key::Home => 0,
            Key::End => count - 1,
            Key::PageUp => at.saturating_sub(SCREENFUL),
            Key::PageDown => (at + SCREENFUL).min(count - 1),
            _ => return,
        };
        self.engine = numbers.get(at).copied().unwrap_or(0);
    }

    /// Returns the first row that is shown of a list with `rows` rows, on a screen that shows
    /// `shown` of them.
    pub(super) fn first_row(&self, rows: usize, shown: usize) -> usize {
        let first = self.scroll.get().min(rows.saturating_sub(shown));
        // The next key continues from here, also from the end.
        self.scroll.set(first);
        first
    }

    /// Whether the filter admits a name.
    pub(super) fn admits(&self, name: &str) -> bool {
        self.filter.is_empty() || name.to_lowercase().contains(&self.filter.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use superpoll_gateway::control::INTERVALS;

    use super::*;
    use crate::top::model::tests::model;

    fn press(state: &mut State, model: &Model, keys: &str) {
        for character in keys.chars() {
            assert_eq!(state.press(Key::Character(character), model), Effect::None);
        }
    }

    #[test]
    fn intervals_are_those_that_processes_take() {
        let model = model(1, 3);
        let mut state = State::new(1000);
        assert_eq!(state.press(Key::Character('+'), &model), Effect::Interval);
        assert_eq!(state.interval_ms, 2000);
        for _ in 0..20 {
            state.press(Key::Character('+'), &model);
        }
        assert_eq!(state.press(Key::Character('+'), &model), Effect::None);
        assert_eq!(state.interval_ms, 60_000);
        for _ in 0..20 {
            state.press(Key::Character('-'), &model);
        }
        assert_eq!(state.interval_ms, 50);
        assert!(STEPS.iter().all(|step| INTERVALS.contains(step)) && STEPS.is_sorted());
    }

    #[test]
    fn the_page_of_requests_comes_first_where_there_are_any() {
        let mut model = model(3, 3);
        let mut state = State::new(1000);
        assert_eq!(state.page(&model), Page::Requests);
        state.press(Key::Tab, &model);
        assert_eq!(state.page(&model), Page::Engines);
        state.press(Key::BackTab, &model);
        assert_eq!(state.page(&model), Page::Requests);
        model.traffic = None;
        assert_eq!(State::new(1000).page(&model), Page::Engines);
        assert_eq!(State::new(1000).page(&Model::default()), Page::Requests);
    }

    #[test]
    fn engines_are_selected_in_the_order_in_which_they_are_shown() {
        let model = model(3, 3);
        let mut state = State::new(1000);
        state.press(Key::Tab, &model);
        let down = |state: &mut State| {
            state.press(Key::Down, &model);
            state.engine
        };
        let selected = [(); 4].map(|()| down(&mut state));
        assert_eq!(selected, [1, 2, 0, 1]);
        state.press(Key::Up, &model);
        press(&mut state, &model, "s");
        // Sorted by events, engine 2 comes first and engine 0 last, after which the order starts
        // again.
        assert_eq!((down(&mut state), state.engine_order), (2, EngineOrder::Events));
        assert_eq!(engines(&model, EngineOrder::Calls), [2, 1, 0]);
        state.press(Key::End, &model);
        assert_eq!(state.engine, 0);
        state.press(Key::Down, &Model::default());
        assert_eq!(state.engine, 0);
        assert_eq!(EngineOrder::Moves.next(), EngineOrder::Number);
    }

    #[test]
    fn lists_are_chosen_scrolled_and_sorted() {
        let model = model(1, 3);
        let mut state = State::new(1000);
        press(&mut state, &model, "3s");
        assert_eq!((state.list, state.order), (List::Servers, Order::Slowest));
        state.press(Key::Right, &model);
        assert_eq!(state.list, List::Channels);
        state.press(Key::Right, &model);
        assert_eq!(state.list, List::All);
        state.press(Key::Up, &model);
        assert_eq!(state.list, List::All);
        state.press(Key::Down, &model);
        state.press(Key::PageDown, &model);
        assert_eq!((state.list, state.scroll.get()), (List::Routes, 11));
        state.press(Key::End, &model);
        assert_eq!(state.first_row(100, 30), 70);
        state.press(Key::Up, &model);
        assert_eq!((state.first_row(100, 30), state.first_row(3, 30)), (69, 0));
        state.press(Key::Home, &model);
        assert_eq!(state.scroll.get(), 0);
        assert_eq!(Order::Name.next(), Order::Requests);
    }

    #[test]
    fn keys_are_text_while_a_filter_is_typed_and_help_closes_with_any_other_key() {
        let model = model(1, 3);
        let mut state = State::new(1000);
        press(&mut state, &model, "/qAp");
        state.press(Key::Backspace, &model);
        assert_eq!((&*state.filter, state.is_typing, state.paused), ("qA", true, false));
        assert!(state.admits("xQax") && !state.admits("q a"));
        state.press(Key::Enter, &model);
        press(&mut state, &model, "p");
        assert!(state.paused && !state.is_typing);
        // The first escape ends the filter, the second one the program.
        assert_eq!(state.press(Key::Escape, &model), Effect::None);
        assert!(state.filter.is_empty() && state.admits("q a"));
        press(&mut state, &model, "?");
        state.press(Key::Down, &model);
        assert_eq!(state.help, Some(1));
        state.press(Key::Escape, &model);
        assert_eq!(state.help, None);
        assert_eq!(state.press(Key::Escape, &model), Effect::Quit);
        for typing in [true, false] {
            state.is_typing = typing;
            assert_eq!(state.press(Key::Interrupt, &model), Effect::Quit);
        }
        state.is_typing = true;
        press(&mut state, &model, &"x".repeat(2 * FILTER));
        assert_eq!(state.filter.len(), FILTER);
    }
}
