//! A snapshot as text, for `--once`.

use std::fmt::Write;

use superpoll_gateway::telemetry::snapshot::verdict;
use superpoll_gateway::telemetry::snapshot::{Costs, Engine, Set, Turn};

use super::figures::{quantile, ratio, time, turn};
use super::model::{Model, Rates, Track, calls};
use super::traffic::{Channel, Quantiles, TrafficModel};

/// The meaning of the ratio of connections.
const ACTIVE: &str =
    "active/all: connections on which bytes moved in the last second, of all connections.";

/// The meanings of the ratios of sets.
const SETS: [&str; 3] = [
    "hot ratio: descriptors that were ready, of those in the poll array, over its passes.",
    "cold ratio: descriptors that were ready, of those in the epoll set, over its waits.",
    "away ratio: descriptors that were ready, of those that a keeper watches.",
];

/// Formats a number, and its growth.
fn grows(count: u64, rate: Option<f64>) -> String {
    rate.map_or_else(|| count.to_string(), |rate| format!("{count} ({rate:.1}/s)"))
}

fn set(name: &str, set: &Set, of_late: Option<f64>) -> String {
    let ever = set.ratio_since(&Set::default());
    format!("{name} {}, ratio {} (ever {})", set.len, ratio(of_late), ratio(ever))
}

fn costs(costs: &Costs) -> String {
    let whole =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
    let known = costs.thresholds.as_ref();
    let how = if costs.measured { "measured" } else { "assumed" };
    format!(
        "{}: slot s {}, event e {:.0}, D {}, rise {} ns; break-even {} ({} with writers), {how}",
        costs.kind,
        whole(Some(known.map_or(costs.slot, |known| known.slot))),
        costs.event,
        whole(known.map(|known| known.round_trip)),
        whole(known.map(|known| known.rise)),
        ratio(costs.break_even),
        ratio(costs.break_even_with_writers),
    )
}

/// Formats all the data of a process.
pub(super) fn write(model: &Model) -> String {
    let mut text = String::new();
    let Some(snapshot) = &model.snapshot else { return text };
    let over = model.tracks.values().filter_map(|track| track.rates.as_ref());
    let seconds = over.map(|rates| rates.seconds).fold(0.0, f64::max);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "superpoll {} {}, process {}, back-end {}, up {}, {} connections; rates over {seconds:.1} s",
        snapshot.program,
        snapshot.version,
        snapshot.process,
        snapshot.backend,
        time(snapshot.uptime_ns),
        snapshot.connections,
    );
    if let Some(ratio) = &snapshot.active_ratio {
        let _ = writeln!(text, "active    {}", verdict(ratio, snapshot.watching.as_ref()));
        let _ = writeln!(text, "  in a minute {}; in an hour {}", ratio.minute, ratio.hour);
        let _ = writeln!(text, "  {ACTIVE}");
    }
    for line in SETS {
        let _ = writeln!(text, "  {line}");
    }
    if let Some(model) = &model.traffic {
        traffic(&mut text, model);
    }
    for track in model.tracks.values() {
        engine(&mut text, track);
    }
    text
}

fn quantiles(quantiles: &Quantiles) -> String {
    format!("p50 {}, p99 {}", quantile(quantiles.p50), quantile(quantiles.p99))
}

/// Formats routes that have had requests, servers, and channels that are used.
fn traffic(text: &mut String, model: &TrafficModel) {
    let mut line = |what: &str, name: &str, figures: String| {
        let _ = writeln!(text, "{what:<9} {name}: {figures}");
    };
    let used = model.routes.iter().filter(|route| route.track.total() > 0);
    let all = [("requests", "all routes", &model.total)];
    let routes = used.map(|route| ("route", &*route.name, &route.track));
    for (what, name, track) in all.into_iter().chain(routes) {
        let requests = grows(track.total(), track.requests());
        let class = |class| grows(track.count(class), track.class(class));
        let quantiles = quantiles(&track.quantiles);
        line(what, name, format!("{requests}, {quantiles}, 4xx {}, 5xx {}", class(4), class(5)));
    }
    for server in &model.servers {
        let now = &server.now;
        let figures = format!(
            "{}, requests {}, {}, failures {}, retries {}, under way {}, idle connections {}",
            now.state(),
            grows(now.requests, server.requests()),
            quantiles(&server.quantiles),
            grows(now.failures, server.failures()),
            now.retries,
            now.active,
            now.idle,
        );
        line("server", &server.name, figures);
    }
    if model.channel_count > 0 {
        let name = format!("all {} channels", model.channel_count);
        line("channels", &name, messages(&model.messages));
    }
    let is_used = |channel: &&Channel| channel.now.subscribers > 0 || channel.now.published > 0;
    for channel in model.channels.iter().filter(is_used) {
        line("channel", &channel.name, messages(channel));
    }
}

fn messages(channel: &Channel) -> String {
    let now = &channel.now;
    format!(
        "{} subscribers, published {}, delivered {}, dropped {}",
        now.subscribers,
        grows(now.published, channel.published()),
        grows(now.delivered, channel.delivered()),
        grows(now.dropped, channel.dropped()),
    )
}

