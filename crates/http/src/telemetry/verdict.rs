//! The verdict on a server's ratio of active connections: the cost of watching, and the cost that
//! `poll` would have.
//!
//! `poll` pays for each descriptor that it is asked about, ready or not; the engine pays for those
//! that are active. Both are estimated from the same counts of one period, with the costs that the
//! engine has measured when it started (`Costs`, in nanoseconds):
//!
//! - the engine: each slot of a pass over its poll array costs *slot*, and *block* in a pass in
//!   which the loop sleeps; a slot that is ready costs *ready* more; each event through epoll costs
//!   *event*, each change of the epoll set *modify*; and a connection that is parked costs *add*,
//!   *delete* and the *event* that ends its stay.
//! - `poll` over all connections of the engine: each wait would pass over all of them, *slot* and
//!   *block* each, and each event would cost *ready* more.
//!
//! The call itself is left out on both sides, since each wait makes one. The estimate supposes that
//! there would be as many waits, and that the loop sleeps in half of them: this is not counted. A
//! busy loop sleeps less and gathers more events with each wait, so `poll` would then cost less
//! than the estimate says.
//!
//! It was compared with the system time of `serve` on `poll` and on `adaptive`, with 300 idle
//! connections and 8 that made 40,000 requests. With the slots that `poll` scanned, the estimate
//! was 1.1 of the measured difference (median of five runs, 0.5 to 1.7, on a machine with other
//! work). The half was chosen from these five runs, so they do not confirm it: without *block* the
//! estimate was too low, with all of it too high. So it shows the order of magnitude.

use std::fmt;

use super::ratio::ActiveRatio;
use super::snapshot::{Costs, Engine};
use serde::{Deserialize, Serialize};

/// The share of the waits in which the loop sleeps.
const SLEEPING: f64 = 0.5;

/// The cost of watching connections over a period, in parts of one processor.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct WatchingCost {
    /// As the engines watch.
    pub engine: f64,
    /// As `poll` would watch all connections.
    pub poll: f64,
    /// Whether the costs of calls were measured in this process, or are assumed.
    pub measured: bool,
}

/// What has happened in a period, or since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    nanos: u64,
    waits: u64,
    events: u64,
    slots: u64,
    ready_slots: u64,
    cold_events: u64,
    changes: u64,
    parkings: u64,
}

impl Work {
    fn read(engine: &Engine) -> Work {
        Work {
            nanos: engine.at_ns,
            waits: engine.waits,
            events: engine.events,
            slots: engine.hot.watched,
            ready_slots: engine.hot.active,
            cold_events: engine.cold.active,
            changes: engine.poller_calls.get("epoll_ctl").copied().unwrap_or(0),
            parkings: engine.connections.map_or(0, |connections| connections.parkings),
        }
    }

    /// Returns the work since an earlier moment; `None` for another process' engine.
    fn since(self, earlier: Work) -> Option<Work> {
        Some(Work {
            nanos: self.nanos.checked_sub(earlier.nanos).filter(|&nanos| nanos > 0)?,
            waits: self.waits.checked_sub(earlier.waits)?,
            events: self.events.checked_sub(earlier.events)?,
            slots: self.slots.checked_sub(earlier.slots)?,
            ready_slots: self.ready_slots.checked_sub(earlier.ready_slots)?,
            cold_events: self.cold_events.checked_sub(earlier.cold_events)?,
            changes: self.changes.checked_sub(earlier.changes)?,
            parkings: self.parkings.checked_sub(earlier.parkings)?,
        })
    }

    fn engine_cost(&self, costs: &Costs) -> f64 {
        self.slots as f64 * pass(costs)
            + self.ready_slots as f64 * costs.ready
            + self.cold_events as f64 * costs.event
            + self.changes as f64 * costs.modify
            + self.parkings as f64 * (costs.add + costs.delete + costs.event)
    }

