//! The snapshot: the figures of a process at one moment, as `superpoll top`, `superpoll status` and
//! the API have them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use superpoll::diagnostics::Kind;
use superpoll_rt::{SlowTurn, Stats};

use super::counters;
use super::ratio::ActiveRatio;
use super::traffic::{Processes, Traffic};
use super::verdict::WatchingCost;

/// The version of the form. A field that is added does not change the version; a field that changes
/// its meaning, or goes, does.
pub const SCHEMA: u32 = 1;

/// A process at one moment. Counts are those since its start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Default)]
pub struct Snapshot {
    /// The version of the form: [`SCHEMA`].
    pub schema: u32,
    /// The task of the process: `serve` or `proxy`.
    pub program: String,
    /// The program's version.
    pub version: String,
    /// The number of the process.
    pub process: u32,
    /// The start of the process, in seconds since 1970; 0 for a server of an earlier version.
    #[serde(default)]
    pub started_seconds: u64,
    /// The time since its start, in nanoseconds.
    pub uptime_ns: u64,
    /// The time from one snapshot to the next for this client, in milliseconds; 0 if there is no
    /// next one.
    pub interval_ms: u64,
    /// The name of the back-end that all engines have.
    pub backend: String,
    /// Connections that clients have now, parked ones included.
    pub connections: u64,
    /// The connections that are active, compared with all; `None` in the first second, for a
    /// program that does not count them, and for a server of an earlier version.
    #[serde(default)]
    pub active_ratio: Option<ActiveRatio>,
    /// What watching costs since the last snapshot for this client, or since the start; `None` if
    /// the back-end does not place by cost.
    #[serde(default)]
    pub watching: Option<WatchingCost>,
    /// The engines that have ever answered, in the order of their numbers.
    pub engines: Vec<Engine>,
    /// Requests, servers and channels; `None` for a program that counts none, and for a server of
    /// an earlier version.
    #[serde(default)]
    pub traffic: Option<Traffic>,
    /// The processes of a server of several that have not answered in time: their connections and
    /// engines are left out.
    #[serde(default)]
    pub missing_processes: Vec<u32>,
}

/// An engine: a thread's poller, tasks and timers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Engine {
    /// The engine's number, from zero.
    pub number: usize,
    /// The number of its process, where a server has several.
    #[serde(default)]
    pub process: Option<u32>,
    /// Whether the engine has answered in time. If not, the other fields are from its last answer.
    pub answers: bool,
    /// When the engine answered, in nanoseconds since the start of the process.
    pub at_ns: u64,
    /// Waits of the poller.
    pub waits: u64,
    /// Events that the poller delivered.
    pub events: u64,
    /// Events for which no task waited.
    pub unwanted: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Times a task was run.
    pub task_runs: u64,
    /// Tasks that live now.
    pub tasks: usize,
    /// Timers that run now.
    pub timers: usize,
    /// Descriptors that are waited for or were.
    pub sources: usize,
    /// Descriptors that `poll` or `select` was asked about, summed over its calls.
    pub slots_scanned: u64,
    /// Changes that cost no `epoll_ctl`.
    pub changes_saved: u64,
    /// Moves from epoll to the poll array.
    pub moves_to_hot: u64,
    /// Moves from the poll array to epoll.
    pub moves_to_cold: u64,
    /// Times the poll array was compacted: descriptors that had gone idle went to epoll.
    pub compactions: u64,
    /// Moves to a keeper.
    pub moves_away: u64,
    /// Moves back from there.
    pub moves_back: u64,
    /// Times a loop that went quiet gave its poll array to epoll.
    pub hand_offs: u64,
    /// The poll array.
    pub hot: Set,
    /// The epoll set.
    pub cold: Set,
    /// The set that a keeper watches.
    pub away: Set,
    /// System calls of the poller by name, those that were made.
    pub poller_calls: BTreeMap<String, u64>,
    /// System calls on sockets by name, those that were made.
    pub socket_calls: BTreeMap<String, u64>,
    /// The name of the placement policy; `None` where the back-end has none, and for a server of an
    /// earlier version.
    #[serde(default)]
    pub policy: Option<String>,
    /// The costs of watching, for each kind of descriptor; empty where the back-end does not place
    /// by cost.
    pub costs: Vec<Costs>,
    /// The longest turn of the loop, in nanoseconds.
    pub longest_turn_ns: u64,
    /// The slowest turns since the start, the slowest first.
    pub slowest: Vec<Turn>,
    /// The slowest turns of the last ten to twenty seconds, the slowest first.
    pub slowest_lately: Vec<Turn>,
    /// The gateway's counters on this engine; none for a program that does not count by engine.
    pub connections: Option<Connections>,
    /// Heads of requests that were refused so far, by the name of the reason.
    #[serde(default)]
    pub refused_heads: BTreeMap<String, u64>,
}

