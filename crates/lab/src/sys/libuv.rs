//! The few functions of libuv that a loop needs. Loop and handles are blocks of the size that the
//! library reports.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;

use crate::error::{Error, Result};
use crate::loops::{Loop, Ready, Watch};

#[repr(C)]
struct UvLoop {
    _opaque: [u8; 0],
}

#[repr(C)]
struct UvPoll {
    _opaque: [u8; 0],
}

const UV_POLL: c_int = 8;
const UV_READABLE: c_int = 1;
const UV_RUN_DEFAULT: c_int = 0;
const UV_RUN_ONCE: c_int = 1;

unsafe extern "C" {
    fn uv_version_string() -> *const c_char;
    fn uv_loop_size() -> usize;
    fn uv_handle_size(kind: c_int) -> usize;
    fn uv_loop_init(which: *mut UvLoop) -> c_int;
    fn uv_loop_close(which: *mut UvLoop) -> c_int;
    fn uv_run(which: *mut UvLoop, mode: c_int) -> c_int;
    fn uv_poll_init(which: *mut UvLoop, handle: *mut UvPoll, fd: c_int) -> c_int;
    fn uv_poll_start(
        handle: *mut UvPoll,
        events: c_int,
        callback: extern "C" fn(*mut UvPoll, c_int, c_int),
    ) -> c_int;
    fn uv_poll_stop(handle: *mut UvPoll) -> c_int;
    fn uv_handle_set_data(handle: *mut UvPoll, data: *mut c_void);
    fn uv_handle_get_data(handle: *const UvPoll) -> *mut c_void;
    fn uv_close(handle: *mut UvPoll, callback: Option<extern "C" fn(*mut UvPoll)>);
}

/// Returns the version of the library that is linked.
pub(crate) fn version() -> String {
    // SAFETY: the library returns a string of its own that is never freed.
    unsafe { CStr::from_ptr(uv_version_string()) }.to_string_lossy().into_owned()
}

/// A zeroed block on the heap, of the size that the library needs.
struct Block {
    address: *mut u128,
    words: usize,
}

impl Block {
    /// Creates a block of at least `size` bytes, aligned for any C type.
    fn new(size: usize) -> Block {
        let words = size.div_ceil(size_of::<u128>());
        let block = vec![0u128; words].into_boxed_slice();
        Block { address: Box::into_raw(block).cast(), words }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the boxed slice that `new` took apart, once.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.address, self.words)) });
    }
}

struct Watcher<T> {
    handle: Block,
    place: usize,
    fd: RawFd,
    /// The receiver of the callbacks in this run, shared by all watchers.
    receiver: *mut *mut T,
}

impl<T> Watcher<T> {
    fn handle(&self) -> *mut UvPoll {
        self.handle.address.cast()
    }
}

/// A loop with a started poll handle for each reader.
pub(crate) struct Libuv<T> {
    this: Block,
    /// Neither grown nor moved: each handle's data points to its watcher.
    watchers: Box<[Watcher<T>]>,
    /// How many of the handles the library knows.
    known: usize,
    receiver: *mut *mut T,
}

extern "C" fn ready<T: Ready>(handle: *mut UvPoll, _status: c_int, _events: c_int) {
    // SAFETY: the data of a handle is its watcher in a live `Libuv<T>`; callbacks run only within
    // `turn`, which has stored the receiver it borrows exclusively. A handle may be stopped in
    // its callback.
    unsafe {
        let watcher = &*uv_handle_get_data(handle).cast::<Watcher<T>>();
        if !(**watcher.receiver).ready(watcher.place, watcher.fd) {
            uv_poll_stop(handle);
        }
    }
}

impl<T: Ready> Watch<T> for Libuv<T> {
    fn watch(readers: &[RawFd], _room: usize) -> Result<Libuv<T>> {
        let refused = || Error::usage("libuv refused a descriptor: see uv_poll_init");
        // SAFETY: the library reads constants.
        let (loop_size, handle_size) = unsafe { (uv_loop_size(), uv_handle_size(UV_POLL)) };
        let this = Block::new(loop_size);
        // SAFETY: the block is as large as the library says a loop is.
        if unsafe { uv_loop_init(this.address.cast()) } != 0 {
            return Err(refused());
        }
        let receiver: *mut *mut T = Box::into_raw(Box::new(ptr::null_mut()));
        let watcher = |(place, &fd): (usize, &RawFd)| Watcher {
            handle: Block::new(handle_size),
            place,
            fd,
            receiver,
        };
        let watchers = readers.iter().enumerate().map(watcher).collect();
        let mut made = Libuv { this, watchers, known: 0, receiver };
        for watcher in &made.watchers {
            let data = ptr::from_ref(watcher).cast_mut().cast();
            // SAFETY: loop and handle are live blocks of the right size, and stay where they are
            // until the loop is closed.
            unsafe {
                if uv_poll_init(made.this(), watcher.handle(), watcher.fd) != 0 {
                    return Err(refused());
                }
                made.known += 1;
                uv_handle_set_data(watcher.handle(), data);
                if uv_poll_start(watcher.handle(), UV_READABLE, ready::<T>) != 0 {
                    return Err(refused());
                }
            }
        }
        Ok(made)
    }
}

impl<T: Ready> Loop<T> for Libuv<T> {
    fn turn(&mut self, receiver: &mut T) -> Result<bool> {
        // SAFETY: the loop is live; the callbacks use the receiver only during the call, and the
        // pointer is taken back before the borrow ends.
        unsafe {
            *self.receiver = receiver;
            uv_run(self.this(), UV_RUN_ONCE);
            *self.receiver = ptr::null_mut();
        }
        Ok(true)
    }
}

impl<T> Libuv<T> {
    fn this(&self) -> *mut UvLoop {
        self.this.address.cast()
    }
}

impl<T> Drop for Libuv<T> {
    fn drop(&mut self) {
        // SAFETY: handles are closed once and let the loop run until the library has let go of
        // them; only then are loop and handles freed.
        unsafe {
            for watcher in &self.watchers[..self.known] {
                uv_close(watcher.handle(), None);
            }
            uv_run(self.this(), UV_RUN_DEFAULT);
            uv_loop_close(self.this());
            drop(Box::from_raw(self.receiver));
        }
    }
}
