//! Slots of a thread that lend a value to all code of the thread while a function runs.
//!
//! A slot is a plain pointer and has no destructor. So a thread-local variable of this type can be
//! read and set for as long as the thread runs any code, also by the destructors of other
//! thread-local variables. Nothing is borrowed while a function is called with the value, so that
//! function may use the slot again.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::rc::Rc;
use std::thread::LocalKey;

/// A thread-local variable that holds a slot.
type Key<T, K> = LocalKey<Slot<T, K>>;

/// A slot for a value that is lent as a reference ([`Borrowed`]) or as an `Rc` ([`Shared`]).
pub(crate) struct Slot<T, K>(Cell<*const T>, PhantomData<K>);

/// The kind of a slot whose value is lent as a reference.
pub(crate) struct Borrowed;

/// The kind of a slot whose value is lent as an `Rc`.
pub(crate) struct Shared;

/// Restores the previous pointer when dropped.
struct Previous<T: 'static, K: 'static> {
    key: &'static Key<T, K>,
    pointer: *const T,
}

impl<T, K> Drop for Previous<T, K> {
    fn drop(&mut self) {
        self.key.with(|slot| slot.0.set(self.pointer));
    }
}

impl<T, K> Slot<T, K> {
    pub(crate) const fn new() -> Slot<T, K> {
        Slot(Cell::new(ptr::null()), PhantomData)
    }

    #[inline]
    fn pointer(key: &'static Key<T, K>) -> *const T {
        key.with(|slot| slot.0.get())
    }

    /// Keeps the pointer in the slot while a function runs. The previous pointer is restored
    /// afterwards, also if the function panics.
    fn during<R>(key: &'static Key<T, K>, pointer: *const T, f: impl FnOnce() -> R) -> R {
        let _previous = Previous { key, pointer: key.with(|slot| slot.0.replace(pointer)) };
        f()
    }

    /// Returns whether no value is lent.
    pub(crate) fn is_empty(key: &'static Key<T, K>) -> bool {
        Slot::pointer(key).is_null()
    }

    /// Calls a function with the value, if one is lent.
    #[inline]
    pub(crate) fn with<R>(key: &'static Key<T, K>, f: impl FnOnce(&T) -> R) -> Option<R> {
        // SAFETY: the pointer is null or comes from the innermost `lend` or `share` of this thread,
        // which has borrowed the value, or the `Rc` that owns it, and returns after this.
        unsafe { Slot::pointer(key).as_ref() }.map(f)
    }
}

impl<T> Slot<T, Borrowed> {
    /// Lends a value while a function runs.
    pub(crate) fn lend<R>(key: &'static Key<T, Borrowed>, value: &T, f: impl FnOnce() -> R) -> R {
        Slot::during(key, value, f)
    }
}

impl<T> Slot<T, Shared> {
    /// Shares a value while a function runs.
    pub(crate) fn share<R>(
        key: &'static Key<T, Shared>,
        value: &Rc<T>,
        f: impl FnOnce() -> R,
    ) -> R {
        Slot::during(key, Rc::as_ptr(value), f)
    }

    /// Returns another owner of the value, if one is lent.
    pub(crate) fn owned(key: &'static Key<T, Shared>) -> Option<Rc<T>> {
        let pointer = Slot::pointer(key);
        if pointer.is_null() {
            return None;
        }
        // SAFETY: the pointer comes from an `Rc`, which is alive as in `with`, and the count is
        // raised for the `Rc` that is made of it.
        unsafe {
            Rc::increment_strong_count(pointer);
            Some(Rc::from_raw(pointer))
        }
    }
}
