//! Counts of messages. Those of a route are the sum over its channels; the counts of a channel that
//! ends are added to those of channels before, so that the sum never goes back.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// The counters of a channel.
#[derive(Debug, Default)]
pub struct Counters {
    /// Messages that were published here, without repetitions.
    pub published: AtomicU64,
    /// Messages given to subscribers, counted once for each.
    pub delivered: AtomicU64,
    /// Messages that subscribers did not get because they are slow.
    pub left_out: AtomicU64,
    /// Subscribers that were disconnected because they are slow.
    pub disconnected: AtomicU64,
    /// Messages that were refused because messages before them were not delivered in time.
    pub refused: AtomicU64,
}

/// The counts of a channel, or of several, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Messages that were published.
    pub published: u64,
    /// Messages that subscribers were sent.
    pub delivered: u64,
    /// Messages that slow subscribers were not sent.
    pub left_out: u64,
    /// Slow subscribers whose connection was closed.
    pub disconnected: u64,
}

impl Counters {
    pub fn figures(&self) -> Figures {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            published: of(&self.published),
            delivered: of(&self.delivered),
            left_out: of(&self.left_out),
            disconnected: of(&self.disconnected),
        }
    }
}

impl Figures {
    /// Adds the counts of another channel.
    pub(super) fn add(&mut self, other: Figures) {
        self.published += other.published;
        self.delivered += other.delivered;
        self.left_out += other.left_out;
        self.disconnected += other.disconnected;
    }
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
