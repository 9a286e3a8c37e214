//! The ratio of active connections to all connections.
//!
//! A connection is *active* in a second in which bytes have moved on it: of a request or its
//! response, a message to a subscriber, a frame, or relayed bytes. It counts once, however many
//! requests or streams it had. *All* connections of a second are those that there were at its
//! beginning, and those that have begun in it; so the ratio is at most 1.
//!
//! Each engine has a [`RatioMeter`]. It has a number for the current second, and each connection
//! has the number of the second in which it was last counted. So activity costs a comparison, and
//! no look at a clock. The engine ends its second by a timer that it has anyway
//! ([`RatioMeter::end_second`]). A second is therefore a little longer than a second, and as long
//! as the pause after a pause of the process.
//!
//! Engines count the active connections of their own, and all connections of the process:
//! these have one count, which limits need ([`ConnectionLimits`]). The sum over engines adds the
//! former and takes the mean of the latter. The sum over processes adds both.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::counters::Counter;
use crate::connection_limits::ConnectionLimits;

/// The seconds that are remembered singly, and the minutes.
const REMEMBERED: usize = 60;

/// The sums over the seconds of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sums {
    seconds: u64,
    active: u64,
    connections: u64,
}

impl Sums {
    fn since(self, earlier: Sums) -> Sums {
        Sums {
            seconds: self.seconds - earlier.seconds,
            active: self.active - earlier.active,
            connections: self.connections - earlier.connections,
        }
    }
}

/// The seconds of an engine that have ended.
#[derive(Debug, Default)]
struct Record {
    now: Sums,
    /// The sums at the ends of the last seconds before, the earliest first.
    seconds: VecDeque<Sums>,
    /// The sums at the ends of the last minutes before, the earliest first.
    minutes: VecDeque<Sums>,
    /// The connections at the end of the last second.
    left: u64,
    /// The connections that had begun until then.
    begun: u64,
}

/// Counts the connections of an engine that are active in each second.
#[derive(Debug)]
pub struct RatioMeter {
    /// The number of the current second, from 1 and never 0: a connection that was never active has
    /// 0.
    second: Counter,
    /// The connections that have been active in it so far.
    active: Counter,
    record: Mutex<Record>,
    connection_limits: Arc<ConnectionLimits>,
}

impl Default for RatioMeter {
    fn default() -> RatioMeter {
        RatioMeter::new(Arc::default())
    }
}

impl RatioMeter {
    /// Creates the meter of an engine. All connections are those that these limits count.
    #[must_use]
    pub fn new(connection_limits: Arc<ConnectionLimits>) -> RatioMeter {
        let second = Counter::default();
        second.set(1);
        let (active, record) = (Counter::default(), Mutex::default());
        RatioMeter { second, active, record, connection_limits }
    }

    /// Notes that bytes have moved on a connection. `last` is the number of the second in which it
    /// was last counted; 0 for a new one. Only the engine's own thread may.
    #[inline]
    pub fn note(&self, last: &Cell<u32>) {
        let second = self.second.get() as u32;
        if last.get() != second {
            last.set(second);
            self.active.add(1);
        }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        // No code that can panic runs under the lock.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the current second. Only the engine's own thread may, about once a second.
    pub fn end_second(&self) {
        let active = self.active.get();
        self.active.set(0);
        let next = (self.second.get() as u32).wrapping_add(1).max(1);
        self.second.set(next.into());
        let (left, begun) = self.connection_limits.in_use_and_begun();
        let mut record = self.record();
        let before = record.now;
        if record.seconds.len() == REMEMBERED {
            record.seconds.pop_front();
        }
        record.seconds.push_back(before);
        if before.seconds.is_multiple_of(REMEMBERED as u64) {
            if record.minutes.len() == REMEMBERED {
                record.minutes.pop_front();
            }
            record.minutes.push_back(before);
        }
        let connections = record.left + begun.saturating_sub(record.begun);
        (record.left, record.begun) = (left.into(), begun);
        record.now = Sums {
            seconds: before.seconds + 1,
            active: before.active + active,
            connections: before.connections + connections,
        };
    }

    /// Returns the seconds so far; `None` before the first has ended.
    fn read(&self) -> Option<[Sums; 4]> {
        let record = self.record();
        let last = *record.seconds.back()?;
        let since = |earlier: Option<&Sums>| record.now.since(earlier.copied().unwrap_or_default());
        let (minute, hour) = (since(record.seconds.front()), since(record.minutes.front()));
        Some([record.now.since(last), minute, hour, record.now])
    }
}

/// Connections over a period: the mean of its seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ActiveConnections {
    /// Connections that were active in a second.
    pub active: f64,
    /// All connections of a second, parked ones and those with a keeper included.
    pub connections: f64,
    /// The former divided by the latter; `None` if there were no connections.
    pub ratio: Option<f64>,
}

