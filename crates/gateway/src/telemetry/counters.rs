//! The counters of the gateway.
//!
//! Each engine has counters of its own, which no other thread writes, so that counting is a load
//! and a store; a reader adds them up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread changes and all may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it; only its own thread may.
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets it; only its own thread may.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection's task, which is counted until this is dropped, on the engine's own thread.
pub(crate) struct ActiveTask(Arc<EngineCounters>);

impl ActiveTask {
    /// Counts one task in.
    pub(crate) fn begin(engine: &Arc<EngineCounters>) -> ActiveTask {
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
    /// Connections closed at once, for lack of descriptors or because of a limit.
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
    /// Requests that were proxied past hyper.
    pub lane: Counter,
    /// Requests under way now.
    pub running: Counter,
    /// Bytes of responses' bodies.
    pub body_bytes: Counter,
    /// Connections closed because they took too long.
    pub timed_out: Counter,
    /// Connections that broke, or on which the client spoke something other than HTTP.
    pub broken: Counter,
}

impl EngineCounters {
    /// Counts a response by its status.
    pub(crate) fn count_response(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5);
        self.responses[class - 1].add(1);
    }
}
