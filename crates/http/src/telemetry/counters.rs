//! The counters of the gateway.
//!
//! Each engine has counters of its own, which no other thread writes, so that counting is a load
//! and a store; a reader adds them up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use prometheus_client::encoding::DescriptorEncoder;
use serde::{Deserialize, Serialize};
use superpoll_http1::Refusal;

use super::families::{self, Labels};
use super::ratio::RatioMeter;
use crate::connection_limits::ConnectionLimits;
use crate::families;
use crate::rules::Reason;

/// A number that one thread changes and all may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it; only its own thread may.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets it; only its own thread may.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns its value.
    #[must_use]
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection's task, which is counted until this is dropped, on the engine's own thread.
pub struct ActiveTask(Arc<EngineCounters>);

impl ActiveTask {
    /// Counts one task in.
    #[inline]
    pub fn begin(engine: &Arc<EngineCounters>) -> ActiveTask {
        engine.active.add(1);
        ActiveTask(engine.clone())
    }
}

impl Drop for ActiveTask {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() - 1);
    }
}

/// The counters of one engine.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct EngineCounters {
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections closed at once, for a shortage of descriptors or because of a limit.
    pub refused: Counter,
    /// Connections that have a task now.
    pub active: Counter,
    /// Connections that are parked now.
    pub parked: Counter,
    /// Parked connections that a keeper watches.
    pub away: Counter,
    /// Times a parked connection left for the keeper.
    pub leavings: Counter,
    /// Times a connection came back.
    pub returns: Counter,
    /// Times a connection was parked.
    pub parkings: Counter,
    /// Requests by the first digit of their response's status, 1 to 5.
    pub responses: [Counter; 5],
    /// Requests whose responses were passed on as lines, and files that were answered from heads.
    pub lane: Counter,
    /// Requests under way now.
    pub running: Counter,
    /// Bytes of responses' bodies.
    pub body_bytes: Counter,
    /// Connections closed because they took too long.
    pub timed_out: Counter,
    /// Connections that broke, or on which the client spoke something other than HTTP.
    pub broken: Counter,
    /// Heads of requests that were refused.
    pub refused_heads: RefusedHeads,
    /// The connections that are active in each second.
    pub ratio: RatioMeter,
}

/// The heads of requests that were refused, by the reason.
#[derive(Debug)]
pub struct RefusedHeads([Counter; Refusal::ALL.len()]);

impl Default for RefusedHeads {
    fn default() -> RefusedHeads {
        RefusedHeads(std::array::from_fn(|_| Counter::default()))
    }
}

impl RefusedHeads {
    /// Counts one.
    pub fn count(&self, why: Refusal) {
        let place = Refusal::ALL.iter().position(|known| *known == why);
        place.into_iter().for_each(|place| self.0[place].add(1));
    }

    /// Returns the counts by the names of the reasons.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.iter().map(Counter::get);
        Refusal::ALL.iter().map(|why| why.name()).zip(counts)
    }
}

impl EngineCounters {
    /// Creates the counters of an engine of a server whose connections these limits count.
    #[must_use]
    pub fn new(connection_limits: Arc<ConnectionLimits>) -> EngineCounters {
        let ratio = RatioMeter::new(connection_limits);
        EngineCounters { ratio, ..EngineCounters::default() }
    }

    /// Counts a response by its status.
    #[inline]
    pub fn count_response(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5);
        self.responses[class - 1].add(1);
    }
}

// Requests that the rules for clients have refused, by route and reason.
//
// A route has one count for each reason that its rules can give, on each engine. These counts are
// written from the start, so that the first refusal is an increase that alerts see. The other
// reasons have none.

const REASONS: usize = Reason::ALL.len();

/// The refusals of one engine's requests to a route.
#[derive(Debug, Default)]
pub(super) struct RefusalCounts {
    counts: [AtomicU64; REASONS],
    /// The reasons that the rules can give, a bit for each.
    possible: AtomicU8,
}

impl RefusalCounts {
    /// Sets the reasons that the rules can give.
    pub(super) fn expect(&self, reasons: impl Iterator<Item = Reason>) {
        let bits = reasons.fold(0, |bits, reason| bits | 1 << reason as u8);
        self.possible.store(bits, Ordering::Relaxed);
    }

    pub(super) fn count(&self, reason: Reason) {
        self.counts[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The refusals at one moment: a count for each reason that is possible or was given.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct RefusalStates([Option<u64>; REASONS]);

impl RefusalStates {
    /// Adds those of an engine.
    pub(super) fn add(&mut self, counts: &RefusalCounts) {
        let possible = counts.possible.load(Ordering::Relaxed);
        for (index, (sum, count)) in self.0.iter_mut().zip(&counts.counts).enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count > 0 || possible & (1 << index) != 0 {
                *sum = Some(sum.unwrap_or(0) + count);
            }
        }
    }
}

families! {
    const REFUSED: u64 = [
        Counter http_requests_refused "Requests that the rules for clients have refused, by reason",
            |count| *count;
    ];
}

/// Writes the refusals of routes, each with its labels.
pub(super) fn write_refusals<'a>(
    routes: impl Iterator<Item = (Labels, &'a RefusalStates)>,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let counted = routes.flat_map(|(labels, states)| {
        Reason::ALL.iter().zip(&states.0).filter_map(move |(reason, count)| {
            let reason = ("reason", reason.name().to_owned());
            Some((labels.iter().cloned().chain([reason]).collect(), count.as_ref()?))
        })
    });
    families::write(REFUSED, &counted.collect::<Vec<_>>(), encoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_are_possible_or_were_given_are_summed_over_engines() {
        let engines = [RefusalCounts::default(), RefusalCounts::default()];
        for engine in &engines {
            engine.expect([Reason::Rate, Reason::PasswordQueue].into_iter());
            engine.count(Reason::Rate);
        }
        engines[1].count(Reason::Address);
        let mut states = RefusalStates::default();
        engines.iter().for_each(|engine| states.add(engine));
        assert_eq!(states.0, [Some(1), Some(2), None, None, None, Some(0)]);
        // Another configuration has other reasons; what was counted stays.
        engines.iter().for_each(|engine| engine.expect([Reason::NoPassword].into_iter()));
        let mut states = RefusalStates::default();
        engines.iter().for_each(|engine| states.add(engine));
        assert_eq!(states.0, [Some(1), Some(2), Some(0), None, None, None]);
    }
}
