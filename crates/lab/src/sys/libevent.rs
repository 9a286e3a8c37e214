//! The few functions of libevent that a loop needs.

use std::ffi::{CStr, c_char, c_int, c_short, c_void};
use std::os::fd::RawFd;
use std::ptr;

use crate::error::{Error, Result};
use crate::loops::{Loop, Ready, Watch};

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
    fn event_get_version() -> *const c_char;
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
    fn event_del(event: *mut Event) -> c_int;
    fn event_free(event: *mut Event);
}

/// Returns the version of the library that is linked.
pub(crate) fn version() -> String {
    // SAFETY: the library returns a string of its own that is never freed.
    unsafe { CStr::from_ptr(event_get_version()) }.to_string_lossy().into_owned()
}

/// The data of a callback.
struct Watcher<T> {
    place: usize,
    event: *mut Event,
    /// The receiver of the callbacks in this run, shared by all watchers.
    receiver: *mut *mut T,
}

/// An event base with a persistent read event for each reader.
pub(crate) struct Libevent<T> {
    base: *mut EventBase,
    /// The callbacks hold pointers into this; it is neither grown nor moved.
    watchers: *mut [Watcher<T>],
    receiver: *mut *mut T,
}

extern "C" fn ready<T: Ready>(fd: c_int, _what: c_short, argument: *mut c_void) {
    // SAFETY: the argument is a watcher of a live `Libevent<T>`, and callbacks run only within
    // `turn`, which has stored the receiver it borrows exclusively. An event may be deleted in
    // its callback.
    unsafe {
        let watcher = argument.cast::<Watcher<T>>();
        if !(**(*watcher).receiver).ready((*watcher).place, fd) {
            event_del((*watcher).event);
        }
    }
}

impl<T: Ready> Watch<T> for Libevent<T> {
    fn watch(readers: &[RawFd], _room: usize) -> Result<Libevent<T>> {
        let refused = || Error::usage("libevent refused a descriptor: see event_add(3)");
        let receiver: *mut *mut T = Box::into_raw(Box::new(ptr::null_mut()));
        let watcher = |place| Watcher { place, event: ptr::null_mut(), receiver };
        let watchers: Box<[Watcher<T>]> = (0..readers.len()).map(watcher).collect();
        // SAFETY: takes nothing; a null result is checked below.
        let base = unsafe { event_base_new() };
        let made = Libevent { base, watchers: Box::into_raw(watchers), receiver };
        if base.is_null() {
            return Err(refused());
        }
        for (place, &fd) in readers.iter().enumerate() {
            let watcher = made.watcher(place);
            // SAFETY: base and watcher are live; the watcher outlives the event, which is freed
            // first. A null timeout means none.
            unsafe {
                let event = event_new(base, fd, EV_READ | EV_PERSIST, ready::<T>, watcher.cast());
                if event.is_null() {
                    return Err(refused());
                }
                (*watcher).event = event;
                if event_add(event, ptr::null()) != 0 {
                    return Err(refused());
                }
            }
        }
        Ok(made)
    }
}

impl<T: Ready> Loop<T> for Libevent<T> {
    fn turn(&mut self, receiver: &mut T) -> Result<bool> {
        // SAFETY: base is live; the callbacks use the receiver only during the call, and the
        // pointer is taken back before the borrow ends.
        unsafe {
            *self.receiver = receiver;
            let outcome = event_base_loop(self.base, EVLOOP_ONCE);
            *self.receiver = ptr::null_mut();
            match outcome {
                0.. => Ok(true),
                _ => Err(Error::usage("event_base_loop of libevent failed")),
            }
        }
    }
}

impl<T> Libevent<T> {
    fn watcher(&self, place: usize) -> *mut Watcher<T> {
        // SAFETY: callers stay below the length of the slice, which lives as long as `self`.
        unsafe { self.watchers.cast::<Watcher<T>>().add(place) }
    }
}

impl<T> Drop for Libevent<T> {
    fn drop(&mut self) {
        // SAFETY: all pointers came from the library or from a box and are freed once, events
        // before their base.
        unsafe {
            for place in 0..self.watchers.len() {
                let event = (*self.watcher(place)).event;
                if !event.is_null() {
                    event_free(event);
                }
            }
            if !self.base.is_null() {
                event_base_free(self.base);
            }
            drop(Box::from_raw(self.watchers));
            drop(Box::from_raw(self.receiver));
        }
    }
}
