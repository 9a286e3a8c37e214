//! The events that the runtime reports through `tracing`, if the feature of that name is on.
//! Without the feature all of this is empty.

use std::os::fd::RawFd;
use std::time::Duration;

/// A turn that asks about no descriptor for longer than this is reported.
pub(crate) const LONG_TURN: Duration = Duration::from_millis(100);

macro_rules! event {
    ($level:ident, $($arguments:tt)+) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "superpoll_rt", $($arguments)+);
    };
}

#[inline]
pub(crate) fn engine_started(_engine: u32, _backend: &'static str) {
    event!(debug, engine = _engine, backend = _backend, "the engine has started");
}

#[inline]
pub(crate) fn engine_ended(_engine: u32, _turns: u64) {
    event!(debug, engine = _engine, turns = _turns, "the engine has ended");
}

#[inline]
pub(crate) fn task_panicked() {
    event!(error, "a task panicked; the caller that joins it gets the reason");
}

#[inline]
pub(crate) fn call_panicked() {
    event!(
        error,
        "a waker, or a function that was called on the engine, panicked; the engine goes on"
    );
}

#[inline]
pub(crate) fn spinning(_fd: RawFd) {
    event!(
        warn,
        fd = _fd,
        "the descriptor is reported ready repeatedly, and no task reads, writes or clears it"
    );
}

#[inline]
pub(crate) fn long_turn(_took: Duration) {
    event!(
        warn,
        milliseconds = _took.as_millis() as u64,
        "a task has blocked its engine for a long time; move such work to `blocking::unblock`"
    );
}
