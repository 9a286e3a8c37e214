//! The few functions of libev that a loop needs, and its watcher as compiled by default (with
//! priorities, and a `data` member and nothing else of the user's).

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::RawFd;
use std::ptr;

use crate::error::{Error, Result};
use crate::loops::{Loop, Ready, Watch};

#[repr(C)]
struct EvLoop {
    _opaque: [u8; 0],
}

#[repr(C)]
struct EvIo {
    active: c_int,
    pending: c_int,
    priority: c_int,
    data: *mut c_void,
    callback: extern "C" fn(*mut EvLoop, *mut EvIo, c_int),
    next: *mut c_void,
    fd: c_int,
    events: c_int,
}

const EV_READ: c_int = 0x01;
/// Set by the `ev_io_init` macro of libev 4: the kernel does not know this descriptor yet.
const EV_IO_FDSET: c_int = 0x80;
const EVFLAG_NOENV: c_uint = 0x0100_0000;
const EVBACKEND_EPOLL: c_uint = 4;
const EVRUN_ONCE: c_int = 2;

unsafe extern "C" {
    fn ev_version_major() -> c_int;
    fn ev_version_minor() -> c_int;
    fn ev_loop_new(flags: c_uint) -> *mut EvLoop;
    fn ev_loop_destroy(which: *mut EvLoop);
    fn ev_io_start(which: *mut EvLoop, watcher: *mut EvIo);
    fn ev_io_stop(which: *mut EvLoop, watcher: *mut EvIo);
    fn ev_run(which: *mut EvLoop, flags: c_int) -> c_int;
}

/// Returns the version of the library that is linked.
pub(crate) fn version() -> String {
    // SAFETY: both take nothing and return a number.
    let (major, minor) = unsafe { (ev_version_major(), ev_version_minor()) };
    format!("{major}.{minor}")
}

/// A watcher and the data of its callback. The library knows the address of the first member.
#[repr(C)]
struct Watcher {
    io: EvIo,
    place: usize,
}

/// A loop with a started watcher for each reader.
pub(crate) struct Libev<T> {
    this: *mut EvLoop,
    watchers: *mut [Watcher],
    /// The receiver of the callbacks in this run; each watcher's `data`.
    receiver: *mut *mut T,
}

extern "C" fn ready<T: Ready>(this: *mut EvLoop, io: *mut EvIo, _events: c_int) {
    // SAFETY: `io` is the first member of a `Watcher` of a live `Libev<T>`, both `repr(C)`;
    // callbacks run only within `turn`, which has stored the receiver it borrows exclusively. A
    // watcher may be stopped in its callback.
    unsafe {
        let watcher = io.cast::<Watcher>();
        let receiver = *(*io).data.cast::<*mut T>();
        if !(*receiver).ready((*watcher).place, (*io).fd) {
            ev_io_stop(this, io);
        }
    }
}

impl<T: Ready> Watch<T> for Libev<T> {
    fn watch(readers: &[RawFd], _room: usize) -> Result<Libev<T>> {
        let refused = || Error::usage("libev has no epoll here: see ev_loop_new in ev(3)");
        // SAFETY: takes flags; a null result is checked.
        let this = unsafe { ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV) };
        if this.is_null() {
            return Err(refused());
        }
        let receiver: *mut *mut T = Box::into_raw(Box::new(ptr::null_mut()));
        let watcher = |(place, &fd): (usize, &RawFd)| Watcher {
            io: EvIo {
                active: 0,
                pending: 0,
                priority: 0,
                data: receiver.cast(),
                callback: ready::<T>,
                next: ptr::null_mut(),
                fd,
                events: EV_READ | EV_IO_FDSET,
            },
            place,
        };
        let watchers: Box<[Watcher]> = readers.iter().enumerate().map(watcher).collect();
        let made = Libev { this, watchers: Box::into_raw(watchers), receiver };
        for place in 0..readers.len() {
            // SAFETY: the loop is live and the watcher initialised as `ev_io_init` does it; it
            // stays where it is until it is stopped.
            unsafe { ev_io_start(this, made.io(place)) };
        }
        Ok(made)
    }
}

impl<T: Ready> Loop<T> for Libev<T> {
    fn turn(&mut self, receiver: &mut T) -> Result<bool> {
        // SAFETY: the loop is live; the callbacks use the receiver only during the call, and the
        // pointer is taken back before the borrow ends.
        unsafe {
            *self.receiver = receiver;
            ev_run(self.this, EVRUN_ONCE);
            *self.receiver = ptr::null_mut();
        }
        Ok(true)
    }
}

impl<T> Libev<T> {
    fn io(&self, place: usize) -> *mut EvIo {
        // SAFETY: callers stay below the length of the slice, which lives as long as `self`.
        unsafe { &raw mut (*self.watchers.cast::<Watcher>().add(place)).io }
    }
}

impl<T> Drop for Libev<T> {
    fn drop(&mut self) {
        // SAFETY: the watchers are stopped before the loop ends and freed after it; each pointer
        // came from the library or from a box and is freed once.
        unsafe {
            for place in 0..self.watchers.len() {
                ev_io_stop(self.this, self.io(place));
            }
            ev_loop_destroy(self.this);
            drop(Box::from_raw(self.watchers));
            drop(Box::from_raw(self.receiver));
        }
    }
}
