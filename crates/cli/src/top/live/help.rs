//! The help: the keys, and the meaning of the columns of a page.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};

use super::columns::bold;
use super::state::Page;

const KEYS: &[&str] = &[
    "q, Ctrl-C  end",
    "Tab        requests or engines",
    "p, blank   hold the picture",
    "+ -        a longer or shorter interval",
    "s          sort by another figure",
];

const KEYS_OF_REQUESTS: &[&str] = &[
    "1 2 3 4    all, routes, servers, channels",
    "Left Right the list before, the next one",
    "Up Down    scroll (PgUp PgDn Home End)",
    "/          show names with a text only",
    "Esc        show all names; then end",
];

const KEYS_OF_ENGINES: &[&str] = &["Up Down    select an engine", "Esc        end"];

const REQUESTS: &[&str] = &[
    "req/s: requests a second",
    "p50 p99: half, and 99 of 100, of the requests of the last ten seconds took at most this time \
     to the head of the response. It is known as far as two bounds of the histogram: 0.5, 1, 2.5, \
     5, 10, 25, 50, 100, 250, 500 ms, 1, 2.5, 5, 10 s",
    "4xx/s 5xx/s: responses of these classes a second",
    "4xx 5xx requests: since the start",
    "state: up, slow (start), drain and off (set by an operator), PAUSE, EJECT, DOWN, or how many \
     processes have found a server up",
    "fail/s: requests a second that failed on a server, retried ones included",
    "now: requests under way; idle: connections that are kept",
    "subs: subscribers of a channel now",
    "msg/s: messages published a second",
    "out/s: messages that subscribers got a second, counted for each",
    "drop/s: messages that slow subscribers did not get, a second",
];

/// The meaning of the ratio in the head.
const HEAD: &str = "active/all: connections on which bytes moved in the last second, a minute and \
                    an hour, of all connections (parked ones and those with a keeper included)";

/// The meaning of the columns of engines, each in at most 60 columns.
pub(super) const ENGINES: &[&str] = &[
    "hot: poll array; cold: epoll; ratio: the ready part of a set",
    "→hot →cold: moves between them; waits, event, calls: each /s",
    "slot s: a descriptor in a poll, ns; event e: one by epoll",
    "move D: to the array and back; rise: evidence that it takes",
    "break-even: the ratio from which poll is cheaper than epoll",
    "writers: that ratio if waking costs the writers, too",
];

/// Draws the help for a page from a line on.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, page: Page, scrolled: usize) {
    let (keys, columns) = match page {
        Page::Requests => (KEYS_OF_REQUESTS, REQUESTS),
        Page::Engines => (KEYS_OF_ENGINES, ENGINES),
    };
    let mut lines = vec![Line::styled("keys", bold())];
    lines.extend(KEYS.iter().chain(keys).map(|text| Line::from(*text)));
    lines.push(Line::styled("columns", bold()));
    lines.extend([HEAD].iter().chain(columns).map(|text| Line::from(*text)));
    // At most all of it can be scrolled away but a line: wrapped lines are not counted here.
    let wrapped = |line: &Line<'_>| line.width().div_ceil(usize::from(area.width).max(1)).max(1);
    let all: usize = lines.iter().map(wrapped).sum();
    let last = all.saturating_sub(usize::from(area.height)) + 2;
    let first = u16::try_from(scrolled.min(last)).unwrap_or(u16::MAX);
    let shown = Paragraph::new(lines).wrap(Wrap { trim: false }).scroll((first, 0));
    frame.render_widget(shown, area);
}