fn engine(text: &mut String, track: &Track) {
    let Track { engine, rates, .. } = track;
    let rates = rates.as_ref();
    let per = |of: fn(&Rates) -> f64| rates.map(of);
    let Engine { number, hot, cold, away, .. } = engine;
    let busy = if engine.answers { "" } else { " (does not answer; as it was)" };
    let _ = writeln!(text, "engine {number}{busy}");
    let mut line = |name: &str, what: String| {
        let _ = writeln!(text, "  {name:<8} {what}");
    };
    let mut sets = vec![
        set("hot", hot, rates.and_then(|rates| rates.hot)),
        set("cold", cold, rates.and_then(|rates| rates.cold)),
    ];
    if away.len > 0 || engine.moves_away > 0 {
        sets.push(set("away", away, rates.and_then(|rates| rates.away)));
    }
    line("sets", sets.join("; "));
    let (to_hot, to_cold) = (per(|rates| rates.to_hot), per(|rates| rates.to_cold));
    line(
        "moves",
        format!(
            "{}to hot {}, to cold {}, compactions {}, hand-offs {}, away {}, back {}",
            engine.policy.iter().map(|policy| format!("policy {policy}: ")).collect::<String>(),
            grows(engine.moves_to_hot, to_hot),
            grows(engine.moves_to_cold, to_cold),
            engine.compactions,
            engine.hand_offs,
            engine.moves_away,
            engine.moves_back,
        ),
    );
    line(
        "loop",
        format!(
            "turns {}, waits {}, events {}, task runs {}",
            grows(engine.turns, per(|rates| rates.turns)),
            grows(engine.waits, per(|rates| rates.waits)),
            grows(engine.events, per(|rates| rates.events)),
            grows(engine.task_runs, per(|rates| rates.task_runs)),
        ),
    );
    line(
        "has",
        format!("{} tasks, {} timers, {} descriptors", engine.tasks, engine.timers, engine.sources),
    );
    if let Some(clients) = &engine.connections {
        line(
            "clients",
            format!(
                "accepted {}, refused {}, with a task {}, parked {}, requests under way {}, responses {}",
                clients.accepted,
                clients.refused,
                clients.active,
                clients.parked,
                clients.running,
                clients.responses,
            ),
        );
    }
    let all = calls(engine);
    let rate = |name: &str| {
        rates.and_then(|rates| Some(rates.by_name.iter().find(|(other, _)| other == name)?.1))
    };
    let mut named: Vec<(&str, u64)> = all.into_iter().collect();
    named.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
    let named =
        named.into_iter().map(|(name, count)| format!("{name} {}", grows(count, rate(name))));
    line("calls", named.collect::<Vec<_>>().join(", "));
    line(
        "saved",
        format!(
            "changes without epoll_ctl {}, slots scanned {}",
            grows(engine.changes_saved, per(|rates| rates.saved)),
            grows(engine.slots_scanned, per(|rates| rates.scanned)),
        ),
    );
    for kind in &engine.costs {
        line("costs", costs(kind));
    }
    let mut slow = |name: &str, turns: &[Turn]| {
        for one in turns {
            line("slowest", format!("{name}: {}", turn(one)));
        }
    };
    slow("of late", &engine.slowest_lately);
    slow("ever", &engine.slowest);
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::model;
    use super::*;

    #[test]
    fn the_text_has_each_figure_once_with_its_rate() {
        let text = write(&model(1, 3));
        for part in [
            "superpoll serve 0.1.0, process 4242, back-end adaptive, up 3.0 s, 10000 connections; \
             rates over 1.0 s\n",
            "active    ratio 0.027: 270 of 10000 active; watching costs 0.4 % of a processor; \
             poll would cost 6.0 times as much\n  in a minute 0.025: 250 of 10000 active; in an hour ",
            "  active/all: connections on which bytes moved",
            "requests  all routes: 1983 (661.0/s), p50 778us, p99 23ms, 4xx 180 (60.0/s), 5xx 3 (1.0/s)\n",
            "route     example.org/api/1: 663 (221.0/s), ",
            "server    app 10.0.0.1:8080: down, requests 300 (100.0/s), p50 3ms, p99 5.0ms, failures 6 (2.0/s)",
            "channels  all 2 channels: 3000 subscribers, published 30 (10.0/s), delivered 45000 (15000.0/s)",
            "channel   /rooms/0: 2000 subscribers, published 15 (5.0/s), ",
            "hot 50, ratio 0.78 (ever 0.78); cold 9950, ratio 0.0001 (ever 0.0001)\n",
            "to hot 36 (12.0/s), to cold 30 (10.0/s), compactions 6, hand-offs 3",
            "calls    read 120000 (40000.0/s), sendto 117000 (39000.0/s), poll 2700 (900.0/s), ",
            "tcp: slot s 111, event e 150, D 900, rise 450 ns; break-even 0.51 (0.21 with writers)",
            "ever: ~8.0 ms  2.5 s ago  128 tasks, 64 events, 3 timers",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert_eq!(write(&Model::default()), "");
        // Nothing has a rate after one snapshot.
        assert!(!write(&model(1, 1)).contains("/s"));
    }
}
