//! The bytes of messages that the channels of a route keep together.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes that are kept, and their bound. Clones of messages share their data, so each message
/// counts once, in the history of its channel.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicU64,
    most: AtomicU64,
}

impl Budget {
    /// Creates a budget of this many bytes.
    pub(super) fn new(most: u64) -> Budget {
        Budget { used: AtomicU64::new(0), most: AtomicU64::new(most) }
    }

    /// Changes the bound from now on.
    pub(super) fn change(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Returns the bytes that are kept.
    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether this many more bytes are within the bound. Engines that ask at the same time may
    /// exceed it together, by a message each.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        used.saturating_add(bytes) <= self.most.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}
