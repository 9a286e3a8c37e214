//! The page of requests: routes, servers of upstreams, and channels.
//!
//! Each list begins with a line that names its columns. All three share the screen, each with the
//! rows that come first in its order, or one has the screen to itself and can be scrolled. Lists
//! that are empty are left out, and so are routes without requests and channels that are not used.
//! Rows that remain show the requests of the last while.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};
use superpoll_gateway::telemetry::traffic::{ServerCondition, ServerTraffic};

use super::columns::{Column, bold, dim, fit, fitting, header, row};
use super::state::{List, Order, State};
use crate::top::figures::{quantile, rate, trend, whole};
use crate::top::model::Model;
use crate::top::traffic::{Channel, Route, Server, TrafficModel};

/// The most rows of a history.
const TALLEST: u16 = 8;

const ROUTES: &[Column<Route>] = &[
    Column { title: "req/s", width: 5, from: 0, of: |route| rate(route.track.requests()) },
    Column { title: "p50", width: 6, from: 60, of: |route| quantile(route.track.quantiles.p50) },
    Column { title: "p99", width: 6, from: 0, of: |route| quantile(route.track.quantiles.p99) },
    Column { title: "4xx/s", width: 5, from: 60, of: |route| rate(route.track.class(4)) },
    Column { title: "5xx/s", width: 5, from: 0, of: |route| rate(route.track.class(5)) },
    Column { title: "4xx", width: 5, from: 100, of: |route| whole(route.track.count(4)) },
    Column { title: "5xx", width: 5, from: 100, of: |route| whole(route.track.count(5)) },
    Column { title: "requests", width: 8, from: 80, of: |route| whole(route.track.total()) },
    Column { title: "of late", width: 20, from: 120, of: |route| trend(&route.track.trend, 20) },
];

const SERVERS: &[Column<Server>] = &[
    Column { title: "state", width: 5, from: 0, of: |server| short_state(&server.now) },
    Column { title: "req/s", width: 5, from: 0, of: |server| rate(server.requests()) },
    Column { title: "p50", width: 6, from: 60, of: |server| quantile(server.quantiles.p50) },
    Column { title: "p99", width: 6, from: 0, of: |server| quantile(server.quantiles.p99) },
    Column { title: "fail/s", width: 6, from: 50, of: |server| rate(server.failures()) },
    Column { title: "now", width: 5, from: 60, of: |server| whole(server.now.active) },
    Column { title: "failed", width: 6, from: 80, of: |server| whole(server.now.failures) },
    Column { title: "retried", width: 7, from: 100, of: |server| whole(server.now.retries) },
    Column { title: "idle", width: 5, from: 100, of: |server| whole(server.now.idle) },
    Column { title: "requests", width: 8, from: 100, of: |server| whole(server.now.requests) },
];

const CHANNELS: &[Column<Channel>] = &[
    Column { title: "subs", width: 5, from: 0, of: |channel| whole(channel.now.subscribers) },
    Column { title: "msg/s", width: 5, from: 0, of: |channel| rate(channel.published()) },
    Column { title: "out/s", width: 5, from: 60, of: |channel| rate(channel.delivered()) },
    Column { title: "drop/s", width: 6, from: 0, of: |channel| rate(channel.dropped()) },
    Column { title: "dropped", width: 7, from: 80, of: |channel| whole(channel.now.dropped) },
    Column { title: "messages", width: 8, from: 80, of: |channel| whole(channel.now.published) },
];

/// Returns the state of a server in a few columns.
fn short_state(now: &ServerTraffic) -> String {
    let condition = match now.condition {
        ServerCondition::Up => "up",
        ServerCondition::SlowStart => "slow",
        ServerCondition::Drain => "drain",
        ServerCondition::SetDown => "off",
        ServerCondition::Paused => "PAUSE",
        ServerCondition::Ejected => "EJECT",
        ServerCondition::Unhealthy => "DOWN",
    };
    match (now.processes_up, now.processes) {
        // An older server tells no condition.
        (0, _) if matches!(condition, "up" | "slow") => "DOWN".to_owned(),
        (up, all) if up > 0 && up < all => format!("{up}/{all}"),
        _ => condition.to_owned(),
    }
}

/// The lines of a list.
struct Listed {
    list: List,
    header: Line<'static>,
    rows: Vec<Line<'static>>,
}

impl Listed {
    /// Returns the lines that all of it has.
    fn height(&self) -> usize {
        1 + self.rows.len()
    }
}