/// A set of descriptors. Its active/total ratio over a period is the increase of `active` divided
/// by the increase of `watched`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Set {
    /// Descriptors in the set now.
    pub len: usize,
    /// Sum over all passes of the descriptors that were in the set.
    pub watched: u64,
    /// Sum over all passes of the descriptors that were ready.
    pub active: u64,
}

/// The costs of watching a kind of descriptor, in nanoseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Costs {
    /// `pipe`, `unix` or `tcp`.
    pub kind: String,
    /// Whether the costs were measured in this process, or are assumed.
    pub measured: bool,
    /// A slot in a pass over the poll array, as calibrated (*s*).
    pub slot: f64,
    /// The additional cost of a slot that is ready.
    pub ready: f64,
    /// A wait that blocks.
    #[serde(default)]
    pub block: f64,
    /// An event through epoll (*e*).
    pub event: f64,
    /// The cost to the writer of waking a descriptor that epoll watches.
    pub wake: f64,
    /// A change of the epoll set that adds a descriptor.
    #[serde(default)]
    pub add: f64,
    /// A change of what is awaited of a descriptor in the epoll set.
    #[serde(default)]
    pub modify: f64,
    /// A change of the epoll set that removes a descriptor.
    #[serde(default)]
    pub delete: f64,
    /// The active/total ratio from which on the poll array is cheaper for the loop; none if it
    /// never is.
    pub break_even: Option<f64>,
    /// The same ratio if the cost to writers counts as well.
    pub break_even_with_writers: Option<f64>,
    /// The thresholds that the policy applies now, if it uses thresholds.
    pub thresholds: Option<PlacementCosts>,
}

/// The thresholds for moving a kind of descriptor, as they are now, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlacementCosts {
    /// A slot in a pass, corrected for how expensive scans are now.
    pub slot: f64,
    /// The saving for an event in the poll array.
    pub gain: f64,
    /// A move to the poll array and back (*D*).
    pub round_trip: f64,
    /// The evidence that a move to the poll array takes, as learned.
    pub rise: f64,
    /// The patience with a descriptor that has gone quiet there, as learned.
    pub fall: f64,
    /// The active/total ratio from which on a descriptor earns its slot now; none if it never does.
    pub break_even: Option<f64>,
}

/// A slow turn of the loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Turn {
    /// How long the turn took, in nanoseconds.
    pub took_ns: u64,
    /// The step of the clock that measured the turn, in nanoseconds; zero: to the nanosecond.
    pub step_ns: u64,
    /// How long before the snapshot the turn began, in nanoseconds.
    pub ago_ns: u64,
    /// How many times a task was run.
    pub tasks: u64,
    /// Events from the wait before the turn.
    pub events: u64,
    /// Timers that ended.
    pub timers: u64,
}

/// The connections of an engine of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Connections {
    /// Accepted so far.
    pub accepted: u64,
    /// Closed at once so far, for a shortage of descriptors or because of a limit.
    pub refused: u64,
    /// Connections that have a task now, whether bytes move on them or not.
    pub active: u64,
    /// Connections that are parked now.
    pub parked: u64,
    /// Parked connections that a keeper watches.
    pub away: u64,
    /// Requests under way now.
    pub running: u64,
    /// Responses so far.
    pub responses: u64,
    /// Responses so far by the first digit of their status, 1 to 5.
    #[serde(default)]
    pub by_class: [u64; 5],
    /// Times a connection was parked.
    #[serde(default)]
    pub parkings: u64,
    /// Times a parked connection left for a keeper.
    #[serde(default)]
    pub leavings: u64,
    /// Times a parked connection came back from the keeper.
    #[serde(default)]
    pub returns: u64,
    /// Plain requests that were proxied, or answered with files, from their heads.
    #[serde(default)]
    pub lane: u64,
    /// Bytes of responses' bodies.
    #[serde(default)]
    pub body_bytes: u64,
    /// Closed so far because they took too long.
    #[serde(default)]
    pub timed_out: u64,
    /// Broken so far, or the client spoke something other than HTTP.
    #[serde(default)]
    pub broken: u64,
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn finite(ratio: f32) -> Option<f64> {
    ratio.is_finite().then_some(f64::from(ratio))
}

