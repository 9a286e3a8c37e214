//! The figures that follow from consecutive snapshots: rates, and their history.

use std::collections::{BTreeMap, VecDeque};

use superpoll_gateway::telemetry::snapshot::{Engine, Set, Snapshot};

use super::traffic::TrafficModel;

/// The number of intervals that are remembered, which is more than fit on a screen.
pub(super) const REMEMBERED: usize = 512;

/// The rates of an engine between two snapshots, per second.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Rates {
    /// The time between the two, in seconds.
    pub seconds: f64,
    /// The active/total ratios of the sets; `None` where there was no pass.
    pub hot: Option<f64>,
    pub cold: Option<f64>,
    pub away: Option<f64>,
    pub to_hot: f64,
    pub to_cold: f64,
    pub waits: f64,
    pub events: f64,
    pub turns: f64,
    pub task_runs: f64,
    pub saved: f64,
    pub scanned: f64,
    /// All system calls.
    pub calls: f64,
    /// System calls by name, the most frequent first.
    pub by_name: Vec<(String, f64)>,
}

/// One interval, as the history draws it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Point {
    /// The ratio of the poll array, or that of epoll where there is no array.
    pub ratio: Option<f64>,
    pub moves: f64,
    pub calls: f64,
}

/// The data of an engine.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Track {
    pub engine: Engine,
    pub rates: Option<Rates>,
    pub history: VecDeque<Point>,
}

/// The data of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub snapshot: Option<Snapshot>,
    pub tracks: BTreeMap<usize, Track>,
    /// `None` if the process counts no requests.
    pub traffic: Option<TrafficModel>,
}

/// Returns the calls of an engine by name, those of the poller and those on sockets together.
pub(super) fn calls(engine: &Engine) -> BTreeMap<&str, u64> {
    let mut all = BTreeMap::new();
    for (name, count) in engine.poller_calls.iter().chain(&engine.socket_calls) {
        *all.entry(name.as_str()).or_default() += count;
    }
    all
}

impl Rates {
    /// Returns the rates between two moments, or `None` if no time has passed in between.
    pub(super) fn between(earlier: &Engine, later: &Engine) -> Option<Rates> {
        let nanos = later.at_ns.checked_sub(earlier.at_ns).filter(|&nanos| nanos > 0)?;
        let seconds = nanos as f64 / 1e9;
        let rate = |of: fn(&Engine) -> u64| of(later).saturating_sub(of(earlier)) as f64 / seconds;
        let ratio = |of: fn(&Engine) -> &Set| of(later).ratio_since(of(earlier));
        let (before, now) = (calls(earlier), calls(later));
        let mut by_name: Vec<(String, f64)> = now
            .iter()
            .map(|(&name, &count)| {
                let count = count.saturating_sub(before.get(name).copied().unwrap_or(0));
                (name.to_owned(), count as f64 / seconds)
            })
            .collect();
        // Among equals, the call that was made more often before comes first.
        by_name.sort_by(|(one, a), (other, b)| {
            b.total_cmp(a).then_with(|| now[other.as_str()].cmp(&now[one.as_str()]))
        });
        Some(Rates {
            seconds,
            hot: ratio(|engine| &engine.hot),
            cold: ratio(|engine| &engine.cold),
            away: ratio(|engine| &engine.away),
            to_hot: rate(|engine| engine.moves_to_hot),
            to_cold: rate(|engine| engine.moves_to_cold),
            waits: rate(|engine| engine.waits),
            events: rate(|engine| engine.events),
            turns: rate(|engine| engine.turns),
            task_runs: rate(|engine| engine.task_runs),
            saved: rate(|engine| engine.changes_saved),
            scanned: rate(|engine| engine.slots_scanned),
            calls: by_name.iter().map(|(_, rate)| rate).sum(),
            by_name,
        })
    }

    fn point(&self) -> Point {
        let moves = self.to_hot + self.to_cold;
        Point { ratio: self.hot.or(self.cold), moves, calls: self.calls }
    }
}