/// Sorts by a value, the greatest first, and then by name.
fn sort_by_value<R>(rows: &mut [&R], value: impl Fn(&R) -> f64, name: impl Fn(&R) -> &str) {
    rows.sort_by(|one, other| {
        value(other).total_cmp(&value(one)).then_with(|| name(one).cmp(name(other)))
    });
}

fn routes(traffic: &TrafficModel, state: &State, width: u16) -> Listed {
    let (columns, room) = fitting(ROUTES, width);
    let mut shown: Vec<&Route> = traffic.routes.iter().collect();
    shown.retain(|route| route.track.total() > 0 && state.admits(&route.name));
    let value = |route: &Route| match state.order {
        Order::Requests => route.track.requests().unwrap_or(0.0),
        Order::Slowest => route.track.quantiles.p99.map_or(0.0, |p99| p99.nanos() as f64),
        Order::Errors => route.track.class(4).unwrap_or(0.0) + route.track.class(5).unwrap_or(0.0),
        Order::Name => 0.0,
    };
    sort_by_value(&mut shown, value, |route| &route.name);
    let style = |route: &Route| match route.track.class(5) {
        Some(rate) if rate > 0.0 => Style::new().fg(Color::Red),
        _ => Style::new(),
    };
    let mut rows: Vec<_> =
        shown.iter().map(|one| row(&one.name, *one, &columns, room, style(one))).collect();
    if traffic.routes_left_out > 0 {
        let text = format!("{} routes with fewer requests", traffic.routes_left_out);
        rows.push(Line::styled(fit(&text, usize::from(width)), dim()));
    }
    let unused = traffic.routes.iter().filter(|route| route.track.total() == 0).count();
    let mut name = format!("ROUTES {}", shown.len());
    if unused > 0 {
        name = format!("{name}, {unused} unused");
    }
    Listed { list: List::Routes, header: header(&name, &columns, room), rows }
}

fn servers(traffic: &TrafficModel, state: &State, width: u16) -> Listed {
    let (columns, room) = fitting(SERVERS, width);
    let mut shown: Vec<&Server> = traffic.servers.iter().collect();
    shown.retain(|server| state.admits(&server.name));
    let is_down = |server: &Server| server.now.processes_up < server.now.processes;
    let value = |server: &Server| match state.order {
        // Those that are down come first.
        Order::Requests if is_down(server) => f64::MAX,
        Order::Requests => server.requests().unwrap_or(0.0),
        Order::Slowest => server.quantiles.p99.map_or(0.0, |p99| p99.nanos() as f64),
        Order::Errors => server.failures().unwrap_or(0.0),
        Order::Name => 0.0,
    };
    sort_by_value(&mut shown, value, |server| &server.name);
    let style = |server: &Server| match (is_down(server), server.failures()) {
        (true, _) if server.now.condition.is_set() => Style::new().fg(Color::Yellow),
        (true, _) => Style::new().fg(Color::Red),
        (false, Some(rate)) if rate > 0.0 => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    };
    let mut rows: Vec<_> =
        shown.iter().map(|one| row(&one.name, *one, &columns, room, style(one))).collect();
    if traffic.servers_left_out > 0 {
        let text = format!("{} servers that are up, with fewer requests", traffic.servers_left_out);
        rows.push(Line::styled(fit(&text, usize::from(width)), dim()));
    }
    let name = format!("SERVERS {}", traffic.servers.len() + traffic.servers_left_out);
    Listed { list: List::Servers, header: header(&name, &columns, room), rows }
}

fn channels(traffic: &TrafficModel, state: &State, width: u16) -> Listed {
    let (columns, room) = fitting(CHANNELS, width);
    let mut shown: Vec<&Channel> = traffic.channels.iter().collect();
    let is_used = |channel: &Channel| channel.now.subscribers > 0 || channel.now.published > 0;
    shown.retain(|channel| is_used(channel) && state.admits(&channel.name));
    let value = |channel: &Channel| match state.order {
        Order::Requests => channel.now.subscribers as f64,
        Order::Slowest => channel.published().unwrap_or(0.0),
        Order::Errors => channel.dropped().unwrap_or(0.0),
        Order::Name => 0.0,
    };
    sort_by_value(&mut shown, value, |channel| &channel.name);
    let style = |channel: &Channel| match channel.dropped() {
        Some(rate) if rate > 0.0 => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    };
    let mut rows: Vec<_> =
        shown.iter().map(|one| row(&one.name, *one, &columns, room, style(one))).collect();
    if let Some(rest) = traffic.other_channels().filter(|_| state.filter.is_empty()) {
        rows.push(row(&rest.name, &rest, &columns, room, style(&rest)));
    }
    let name = format!("CHANNELS {}", whole(traffic.channel_count as u64));
    Listed { list: List::Channels, header: header(&name, &columns, room), rows }
}

