//! The few functions of libuv that a loop needs. Loop and handles are blocks of the size that the
//! library says.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;

use crate::subject::Ledger;

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
    fn uv_handle_set_data(handle: *mut UvPoll, data: *mut c_void);
    fn uv_handle_get_data(handle: *const UvPoll) -> *mut c_void;
    fn uv_close(handle: *mut UvPoll, callback: Option<extern "C" fn(*mut UvPoll)>);
}

/// A zeroed block on the heap, of the size that the library asks for.
struct Block {
    address: *mut u128,
    words: usize,
}

impl Block {
    /// At least `size` bytes, aligned for any C type.
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

struct Watcher {
    handle: Block,
    pair: usize,
    fd: RawFd,
    /// Where the ledger of the round is, shared by all watchers.
    ledger: *mut *mut Ledger,
}

impl Watcher {
    fn handle(&self) -> *mut UvPoll {
        self.handle.address.cast()
    }
}

/// A loop with a started poll handle for each reader.
pub(super) struct Loop {
    this: Block,
    /// Neither grown nor moved: each handle's data points to its watcher.
    watchers: Box<[Watcher]>,
    /// How many of them the library knows.
    known: usize,
    ledger: *mut *mut Ledger,
}

extern "C" fn ready(handle: *mut UvPoll, _status: c_int, _events: c_int) {
    // SAFETY: the data of a handle is its watcher in a live `Loop`; callbacks run only within
    // `run_once`, which has stored the ledger it borrows exclusively.
    unsafe {
        let watcher = &*uv_handle_get_data(handle).cast::<Watcher>();
        (**watcher.ledger).read(watcher.pair, watcher.fd);
    }
}

impl Loop {
    /// Watches all readers; `None` if the library refuses.
    pub(super) fn new(readers: &[RawFd]) -> Option<Loop> {
        // SAFETY: the library reads constants.
        let (loop_size, handle_size) = unsafe { (uv_loop_size(), uv_handle_size(UV_POLL)) };
        let this = Block::new(loop_size);
        // SAFETY: the block is as large as the library says a loop is.
        if unsafe { uv_loop_init(this.address.cast()) } != 0 {
            return None;
        }
        let ledger = Box::into_raw(Box::new(ptr::null_mut()));
        let watcher = |(pair, &fd): (usize, &RawFd)| Watcher {
            handle: Block::new(handle_size),
            pair,
            fd,
            ledger,
        };
        let watchers = readers.iter().enumerate().map(watcher).collect();
        let mut made = Loop { this, watchers, known: 0, ledger };
        for watcher in &made.watchers {
            let data = ptr::from_ref(watcher).cast_mut().cast();
            // SAFETY: loop and handle are live blocks of the right size, and stay where they are
            // until the loop is closed.
            unsafe {
                if uv_poll_init(made.this(), watcher.handle(), watcher.fd) != 0 {
                    return None;
                }
                made.known += 1;
                uv_handle_set_data(watcher.handle(), data);
                if uv_poll_start(watcher.handle(), UV_READABLE, ready) != 0 {
                    return None;
                }
            }
        }
        Some(made)
    }

    fn this(&self) -> *mut UvLoop {
        self.this.address.cast()
    }

    /// One wait and its callbacks.
    pub(super) fn run_once(&mut self, ledger: &mut Ledger) {
        // SAFETY: the loop is live; the callbacks use the ledger only during the call, and the
        // pointer is taken back before the borrow ends.
        unsafe {
            *self.ledger = ledger;
            uv_run(self.this(), UV_RUN_ONCE);
            *self.ledger = ptr::null_mut();
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // SAFETY: handles are closed once and let the loop run until the library has let go of
        // them; only then are loop and handles freed.
        unsafe {
            for watcher in &self.watchers[..self.known] {
                uv_close(watcher.handle(), None);
            }
            uv_run(self.this(), UV_RUN_DEFAULT);
            uv_loop_close(self.this());
            drop(Box::from_raw(self.ledger));
        }
    }
}