impl ActiveConnections {
    fn add(&mut self, active: f64, connections: f64) {
        self.active += active;
        self.connections += connections;
        self.ratio = (self.connections > 0.0).then(|| self.active / self.connections);
    }
}

impl fmt::Display for ActiveConnections {
    /// Writes "0.027: 8 of 300 active"; means of whole numbers have one decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: f64| match value.fract() == 0.0 || value >= 100.0 {
            true => format!("{value:.0}"),
            false => format!("{value:.1}"),
        };
        match self.ratio {
            Some(ratio) if ratio >= 0.1 || ratio == 0.0 => write!(f, "{ratio:.2}")?,
            Some(ratio) => write!(f, "{ratio:.*}", if ratio >= 0.001 { 3 } else { 5 })?,
            None => f.write_str("-")?,
        }
        write!(f, ": {} of {} active", number(self.active), number(self.connections))
    }
}

/// The ratio of active connections to all connections of a server.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ActiveRatio {
    /// The last second that has ended.
    pub last_second: ActiveConnections,
    /// The last 60 seconds, or fewer after the start.
    pub minute: ActiveConnections,
    /// The last 60 minutes, or fewer after the start.
    pub hour: ActiveConnections,
    /// The active connections of each second since the start, added up.
    pub active_seconds: u64,
    /// All connections of each second since the start, added up.
    pub connection_seconds: u64,
}

