//! The number, the counters and the clock of the engine that runs on this thread.
//!
//! The modules that an engine is made of need no more of it than this, and so do not depend on the
//! [`Engine`](crate::engine::Engine) in turn. All other modules ask for
//! [the engine itself](crate::engine::with).

use std::cell::Cell;
use std::time::Instant;

use crate::clock::{self, Clock};
use crate::counters::Counters;
use crate::deadline;
use crate::sys::thread_slot::Slot;

/// The number of no engine.
pub(crate) const NO_ENGINE: u32 = 0;

thread_local! {
    static ID: Cell<u32> = const { Cell::new(NO_ENGINE) };
    static COUNTERS: Slot<Counters> = const { Slot::new() };
    static CLOCK: Slot<Clock> = const { Slot::new() };
}

/// Restores the previous number when dropped.
struct PreviousId(u32);

impl Drop for PreviousId {
    fn drop(&mut self) {
        ID.set(self.0);
    }
}

/// Makes an engine this thread's while a function runs. The thread's previous engine is restored
/// afterwards, also if the function panics.
pub(crate) fn during<R>(id: u32, counters: &Counters, clock: &Clock, f: impl FnOnce() -> R) -> R {
    let _previous = PreviousId(ID.replace(id));
    Slot::lend(&CLOCK, clock, || Slot::lend(&COUNTERS, counters, f))
}

/// Returns whether the engine with this number runs on this thread.
#[inline]
pub(crate) fn has_id(id: u32) -> bool {
    ID.get() == id
}

/// Calls a function with the counters of this thread's engine, if one is running here.
#[inline]
pub(crate) fn with_counters(f: impl FnOnce(&Counters)) {
    Slot::with(&COUNTERS, f);
}

/// Calls a function with the clock of this thread's engine, if one is running here.
pub(crate) fn with_clock<R>(f: impl FnOnce(&Clock) -> R) -> Option<R> {
    Slot::with(&CLOCK, f)
}

/// Returns the time by the clock of this thread's engine, or by the system's where none is running.
#[inline]
pub(crate) fn now() -> Instant {
    if clock::was_paused() {
        return with_clock(Clock::now).unwrap_or_else(Instant::now);
    }
    Instant::now()
}

/// Returns whether a time of that clock is certainly far ahead; see [`deadline::is_far`].
#[inline]
pub(crate) fn is_far(time: Instant) -> bool {
    if clock::was_paused() { time > now() } else { deadline::is_far(time) }
}
