//! The level from which on events are logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use superpoll_config::Level;

/// Stands for no level of an operator.
const NONE: u8 = u8::MAX;

#[derive(Debug)]
struct Levels {
    configured: AtomicU8,
    /// The level of an operator, which takes precedence.
    set: AtomicU8,
}

/// The level from which on an [`ErrorLog`](super::ErrorLog) logs events. All clones share it.
#[derive(Clone, Debug)]
pub struct LogLevel(Arc<Levels>);

fn level(number: u8) -> Option<Level> {
    Level::ALL.get(usize::from(number)).copied()
}

impl LogLevel {
    pub(super) fn new(configured: Level) -> LogLevel {
        let configured = AtomicU8::new(configured as u8);
        LogLevel(Arc::new(Levels { configured, set: AtomicU8::new(NONE) }))
    }

    pub(super) fn configure(&self, configured: Level) {
        self.0.configured.store(configured as u8, Ordering::Relaxed);
    }

    /// Sets the level in place of the configuration's, which counts again with `None`.
    pub fn set(&self, level: Option<Level>) {
        self.0.set.store(level.map_or(NONE, |level| level as u8), Ordering::Relaxed);
    }

    /// Returns the level in use.
    #[must_use]
    pub fn get(&self) -> Level {
        level(self.0.set.load(Ordering::Relaxed)).unwrap_or_else(|| self.configured())
    }

    /// Returns the level of the configuration.
    #[must_use]
    pub fn configured(&self) -> Level {
        level(self.0.configured.load(Ordering::Relaxed)).unwrap_or(Level::Info)
    }
}