impl Model {
    /// Adds a snapshot of the process.
    pub(super) fn take(&mut self, mut snapshot: Snapshot) {
        // The figures live on in the model of them.
        match (snapshot.traffic.take(), &mut self.traffic) {
            (Some(traffic), Some(model)) => model.take(snapshot.uptime_ns, traffic),
            (Some(traffic), model) => {
                *model = Some(TrafficModel::new(snapshot.uptime_ns, traffic));
            }
            (None, model) => *model = None,
        }
        for engine in &snapshot.engines {
            let Some(track) = self.tracks.get_mut(&engine.number) else {
                let (engine, history) = (engine.clone(), VecDeque::new());
                self.tracks.insert(engine.number, Track { engine, rates: None, history });
                continue;
            };
            // An engine that has not answered is unchanged.
            if let Some(rates) = Rates::between(&track.engine, engine) {
                if track.history.len() == REMEMBERED {
                    track.history.pop_front();
                }
                track.history.push_back(rates.point());
                track.rates = Some(rates);
            }
            track.engine = engine.clone();
        }
        self.snapshot = Some(snapshot);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use superpoll_gateway::telemetry::ratio::{ActiveConnections, ActiveRatio};
    use superpoll_gateway::telemetry::snapshot::WatchingCost;
    use superpoll_gateway::telemetry::snapshot::{Connections, Costs, PlacementCosts, Turn};

    use super::*;

    /// Returns the snapshot of a process that has run for this many seconds and has done the same
    /// in each.
    pub(crate) fn snapshot(engines: usize, seconds: u64) -> Snapshot {
        let engine = |number: usize| {
            let busy = seconds * (1 + number as u64);
            let turn = |took_ns, step_ns| Turn {
                took_ns,
                step_ns,
                ago_ns: 2_500_000_000,
                tasks: 128,
                events: 64,
                timers: 3,
            };
            let costs = |kind: &str, slot: f64| Costs {
                kind: kind.to_owned(),
                measured: true,
                slot,
                ready: 5.0,
                block: 900.0,
                event: 150.0,
                wake: 200.0,
                add: 400.0,
                modify: 300.0,
                delete: 350.0,
                break_even: Some(slot / 145.0),
                break_even_with_writers: Some(slot / 345.0),
                thresholds: Some(PlacementCosts {
                    slot: slot * 1.5,
                    gain: 345.0,
                    round_trip: 900.0,
                    rise: 450.0,
                    fall: 1800.0,
                    break_even: Some(slot * 1.5 / 345.0),
                }),
            };
            Engine {
                number,
                process: None,
                answers: number != 7,
                at_ns: seconds * 1_000_000_000,
                waits: 1000 * busy,
                events: 40_000 * busy,
                unwanted: busy,
                turns: 1000 * busy,
                task_runs: 41_000 * busy,
                tasks: 52,
                timers: 12,
                sources: 60,
                slots_scanned: 50_000 * busy,
                changes_saved: 7 * busy,
                moves_to_hot: 12 * busy,
                moves_to_cold: 10 * busy,
                compactions: 2 * busy,
                moves_away: 0,
                moves_back: 0,
                hand_offs: busy,
                hot: Set { len: 50, watched: 50_000 * busy, active: 39_000 * busy },
                cold: Set { len: 9_950, watched: 9_950_000 * busy, active: 1000 * busy },
                away: Set::default(),
                refused_heads: BTreeMap::new(),
                poller_calls: [
                    ("poll".to_owned(), 900 * busy),
                    ("epoll_wait".to_owned(), 100 * busy),
                ]
                .into(),
                socket_calls: [
                    ("read".to_owned(), 40_000 * busy),
                    ("sendto".to_owned(), 39_000 * busy),
                ]
                .into(),
                policy: Some("adaptive".to_owned()),
                costs: vec![costs("pipe", 28.0), costs("unix", 58.0), costs("tcp", 74.0)],
                longest_turn_ns: 81_234_567,
                slowest: vec![turn(81_234_567, 0), turn(8_000_000, 4_000_000)],
                slowest_lately: vec![turn(1_234_567, 0), turn(456_789, 0)],
                connections: Some(Connections {
                    accepted: 20_000 * busy,
                    refused: 0,
                    active: 50,
                    parked: 9_900,
                    away: 0,
                    running: 4,
                    responses: 40_000 * busy,
                    ..Connections::default()
                }),
            }
        };
        let mean = |active| ActiveConnections {
            active,
            connections: 10_000.0,
            ratio: Some(active / 10_000.0),
        };
        Snapshot {
            schema: 1,
            program: "serve".to_owned(),
            version: "0.1.0".to_owned(),
            process: 4242,
            started_seconds: 1_000_000_000,
            uptime_ns: seconds * 1_000_000_000,
            interval_ms: 1000,
            backend: "adaptive".to_owned(),
            connections: 10_000 * engines as u64,
            active_ratio: Some(ActiveRatio {
                last_second: mean(270.0),
                minute: mean(250.0),
                hour: mean(12.5),
                active_seconds: 250 * seconds,
                connection_seconds: 10_000 * seconds,
            }),
            watching: Some(WatchingCost { engine: 0.004, poll: 0.024, measured: true }),
            engines: (0..engines).map(engine).collect(),
            traffic: Some(super::super::traffic::tests::traffic(3, 2, 2, seconds)),
            missing_processes: Vec::new(),
        }
    }

    /// Returns the model after this many seconds.
    pub(crate) fn model(engines: usize, seconds: u64) -> Model {
        let mut model = Model::default();
        (1..=seconds).for_each(|second| model.take(snapshot(engines, second)));
        model
    }

    #[test]
    fn rates_are_of_the_time_in_between() {
        let model = model(2, 3);
        let rates = model.tracks[&1].rates.as_ref().unwrap();
        assert_eq!((rates.seconds, rates.waits, rates.events), (1.0, 2000.0, 80_000.0));
        assert_eq!((rates.to_hot, rates.to_cold, rates.saved), (24.0, 20.0, 14.0));
        assert_eq!((rates.hot, rates.away), (Some(0.78), None));
        assert_eq!(rates.calls, 160_000.0);
        let names: Vec<&str> = rates.by_name.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["read", "sendto", "poll", "epoll_wait"]);
        let point = Point { ratio: Some(0.78), moves: 44.0, calls: 160_000.0 };
        assert_eq!(model.tracks[&1].history, [point, point]);
    }

    #[test]
    fn an_engine_that_does_not_answer_has_no_new_rates_and_histories_are_bounded() {
        let mut model = model(1, 3);
        let before = model.tracks[&0].clone();
        model.take(snapshot(1, 3));
        assert_eq!(model.tracks[&0], before);
        (4..=2 * REMEMBERED as u64).for_each(|second| model.take(snapshot(1, second)));
        assert_eq!(model.tracks[&0].history.len(), REMEMBERED);
        assert_eq!(Rates::between(&snapshot(1, 5).engines[0], &snapshot(1, 4).engines[0]), None);
    }
}