    fn poll_cost(&self, costs: &Costs, connections: f64) -> f64 {
        self.waits as f64 * connections * pass(costs) + self.events as f64 * costs.ready
    }
}

/// Returns the cost of a slot in a pass.
fn pass(costs: &Costs) -> f64 {
    costs.slot + SLEEPING * costs.block
}

/// Returns the connections of an engine as far as it counts them.
fn counted(engine: &Engine) -> u64 {
    engine.connections.map_or(0, |connections| connections.active + connections.parked)
}

impl WatchingCost {
    /// Estimates the cost between two looks at the engines of a server with this many connections,
    /// or since its start if the engines were others. `None` if no engine knows its costs: on a
    /// back-end that does not place by cost.
    pub fn between(before: &[Engine], now: &[Engine], connections: f64) -> Option<WatchingCost> {
        let is_same = before.len() == now.len();
        let all: u64 = now.iter().map(counted).sum();
        let mut cost = WatchingCost { engine: 0.0, poll: 0.0, measured: true };
        let mut is_known = false;
        for (index, engine) in now.iter().enumerate() {
            let Some(costs) = engine.costs.iter().find(|costs| costs.kind == "tcp") else {
                continue;
            };
            let earlier = if is_same { Work::read(&before[index]) } else { Work::default() };
            let Some(work) = Work::read(engine).since(earlier) else { continue };
            is_known = true;
            // An engine watches its own connections. Relayed pairs are not counted by engine.
            let share = match all {
                0 => 1.0 / now.len() as f64,
                all => counted(engine) as f64 / all as f64,
            };
            cost.engine += work.engine_cost(costs) / work.nanos as f64;
            cost.poll += work.poll_cost(costs, connections * share) / work.nanos as f64;
            cost.measured &= costs.measured;
        }
        is_known.then_some(cost)
    }
}

/// Writes a share of a processor in percent.
fn percent(share: f64) -> String {
    match share * 100.0 {
        share if share >= 10.0 => format!("{share:.0} %"),
        share if share >= 0.1 => format!("{share:.1} %"),
        share if share >= 0.001 => format!("{share:.3} %"),
        _ => "less than 0.001 %".to_owned(),
    }
}

impl fmt::Display for WatchingCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "watching costs {} of a processor; ", percent(self.engine))?;
        match self.poll / self.engine {
            // Neither can be seen in a profile.
            _ if self.engine.max(self.poll) < 1e-5 => {
                f.write_str("poll would cost no more than that matters")?;
            }
            times if !times.is_finite() => write!(f, "poll would cost {}", percent(self.poll))?,
            times if times >= 10.0 => write!(f, "poll would cost {times:.0} times as much")?,
            times => write!(f, "poll would cost {times:.1} times as much")?,
        }
        if self.measured { Ok(()) } else { f.write_str(" (by assumed costs)") }
    }
}

