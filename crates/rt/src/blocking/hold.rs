//! A paused clock does not move by itself while a call is under way.
//!
//! Time limits of a call that blocks would be reached at once otherwise: the engine has nothing to
//! do while another thread is at work. Calls are counted whether the clock is paused or not, as it
//! may be paused while one is under way.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock;
use crate::engine;
use crate::remote::Remote;

/// Keeps the clock of an engine from moving by itself until it is dropped, on any thread.
pub(super) struct ClockHold(Arc<Remote>);

/// Holds the clock of this thread's engine, if one runs here.
pub(super) fn of_this_clock() -> Option<ClockHold> {
    engine::with(|engine| {
        engine.remote.calls.fetch_add(1, Ordering::Relaxed);
        ClockHold(engine.remote.clone())
    })
}

impl Drop for ClockHold {
    fn drop(&mut self) {
        // After the message that wakes the task of the call, so that an engine which sees no call
        // sees the message. And before the look at whether a clock was paused: an engine that
        // pauses its clock does so before it looks for calls, so one of the two sees the other.
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
        if clock::was_ever_paused() {
            self.0.wake();
        }
    }
}
