//! The few functions of libevent that a loop needs.

use std::ffi::{c_int, c_short, c_void};
use std::os::fd::RawFd;
use std::ptr;

use crate::subject::Ledger;

#[repr(C)]
struct EventBase {
    _opaque: [u8; 0],
}

#[repr(C)]
struct Event {
    _opaque: [u8; 0],
}

type Callback = extern "C" fn(c_int, c_short, *mut c_void);

const EV_READ: c_short = 0x02;
const EV_PERSIST: c_short = 0x10;
const EVLOOP_ONCE: c_int = 0x01;

unsafe extern "C" {
    fn event_base_new() -> *mut EventBase;
    fn event_base_free(base: *mut EventBase);
    fn event_base_loop(base: *mut EventBase, flags: c_int) -> c_int;
    fn event_new(
        base: *mut EventBase,
        fd: c_int,
        what: c_short,
        callback: Callback,
        argument: *mut c_void,
    ) -> *mut Event;
    fn event_add(event: *mut Event, timeout: *const c_void) -> c_int;
    fn event_free(event: *mut Event);
}

/// What a callback is given.
struct Watcher {
    pair: usize,
    /// Where the ledger of the round is, shared by all watchers.
    ledger: *mut *mut Ledger,
}

/// An event base with a persistent read event for each reader.
pub(super) struct Base {
    base: *mut EventBase,
    events: Vec<*mut Event>,
    /// The callbacks hold pointers into this; it is neither grown nor moved.
    watchers: Box<[Watcher]>,
    ledger: *mut *mut Ledger,
}

extern "C" fn ready(fd: c_int, _what: c_short, argument: *mut c_void) {
    // SAFETY: the argument is a watcher of a live `Base`, and callbacks run only within
    // `run_once`, which has stored the ledger it borrows exclusively.
    unsafe {
        let watcher = &*argument.cast::<Watcher>();
        (**watcher.ledger).read(watcher.pair, fd);
    }
}

impl Base {
    /// Watches all readers; `None` if the library refuses.
    pub(super) fn new(readers: &[RawFd]) -> Option<Base> {
        let ledger = Box::into_raw(Box::new(ptr::null_mut()));
        let watchers: Box<[Watcher]> =
            (0..readers.len()).map(|pair| Watcher { pair, ledger }).collect();
        // SAFETY: takes nothing; a null result is checked below.
        let base = unsafe { event_base_new() };
        let mut made = Base { base, events: Vec::new(), watchers, ledger };
        if base.is_null() {
            return None;
        }
        for (watcher, &fd) in made.watchers.iter().zip(readers) {
            let argument = ptr::from_ref(watcher).cast_mut().cast();
            // SAFETY: base is live; the watcher outlives the event, which is freed first. A null
            // timeout means none.
            unsafe {
                let event = event_new(base, fd, EV_READ | EV_PERSIST, ready, argument);
                if event.is_null() {
                    return None;
                }
                made.events.push(event);
                if event_add(event, ptr::null()) != 0 {
                    return None;
                }
            }
        }
        Some(made)
    }

    /// One wait and its callbacks; says whether it worked.
    pub(super) fn run_once(&mut self, ledger: &mut Ledger) -> bool {
        // SAFETY: base is live; the callbacks use the ledger only during the call, and the pointer
        // is taken back before the borrow ends.
        unsafe {
            *self.ledger = ledger;
            let outcome = event_base_loop(self.base, EVLOOP_ONCE);
            *self.ledger = ptr::null_mut();
            outcome == 0
        }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        // SAFETY: all pointers came from the library or from a box and are freed once, events
        // before their base.
        unsafe {
            for &event in &self.events {
                event_free(event);
            }
            if !self.base.is_null() {
                event_base_free(self.base);
            }
            drop(Box::from_raw(self.ledger));
        }
    }
}
