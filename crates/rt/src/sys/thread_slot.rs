//! Slots of a thread that lend a value to all code of the thread while a function runs.
//!
//! A slot is a plain pointer and has no destructor. So a thread-local variable of this type can be
//! read and set for as long as the thread runs any code, also by the destructors of other
//! thread-local variables. Nothing is borrowed while a function is called with the value, so that
//! function may use the slot again.

use std::cell::Cell;
use std::ptr;
use std::thread::LocalKey;

/// A thread-local variable that holds a slot.
type Key<T> = LocalKey<Slot<T>>;

/// A slot for a value that is lent.
pub(crate) struct Slot<T>(Cell<*const T>);

/// Restores the previous pointer when dropped.
struct Previous<T: 'static> {
    key: &'static Key<T>,
    pointer: *const T,
}

impl<T> Drop for Previous<T> {
    fn drop(&mut self) {
        self.key.with(|slot| slot.0.set(self.pointer));
    }
}

impl<T> Slot<T> {
    pub(crate) const fn new() -> Slot<T> {
        Slot(Cell::new(ptr::null()))
    }

    #[inline]
    fn pointer(key: &'static Key<T>) -> *const T {
        key.with(|slot| slot.0.get())
    }

    /// Returns whether no value is lent.
    pub(crate) fn is_empty(key: &'static Key<T>) -> bool {
        Slot::pointer(key).is_null()
    }

    /// Calls a function with the value, if one is lent.
    #[inline]
    pub(crate) fn with<R>(key: &'static Key<T>, f: impl FnOnce(&T) -> R) -> Option<R> {
        // SAFETY: the pointer is null or comes from the innermost `lend` of this thread, which has
        // borrowed the value and returns after this.
        unsafe { Slot::pointer(key).as_ref() }.map(f)
    }

    /// Lends a value while a function runs. The value that was lent before is restored afterwards,
    /// also if the function panics.
    pub(crate) fn lend<R>(key: &'static Key<T>, value: &T, f: impl FnOnce() -> R) -> R {
        let _previous = Previous { key, pointer: key.with(|slot| slot.0.replace(value)) };
        f()
    }
}
