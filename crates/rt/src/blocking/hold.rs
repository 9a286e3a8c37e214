//! A paused clock does not move by itself while a call is under way.
//!
//! Time limits of a call that blocks would be reached at once otherwise: the engine has nothing to
//! do while another thread is at work.

use std::sync::Arc;

use crate::clock::{self, Clock};
use crate::current_engine;
use crate::engine;
use crate::remote::{Message, Remote};

/// Keeps the clock of an engine from moving by itself until it is dropped, on any thread.
pub(super) struct ClockHold(Arc<Remote>);

/// Holds the clock of this thread's engine, if it is paused.
pub(super) fn of_this_clock() -> Option<ClockHold> {
    if !clock::was_paused() {
        return None;
    }
    engine::with(|engine| {
        engine.clock.is_paused().then(|| {
            engine.clock.hold();
            ClockHold(engine.remote.clone())
        })
    })?
}

impl Drop for ClockHold {
    fn drop(&mut self) {
        // After the message that wakes the task of the call, so that the clock does not move before
        // that task has run.
        let release = || current_engine::with_clock(Clock::release).unwrap_or_default();
        // An engine that has ended has no clock.
        let _ = self.0.send(Message::Call(Box::new(release)));
    }
}