fn counts_by_name(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    counts.filter(|&(_, count)| count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

impl Snapshot {
    /// Sets the moment of the snapshot.
    pub fn set_uptime(&mut self, uptime: std::time::Duration) {
        self.uptime_ns = nanos(uptime);
    }

    /// Returns an empty snapshot of this process.
    pub fn new(
        program: &str,
        backend: &str,
        started_seconds: u64,
        uptime: std::time::Duration,
    ) -> Snapshot {
        Snapshot {
            schema: SCHEMA,
            program: program.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            started_seconds,
            uptime_ns: nanos(uptime),
            backend: backend.to_owned(),
            ..Snapshot::default()
        }
    }

    /// Adds the figures of another process of the same server, without its traffic.
    pub fn add(&mut self, other: Snapshot) {
        self.started_seconds = self.started_seconds.min(other.started_seconds);
        self.uptime_ns = self.uptime_ns.max(other.uptime_ns);
        self.connections += other.connections;
        self.active_ratio = ActiveRatio::sum([self.active_ratio, other.active_ratio].into_iter());
        self.engines.extend(other.engines);
    }

    /// Adds the engines of worker processes, by their places: those of a worker have the same
    /// numbers as those of the process before it in its place.
    pub fn add_all(&mut self, mut all: Vec<(u32, Snapshot)>, processes: &mut Processes) {
        let traffic =
            all.iter_mut().filter_map(|(_, one)| Some((one.process, one.traffic.take()?)));
        self.traffic = Some(processes.sum(traffic));
        self.active_ratio = ActiveRatio::sum(all.iter().map(|(_, one)| one.active_ratio));
        let stride = all.iter().map(|(_, one)| one.engines.len()).max().unwrap_or(0);
        let mut places: BTreeMap<u32, Snapshot> = BTreeMap::new();
        for (place, one) in all {
            self.connections += one.connections;
            // Of two in one place the earlier one is about to end.
            let is_later = places.get(&place).is_none_or(|known| known.uptime_ns > one.uptime_ns);
            if is_later {
                places.insert(place, one);
            }
        }
        for (place, one) in places {
            for mut engine in one.engines {
                engine.number += place as usize * stride;
                engine.process = Some(one.process);
                self.engines.push(engine);
            }
        }
    }
}

impl Engine {
    /// Returns the figures of an engine, with its counters if the program counts by engine.
    pub fn new(
        number: usize,
        at: std::time::Duration,
        stats: &Stats,
        counters: Option<&counters::EngineCounters>,
    ) -> Engine {
        let poller = &stats.poller;
        Engine {
            number,
            process: None,
            answers: true,
            at_ns: nanos(at),
            waits: poller.waits,
            events: poller.events,
            unwanted: poller.unwanted,
            turns: stats.turns,
            task_runs: stats.polls,
            tasks: stats.tasks,
            timers: stats.timers,
            sources: stats.sources,
            slots_scanned: poller.slots_scanned,
            changes_saved: poller.changes_saved,
            moves_to_hot: poller.moves_to_hot,
            moves_to_cold: poller.moves_to_cold,
            compactions: poller.compactions,
            moves_away: poller.moves_away,
            moves_back: poller.moves_back,
            hand_offs: poller.handoffs,
            hot: Set::new(&poller.hot),
            cold: Set::new(&poller.cold),
            away: Set::new(&poller.away),
            poller_calls: counts_by_name(poller.calls.by_name()),
            socket_calls: counts_by_name(stats.calls.by_name()),
            policy: stats.policy.map(str::to_owned),
            costs: Costs::all(stats),
            longest_turn_ns: nanos(stats.longest_turn),
            slowest: stats.slowest.iter().map(Turn::new).collect(),
            slowest_lately: stats.slowest_lately.iter().map(Turn::new).collect(),
            connections: counters.map(Connections::new),
            refused_heads: counters
                .map(|all| counts_by_name(all.refused_heads.by_name()))
                .unwrap_or_default(),
        }
    }
}

impl Set {
    fn new(set: &superpoll::diagnostics::SetStats) -> Set {
        Set { len: set.len, watched: set.watched, active: set.active }
    }

    /// Returns the active/total ratio since an earlier moment; `None` if there was no pass.
    #[must_use]
    pub fn ratio_since(&self, earlier: &Set) -> Option<f64> {
        let watched = self.watched.checked_sub(earlier.watched)?;
        let active = self.active.checked_sub(earlier.active)?;
        (watched > 0).then(|| active as f64 / watched as f64)
    }
}

impl Costs {
    fn all(stats: &Stats) -> Vec<Costs> {
        let Some(costs) = &stats.costs else { return Vec::new() };
        let of =
            |(kind, thresholds): (Kind, Option<superpoll::backend::policy::PlacementCosts>)| {
                let (of, even) = (costs.of(kind), costs.break_even(kind));
                Costs {
                    kind: kind.name().to_owned(),
                    measured: costs.measured,
                    slot: of.scan.into(),
                    ready: of.ready.into(),
                    block: of.block.into(),
                    event: of.event.into(),
                    wake: of.wake.into(),
                    add: of.add.into(),
                    modify: of.modify.into(),
                    delete: of.delete.into(),
                    break_even: finite(even.own),
                    break_even_with_writers: finite(even.with_writers),
                    thresholds: thresholds.map(|known| PlacementCosts {
                        slot: known.scan.into(),
                        gain: known.gain.into(),
                        round_trip: known.round_trip.into(),
                        rise: known.rise.into(),
                        fall: known.fall.into(),
                        break_even: finite(known.break_even()),
                    }),
                }
            };
        Kind::MEASURED.into_iter().zip(stats.placement_costs).map(of).collect()
    }
}

impl Turn {
    fn new(turn: &SlowTurn) -> Turn {
        Turn {
            took_ns: nanos(turn.took),
            step_ns: nanos(turn.step),
            ago_ns: nanos(turn.ago),
            tasks: turn.tasks,
            events: turn.events,
            timers: turn.timers,
        }
    }
}

impl Connections {
    fn new(counters: &counters::EngineCounters) -> Connections {
        let by_class = counters.responses.each_ref().map(counters::Counter::get);
        Connections {
            accepted: counters.accepted.get(),
            refused: counters.refused.get(),
            active: counters.active.get(),
            parked: counters.parked.get(),
            away: counters.away.get(),
            running: counters.running.get(),
            responses: by_class.iter().sum(),
            by_class,
            parkings: counters.parkings.get(),
            leavings: counters.leavings.get(),
            returns: counters.returns.get(),
            lane: counters.lane.get(),
            body_bytes: counters.body_bytes.get(),
            timed_out: counters.timed_out.get(),
            broken: counters.broken.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_the_passes_in_between() {
        let earlier = Set { len: 9, watched: 100, active: 100 };
        let later = Set { len: 1, watched: 300, active: 150 };
        assert_eq!(later.ratio_since(&earlier), Some(0.25));
        assert_eq!(later.ratio_since(&later), None);
        // Another process has the same path now.
        assert_eq!(earlier.ratio_since(&later), None);
    }

    #[test]
    fn snapshots_round_trip_and_infinite_thresholds_are_absent() {
        let mut stats = Stats::default();
        stats.poller.calls.epoll_wait = 3;
        let mut costs = superpoll::diagnostics::Costs::ASSUMED;
        costs.pipe.event = 0.0;
        stats.costs = Some(costs);
        let known = superpoll::backend::policy::PlacementCosts {
            scan: 1.0,
            gain: 0.0,
            round_trip: 5.0,
            rise: 6.0,
            fall: 7.0,
        };
        stats.placement_costs[1] = Some(known);
        let engine = Engine::new(2, std::time::Duration::from_secs(1), &stats, None);
        let text = serde_json::to_string(&engine).unwrap();
        let read: Engine = serde_json::from_str(&text).unwrap();
        // The last digit of a fraction may differ.
        let rounded = |engine: &Engine| format!("{engine:.6?}");
        assert_eq!(rounded(&read), rounded(&engine));
        assert_eq!((engine.number, engine.at_ns), (2, 1_000_000_000));
        assert_eq!(engine.poller_calls, BTreeMap::from([("epoll_wait".to_owned(), 3)]));
        assert_eq!(engine.costs.len(), 3);
        assert_eq!((engine.costs[0].break_even, engine.costs[0].thresholds), (None, None));
        assert!(engine.costs[2].break_even.is_some());
        let told = engine.costs[1].thresholds.unwrap();
        assert_eq!((told.break_even, told.rise), (None, 6.0));
    }
}
