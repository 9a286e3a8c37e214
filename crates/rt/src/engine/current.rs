//! The engine that runs on this thread.
//!
//! It can be asked for as long as the thread runs any code, also by the destructors of thread-local
//! variables, which may own a runtime. The function that is called with the engine may call code
//! that asks for the engine again, or ends another engine.

use super::Engine;
use crate::current_engine;
use crate::sys::thread_slot::Slot;

thread_local! {
    static CURRENT: Slot<Engine> = const { Slot::new() };
}
const _: () = assert!(!std::mem::needs_drop::<Slot<Engine>>());

/// Makes an engine this thread's while a function runs. The thread's previous engine is restored
/// afterwards, also if the function panics.
pub(crate) fn during<R>(engine: &Engine, f: impl FnOnce() -> R) -> R {
    let Engine { remote, counters, clock, .. } = engine;
    current_engine::during(remote.id, counters, clock, || Slot::lend(&CURRENT, engine, f))
}

/// Returns whether an engine runs on this thread.
pub(crate) fn is_any() -> bool {
    !Slot::is_empty(&CURRENT)
}

/// Calls a function with the engine of this thread, if one is running here.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Engine) -> R) -> Option<R> {
    Slot::with(&CURRENT, f)
}
