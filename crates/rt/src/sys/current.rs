//! The engine that runs on this thread.
//!
//! It is a plain pointer in a thread-local variable that has no destructor. So it can be read and
//! set for as long as the thread runs any code, also by the destructors of other thread-local
//! variables, which may own a runtime. Nothing is borrowed while a function is called with the
//! engine, so that function may call code that asks for the engine again, or ends another engine.

use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

use crate::engine::Engine;

thread_local! {
    static CURRENT: Cell<*const Engine> = const { Cell::new(ptr::null()) };
}
const _: () = assert!(!std::mem::needs_drop::<Cell<*const Engine>>());

/// Restores the previous pointer when dropped.
struct Before(*const Engine);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Makes an engine this thread's while a function runs. The thread's previous engine is restored
/// afterwards, also if the function panics.
pub(crate) fn during<R>(engine: &Rc<Engine>, f: impl FnOnce() -> R) -> R {
    let _before = Before(CURRENT.replace(Rc::as_ptr(engine)));
    f()
}

/// Returns whether an engine runs on this thread.
pub(crate) fn is_any() -> bool {
    !CURRENT.get().is_null()
}

/// Calls a function with the engine of this thread, if one is running here.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Engine) -> R) -> Option<R> {
    // SAFETY: the pointer is null or comes from the innermost `during` of this thread, which has
    // borrowed the engine's `Rc` and returns after this.
    unsafe { CURRENT.get().as_ref() }.map(f)
}

/// Returns this thread's engine, if one is running here.
pub(crate) fn owned() -> Option<Rc<Engine>> {
    let engine = CURRENT.get();
    if engine.is_null() {
        return None;
    }
    // SAFETY: the pointer comes from an `Rc`, which is alive as in `with`, and the count is raised
    // for the `Rc` that is made of it.
    unsafe {
        Rc::increment_strong_count(engine);
        Some(Rc::from_raw(engine))
    }
}