/// Divides lines among lists: each list gets the number of lines that it wants, or an equal share
/// of the rest.
fn shares(wanted: &[usize], lines: usize) -> Vec<usize> {
    let mut shares = vec![0; wanted.len()];
    let mut left = lines;
    while left > 0 {
        let before = left;
        for (share, wanted) in shares.iter_mut().zip(wanted) {
            if left > 0 && *share < *wanted {
                *share += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    shares
}

/// Draws the page into an area.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, state: &State) {
    let Some(traffic) = &model.traffic else {
        return frame.render_widget(Paragraph::new(missing(model)).style(dim()), area);
    };
    let [top, area] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(summary(traffic)), top);
    let all = [
        routes(traffic, state, area.width),
        servers(traffic, state, area.width),
        channels(traffic, state, area.width),
    ];
    if let Some(one) = all.iter().find(|listed| listed.list == state.list) {
        return alone(frame, area, one, state);
    }
    let lists: Vec<Listed> = all.into_iter().filter(|listed| !listed.rows.is_empty()).collect();
    if lists.is_empty() {
        let text = match state.filter.is_empty() {
            true => "no request has come yet".to_owned(),
            false => format!("no name has {:?} in it; Esc shows all", state.filter),
        };
        return frame.render_widget(Paragraph::new(Line::styled(text, dim())), area);
    }
    let height = usize::from(area.height);
    let wanted: Vec<usize> = lists.iter().map(Listed::height).collect();
    let shares = shares(&wanted, height);
    let used: usize = shares.iter().sum();
    // An empty line between lists, if there is room.
    let gap = usize::from(height >= used + lists.len() - 1 && height > 12);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (listed, share) in lists.into_iter().zip(shares) {
        if gap > 0 && !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(beginning(listed, share));
    }
    let used = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let rest = area.height.saturating_sub(used);
    let lists = [
        Constraint::Length(used),
        Constraint::Min(0),
        Constraint::Length(histories(traffic, rest)),
    ];
    let [body, _, history] = Layout::vertical(lists).areas(area);
    frame.render_widget(Paragraph::new(lines), body);
    past(frame, history, traffic);
}

/// Returns the reason for which there are no figures.
fn missing(model: &Model) -> Vec<Line<'static>> {
    let Some(snapshot) = &model.snapshot else { return Vec::new() };
    let (version, own) = (&snapshot.version, env!("CARGO_PKG_VERSION"));
    match &*snapshot.program {
        "proxy" => vec!["superpoll proxy sees no requests;".into(), "Tab: its engines".into()],
        _ => vec![
            format!("this server (version {version}) does not tell").into(),
            "of its requests: it is older than this".into(),
            format!("program (version {own}); Tab: its engines").into(),
        ],
    }
}

/// Returns the figures of all requests and channels in a line, the most telling ones first.
fn summary(traffic: &TrafficModel) -> Line<'static> {
    let total = &traffic.total;
    let mut spans = vec![
        Span::styled(rate(total.requests()), bold()),
        " req/s".into(),
        format!("  p50 {}", quantile(total.quantiles.p50)).into(),
        format!(" p99 {}", quantile(total.quantiles.p99)).into(),
    ];
    let failed = total.class(5).is_some_and(|rate| rate > 0.0);
    let style = if failed { bold().fg(Color::Red) } else { Style::new() };
    spans.push(Span::styled(format!("  5xx {}/s", rate(total.class(5))), style));
    spans.push(format!("  4xx {}/s", rate(total.class(4))).into());
    if traffic.channel_count > 0 {
        let messages = &traffic.messages;
        spans.push(format!("  {} subs", whole(messages.now.subscribers)).into());
        spans.push(format!("  {} msg/s", rate(messages.published())).into());
        spans.push(format!("  {} out/s", rate(messages.delivered())).into());
    }
    Line::from(spans)
}

