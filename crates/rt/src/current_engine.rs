//! The number and the counters of the engine that runs on this thread.
//!
//! The modules that an engine is made of need no more of it than this, and so do not depend on the
//! [`Engine`](crate::engine::Engine) in turn. All other modules ask for
//! [the engine itself](crate::engine::with).

use std::cell::Cell;

use crate::counters::Counters;
use crate::sys::thread_slot::Slot;

/// The number of no engine.
pub(crate) const NO_ENGINE: u32 = 0;

thread_local! {
    static ID: Cell<u32> = const { Cell::new(NO_ENGINE) };
    static COUNTERS: Slot<Counters> = const { Slot::new() };
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
pub(crate) fn during<R>(id: u32, counters: &Counters, f: impl FnOnce() -> R) -> R {
    let _previous = PreviousId(ID.replace(id));
    Slot::lend(&COUNTERS, counters, f)
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