impl ActiveRatio {
    /// Returns the ratio of a process whose engines have these meters; `None` before a second has
    /// ended.
    #[must_use]
    pub fn read<'a>(meters: impl Iterator<Item = &'a RatioMeter>) -> Option<ActiveRatio> {
        let all: Vec<[Sums; 4]> = meters.filter_map(RatioMeter::read).collect();
        if all.is_empty() {
            return None;
        }
        let engines = all.len() as f64;
        let over = |period: usize| {
            let mut sum = ActiveConnections::default();
            for sums in all.iter().map(|sums| sums[period]) {
                let seconds = sums.seconds as f64;
                sum.add(sums.active as f64 / seconds, sums.connections as f64 / seconds / engines);
            }
            sum
        };
        let connections: u64 = all.iter().map(|sums| sums[3].connections).sum();
        Some(ActiveRatio {
            last_second: over(0),
            minute: over(1),
            hour: over(2),
            active_seconds: all.iter().map(|sums| sums[3].active).sum(),
            connection_seconds: connections / all.len() as u64,
        })
    }

    /// Adds the ratio of another process of the same server.
    pub fn add(&mut self, other: &ActiveRatio) {
        let mine = [&mut self.last_second, &mut self.minute, &mut self.hour];
        for (one, more) in mine.into_iter().zip([other.last_second, other.minute, other.hour]) {
            one.add(more.active, more.connections);
        }
        self.active_seconds += other.active_seconds;
        self.connection_seconds += other.connection_seconds;
    }

    /// Returns the sum over processes; `None` if none has a ratio.
    pub fn sum(all: impl Iterator<Item = Option<ActiveRatio>>) -> Option<ActiveRatio> {
        all.flatten().reduce(|mut sum, other| {
            sum.add(&other);
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_limits::ConnectionPermit;

    struct Stage {
        limits: Arc<ConnectionLimits>,
        meters: Vec<RatioMeter>,
        connections: Vec<(Cell<u32>, ConnectionPermit)>,
    }

    impl Stage {
        fn new(engines: usize, connections: usize) -> Stage {
            let limits = Arc::<ConnectionLimits>::default();
            let meters = (0..engines).map(|_| RatioMeter::new(limits.clone())).collect();
            let mut stage = Stage { limits, meters, connections: Vec::new() };
            (0..connections).for_each(|_| stage.connect());
            stage
        }

        fn connect(&mut self) {
            let permit = self.limits.acquire(None).unwrap();
            self.connections.push((Cell::default(), permit));
        }

        /// A second in which the first connections are active, several times each.
        fn second(&self, active: usize) {
            for _ in 0..3 {
                for (index, (last, _)) in self.connections[..active].iter().enumerate() {
                    self.meters[index % self.meters.len()].note(last);
                }
            }
            self.meters.iter().for_each(RatioMeter::end_second);
        }

        fn ratio(&self) -> ActiveRatio {
            ActiveRatio::read(self.meters.iter()).unwrap()
        }
    }

    #[test]
    fn a_connection_counts_once_a_second_and_engines_are_added_up() {
        for engines in [1, 3] {
            let stage = Stage::new(engines, 300);
            assert_eq!(ActiveRatio::read(stage.meters.iter()), None);
            for active in [8, 300, 0, 8] {
                stage.second(active);
                let ActiveRatio { last_second, .. } = stage.ratio();
                assert_eq!((last_second.active, last_second.connections), (active as f64, 300.0));
            }
            let ActiveRatio { minute, hour, active_seconds, connection_seconds, .. } =
                stage.ratio();
            assert_eq!((minute.active, minute.connections), (79.0, 300.0));
            assert_eq!((active_seconds, connection_seconds), (316, 1200));
            assert_eq!(minute, hour);
        }
    }

    #[test]
    fn a_minute_and_an_hour_forget_what_is_earlier() {
        let stage = Stage::new(2, 100);
        (0..3600).for_each(|_| stage.second(10));
        (0..60).for_each(|_| stage.second(40));
        let ActiveRatio { last_second, minute, hour, .. } = stage.ratio();
        assert_eq!((last_second.ratio, minute.ratio), (Some(0.4), Some(0.4)));
        let mean = (59.0 * 0.1 + 0.4) / 60.0;
        assert!(hour.ratio.is_some_and(|ratio| (ratio - mean).abs() < 1e-9), "{hour:?}");
    }

    #[test]
    fn a_connection_that_has_begun_and_ended_within_a_second_is_one_of_all() {
        let mut stage = Stage::new(1, 0);
        assert_eq!((0..50).map(|_| stage.connect()).count(), 50);
        stage.meters[0].end_second();
        stage.connections.truncate(10);
        (0..30).for_each(|_| stage.connect());
        let used = stage.connections.split_off(10);
        used.iter().for_each(|(last, _)| stage.meters[0].note(last));
        drop(used);
        stage.meters[0].end_second();
        // 50 at the beginning, 30 more of which all were active.
        let ActiveRatio { last_second, .. } = stage.ratio();
        assert_eq!((last_second.active, last_second.connections), (30.0, 80.0));
        stage.second(10);
        assert_eq!(stage.ratio().last_second.ratio, Some(1.0));
    }

    #[test]
    fn processes_are_added_up_and_no_connections_have_no_ratio() {
        let (one, other) = (Stage::new(2, 300), Stage::new(1, 100));
        one.second(8);
        other.second(92);
        let sum = ActiveRatio::sum([Some(one.ratio()), None, Some(other.ratio())].into_iter());
        let sum = sum.unwrap();
        assert_eq!(sum.last_second.to_string(), "0.25: 100 of 400 active");
        assert_eq!((sum.active_seconds, sum.connection_seconds), (100, 400));
        assert_eq!(ActiveRatio::sum([None].into_iter()), None);
        assert_eq!(one.ratio().minute.to_string(), "0.027: 8 of 300 active");
        let empty = Stage::new(1, 0);
        empty.second(0);
        assert_eq!(empty.ratio().hour.ratio, None);
        assert_eq!(empty.ratio().hour.to_string(), "-: 0 of 0 active");
    }

    /// The number of the second is stored in 32 bits, which last for 136 years.
    #[test]
    fn a_new_connection_is_active_also_after_the_last_number() {
        let stage = Stage::new(1, 1);
        stage.meters[0].second.set(u32::MAX.into());
        stage.second(1);
        stage.connections[0].0.set(0);
        stage.second(1);
        assert_eq!(stage.ratio().active_seconds, 2);
    }
}