/// Returns the first lines of a list. The last line gives the number of the rows that are left out.
fn beginning(mut listed: Listed, lines: usize) -> Vec<Line<'static>> {
    let rows = lines.saturating_sub(1);
    let all = listed.rows.len();
    if rows < all && rows > 1 {
        let (hidden, key) = (all - (rows - 1), listed.list as u8 + 1);
        listed.rows.truncate(rows - 1);
        let name = listed.list.name();
        listed.rows.push(Line::styled(format!("… {hidden} more {name} ({key})"), dim()));
    }
    let shown = listed.rows.into_iter().take(rows);
    std::iter::once(listed.header).chain(shown).take(lines).collect()
}

/// Draws one list that has the screen to itself.
fn alone(frame: &mut Frame<'_>, area: Rect, listed: &Listed, state: &State) {
    let [top, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(listed.header.clone()), top);
    if listed.rows.is_empty() {
        let text = format!("no {} to show", listed.list.name());
        return frame.render_widget(Paragraph::new(Line::styled(text, dim())), body);
    }
    let room = usize::from(body.height);
    let first = state.first_row(listed.rows.len(), room);
    let rows: Vec<_> = listed.rows.iter().skip(first).take(room).cloned().collect();
    frame.render_widget(Paragraph::new(rows), body);
}

/// A history: its name, its colour and its values.
type History<'a> = (&'static str, Color, Vec<u64>, String);

fn all_histories(traffic: &TrafficModel) -> Vec<History<'_>> {
    let values = |history: &std::collections::VecDeque<f64>| -> Vec<u64> {
        // Rates below one a second show as well.
        history.iter().map(|value| (value * 100.0).round() as u64).collect()
    };
    let failed = (traffic.total.class(4), traffic.total.class(5));
    let failed = failed.0.zip(failed.1).map(|(client, server)| client + server);
    let mut all = vec![
        ("req/s", Color::Cyan, values(&traffic.total.trend), rate(traffic.total.requests())),
        ("errors/s", Color::Red, values(&traffic.errors), rate(failed)),
    ];
    if traffic.channel_count > 0 {
        let delivered = rate(traffic.messages.delivered());
        all.push(("out/s", Color::Green, values(&traffic.delivered), delivered));
    }
    all
}

/// Returns the rows that histories take of those that are left.
fn histories(traffic: &TrafficModel, left: u16) -> u16 {
    let count = all_histories(traffic).len() as u16;
    match left / count {
        0 => 0,
        each => each.min(TALLEST) * count,
    }
}

fn past(frame: &mut Frame<'_>, area: Rect, traffic: &TrafficModel) {
    let all = all_histories(traffic);
    let each = area.height / all.len() as u16;
    if each == 0 {
        return;
    }
    let areas = Layout::vertical(vec![Constraint::Length(each); all.len()]).split(area);
    for ((name, color, values, last), area) in all.into_iter().zip(areas.iter()) {
        let [label, line] =
            Layout::horizontal([Constraint::Length(15), Constraint::Min(1)]).areas(*area);
        frame.render_widget(Paragraph::new(format!("{name:<8}{last:>6}")), label);
        let skipped = values.len().saturating_sub(usize::from(line.width));
        let shown = Sparkline::default().data(values[skipped..].to_vec()).style(color);
        frame.render_widget(shown, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_fit_into_their_column() {
        let of = |condition, processes_up, processes| {
            short_state(&ServerTraffic { condition, processes_up, processes, ..Default::default() })
        };
        let states = [
            (ServerCondition::Up, 1, "up"),
            (ServerCondition::SlowStart, 1, "slow"),
            (ServerCondition::Drain, 0, "drain"),
            (ServerCondition::SetDown, 0, "off"),
            (ServerCondition::Paused, 0, "PAUSE"),
            (ServerCondition::Ejected, 0, "EJECT"),
            (ServerCondition::Unhealthy, 0, "DOWN"),
            (ServerCondition::Up, 0, "DOWN"),
        ];
        for (condition, up, expected) in states {
            assert_eq!(of(condition, up, 1), expected);
        }
        assert_eq!(of(ServerCondition::Ejected, 1, 2), "1/2");
    }

    #[test]
    fn lists_share_the_lines_and_leave_none_to_a_list_that_needs_no_more() {
        assert_eq!(shares(&[3, 3, 3], 30), [3, 3, 3]);
        assert_eq!(shares(&[100, 3, 4], 20), [13, 3, 4]);
        assert_eq!(shares(&[100, 100, 2], 12), [5, 5, 2]);
        assert_eq!(shares(&[5, 5, 5], 2), [1, 1, 0]);
        assert_eq!(shares(&[], 9), [] as [usize; 0]);
    }
}
