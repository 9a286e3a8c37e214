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

/// Reports the panic, in the span of the task if it has a [name](crate::named).
#[inline]
pub(crate) fn task_panicked() {
    #[cfg(feature = "tracing")]
    let _span = named::PANICKED.take().map(tracing::Span::entered);
    event!(error, "a task panicked; the caller that joins it gets the reason");
}

#[cfg(feature = "tracing")]
pub(crate) use named::{InSpan, in_span, name_panic};

/// A future in the span of its name, if the feature is on.
#[cfg(not(feature = "tracing"))]
pub(crate) type InSpan<F> = F;

#[cfg(not(feature = "tracing"))]
pub(crate) fn in_span<F>(_name: &str, future: F) -> F {
    future
}

#[cfg(not(feature = "tracing"))]
pub(crate) struct NamePanic;

#[cfg(not(feature = "tracing"))]
pub(crate) fn name_panic<F>(_future: &F) -> NamePanic {
    NamePanic
}

#[cfg(feature = "tracing")]
mod named {
    use std::cell::Cell;
    use std::thread;

    use tracing::instrument::{Instrument, Instrumented};
    use tracing::{Span, error_span};

    thread_local! {
        /// The span of the future that is panicking.
        pub(super) static PANICKED: Cell<Option<Span>> = const { Cell::new(None) };
    }

    pub(crate) type InSpan<F> = Instrumented<F>;

    pub(crate) fn in_span<F>(name: &str, future: F) -> Instrumented<F> {
        future.instrument(error_span!(target: "superpoll_rt", "task", name))
    }

    /// Remembers the span of a future if it panics while this lives.
    pub(crate) struct NamePanic(Span);

    pub(crate) fn name_panic<F>(future: &Instrumented<F>) -> NamePanic {
        NamePanic(future.span().clone())
    }

    impl Drop for NamePanic {
        fn drop(&mut self) {
            // A panic that the future itself has caught has no name any more.
            PANICKED.set(thread::panicking().then(|| self.0.clone()));
        }
    }
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
        "the descriptor is reported ready repeatedly, and no task makes use of that"
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
