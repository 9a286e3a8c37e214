//! Code that the engine calls without knowing it: wakers above all.
//!
//! A waker is arbitrary code, and so are its clones and its destructor. It may begin and end waits,
//! spawn, drop the last owner of a descriptor or of another runtime, and it may panic. Two rules
//! follow. The engine borrows and locks nothing of its own while it clones, calls or drops a waker:
//! a function that takes a waker out of a list returns it. And a panic of one waker is no reason to
//! leave other tasks asleep whose events, timers or messages the engine has already taken: it is
//! caught here and counted, like a task's panic ([`Stats::panicked`](crate::Stats::panicked)).
//!
//! The exceptions are not ours: a waker that panics while a [`JoinHandle`](crate::JoinHandle)
//! calls, clones or drops it aborts the process, because `async-task` cannot continue then.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::counters::count;
use crate::current_engine;
use crate::trace;

/// Calls a function that may panic, and continues.
#[inline]
pub(crate) fn call(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        // Its destructor is foreign code too.
        mem::forget(payload);
        note_panic();
    }
}

/// Calls a waker.
#[inline]
pub(crate) fn wake(waker: Waker) {
    call(|| waker.wake());
}

/// Drops something that holds wakers.
#[inline]
pub(crate) fn discard<T>(value: T) {
    call(|| drop(value));
}

#[cold]
fn note_panic() {
    current_engine::with_counters(|counters| count(&counters.panicked));
    trace::call_panicked();
}