/// Returns the verdict on a ratio in one line.
#[must_use]
pub fn verdict(ratio: &ActiveRatio, cost: Option<&WatchingCost>) -> String {
    let ratio = format!("ratio {}", ratio.last_second);
    match cost {
        Some(cost) => format!("{ratio}; {cost}"),
        None => format!("{ratio}; the back-end does not measure what watching costs"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::ratio::ActiveConnections;
    use super::super::snapshot::{Connections, Set};
    use super::*;

    fn costs() -> Costs {
        Costs {
            kind: "tcp".to_owned(),
            measured: true,
            slot: 100.0,
            ready: 10.0,
            block: 50.0,
            event: 200.0,
            wake: 0.0,
            add: 800.0,
            modify: 300.0,
            delete: 700.0,
            break_even: None,
            break_even_with_writers: None,
            thresholds: None,
        }
    }

    /// An engine that has made a thousand waits a second with an event each, of which epoll had
    /// nine in ten, and has watched one slot.
    fn engine(seconds: u64) -> Engine {
        let waits = 1000 * seconds;
        Engine {
            at_ns: seconds * 1_000_000_000,
            waits,
            events: waits,
            hot: Set { len: 1, watched: waits, active: waits / 10 },
            cold: Set { len: 299, watched: 0, active: waits * 9 / 10 },
            poller_calls: BTreeMap::from([("epoll_ctl".to_owned(), 10 * seconds)]),
            costs: vec![costs()],
            connections: Some(Connections { parkings: 10 * seconds, ..Connections::default() }),
            ..Engine::default()
        }
    }

    fn is_about(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-12
    }

    #[test]
    fn the_engine_pays_for_active_connections_and_poll_for_all() {
        let cost = WatchingCost::between(&[engine(4)], &[engine(6)], 300.0).unwrap();
        let engine_ns =
            1000.0 * 125.0 + 100.0 * 10.0 + 900.0 * 200.0 + 10.0 * 300.0 + 10.0 * 1700.0;
        assert!(is_about(cost.engine, engine_ns / 1e9), "{cost:?}");
        assert!(is_about(cost.poll, (1000.0 * 300.0 * 125.0 + 1000.0 * 10.0) / 1e9), "{cost:?}");
        assert_eq!(
            cost.to_string(),
            "watching costs 0.033 % of a processor; poll would cost 115 times as much"
        );
        // The same since the start, and two engines that share the connections.
        assert_eq!(WatchingCost::between(&[], &[engine(3)], 300.0), Some(cost));
        let two = WatchingCost::between(&[], &[engine(3), engine(3)], 600.0).unwrap();
        assert!(is_about(two.engine, 2.0 * cost.engine) && is_about(two.poll, 2.0 * cost.poll));
        // An engine that has all connections passes over all of them.
        let with = |active| Engine {
            connections: Some(Connections { active, parkings: 30, ..Connections::default() }),
            ..engine(3)
        };
        let uneven = WatchingCost::between(&[], &[with(300), with(0)], 300.0).unwrap();
        let idle_ns = 1000.0 * 10.0;
        assert!(is_about(uneven.poll, cost.poll + idle_ns / 1e9), "{uneven:?}");
    }

    #[test]
    fn a_back_end_without_costs_has_no_estimate_and_an_engine_that_began_again_is_left_out() {
        let without = Engine { costs: Vec::new(), ..engine(3) };
        assert_eq!(WatchingCost::between(&[], &[without], 1.0), None);
        assert_eq!(WatchingCost::between(&[], &[], 1.0), None);
        assert_eq!(WatchingCost::between(&[engine(3)], &[engine(3)], 1.0), None);
        assert_eq!(WatchingCost::between(&[engine(3)], &[engine(1)], 1.0), None);
    }

    #[test]
    fn the_verdict_has_the_ratio_and_both_costs() {
        let last_second =
            ActiveConnections { active: 8.0, connections: 300.0, ratio: Some(8.0 / 300.0) };
        let ratio = ActiveRatio { last_second, ..ActiveRatio::default() };
        let cost = WatchingCost { engine: 0.004, poll: 0.024, measured: true };
        for (cost, expected) in [
            (Some(cost), "watching costs 0.4 % of a processor; poll would cost 6.0 times as much"),
            (
                Some(WatchingCost { engine: 0.2, poll: 0.1, measured: false }),
                "watching costs 20 % of a processor; poll would cost 0.5 times as much \
                 (by assumed costs)",
            ),
            (
                Some(WatchingCost { engine: 0.0, poll: 0.01, measured: true }),
                "watching costs less than 0.001 % of a processor; poll would cost 1.0 %",
            ),
            (
                Some(WatchingCost { engine: 1e-6, poll: 9e-6, measured: true }),
                "watching costs less than 0.001 % of a processor; poll would cost no more than \
                 that matters",
            ),
            (None, "the back-end does not measure what watching costs"),
        ] {
            let told = verdict(&ratio, cost.as_ref());
            assert_eq!(told, format!("ratio 0.027: 8 of 300 active; {expected}"));
        }
    }
}
