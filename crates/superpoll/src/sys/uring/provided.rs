//! The memory of provided buffers (`IORING_REGISTER_PBUF_RING`), which the kernel shares with us.
//!
//! The buffers lie in slabs. The kernel learns of free buffers through a ring in memory that both
//! sides share. A buffer that it has filled belongs to a [`Provided`] alone, until that is dropped
//! and the number comes back, from whatever thread. The memory lives as long as any of the buffers.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use io_uring::types::BufRingEntry;

use super::Ring;
use crate::stats::Calls;

/// The bytes of a buffer, how many are added at a time, and how many there are at most.
pub(crate) const SIZE: usize = 4096;
pub(crate) const SLAB: u16 = 64;
pub(crate) const MOST: u16 = 1024;
const _: () = assert!(MOST.is_power_of_two() && MOST.is_multiple_of(SLAB));

/// The name of the one group of buffers that a ring has.
pub(crate) const GROUP: u16 = 0;

/// Memory from the allocator, given back when it is dropped.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns the memory alone, and nothing in it belongs to a thread.
unsafe impl Send for Memory {}

impl Memory {
    fn zeroed(size: usize, align: usize) -> Memory {
        let layout = Layout::from_size_align(size, align).unwrap_or(Layout::new::<[u8; SIZE]>());
        debug_assert!(layout.size() == size, "the sizes here are constants");
        // SAFETY: the size is not zero.
        match NonNull::new(unsafe { alloc_zeroed(layout) }) {
            Some(start) => Memory { start, layout },
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and all its users are gone.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// The memory of the buffers, and the numbers that have come back.
#[derive(Default)]
struct Pool {
    slabs: Mutex<Vec<Memory>>,
    returned: Mutex<Vec<u16>>,
    any_returned: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while one is locked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that were received, in a buffer that belongs to the poller. The buffer goes back when this
/// is dropped, and the poller uses it again from its next wait on. A poller that sleeps because all
/// its buffers are in use is not woken by that, so code that keeps them on another thread uses a
/// [`Waker`](crate::Waker) afterwards.
pub struct Provided {
    pool: Arc<Pool>,
    start: NonNull<u8>,
    length: usize,
    number: u16,
}

// SAFETY: the bytes are its own until it is dropped; the pool is shared through locks.
unsafe impl Send for Provided {}
// SAFETY: a shared one is only read.
unsafe impl Sync for Provided {}

impl Deref for Provided {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the kernel has written this many bytes, and leaves the buffer alone until it is
        // provided again; the pool keeps the memory.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl fmt::Debug for Provided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provided").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Drop for Provided {
    fn drop(&mut self) {
        lock(&self.pool.returned).push(self.number);
        self.pool.any_returned.store(true, Ordering::Release);
    }
}

/// The memory of the buffers of one ring.
pub(crate) struct Slabs {
    /// The memory that is shared with the kernel; leaked if the kernel could not be made to forget
    /// it.
    shared: Option<Memory>,
    tail: u16,
    pool: Arc<Pool>,
}

impl fmt::Debug for Slabs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slabs").field("tail", &self.tail).finish_non_exhaustive()
    }
}

impl Slabs {
    /// The bytes of the memory that is shared with the kernel.
    pub(crate) const SHARED: usize = MOST as usize * size_of::<BufRingEntry>();

    /// No buffers yet, for a ring that has none.
    pub(crate) fn new(calls: &mut Calls, ring: &mut Ring) -> io::Result<Slabs> {
        // Its address must be that of a page.
        let shared = Memory::zeroed(Slabs::SHARED, 4096);
        // SAFETY: the memory is kept until the kernel was told to forget it, or indefinitely.
        unsafe { ring.register_buffers(calls, shared.start.as_ptr() as u64, MOST, GROUP) }?;
        Ok(Slabs { shared: Some(shared), tail: 0, pool: Arc::default() })
    }

    /// Adds memory for [`SLAB`] buffers more.
    pub(crate) fn add(&mut self) {
        let slab = Memory::zeroed(usize::from(SLAB) * SIZE, 4096);
        lock(&self.pool.slabs).push(slab);
    }

    /// Takes the numbers that have come back, if any have.
    #[inline]
    pub(crate) fn take_returned(&mut self) -> Option<Vec<u16>> {
        if !self.pool.any_returned.load(Ordering::Acquire) {
            return None;
        }
        // First, so that buffers that come back from now on are seen the next time.
        self.pool.any_returned.store(false, Ordering::Release);
        Some(std::mem::take(&mut *lock(&self.pool.returned)))
    }

    /// Keeps a list of numbers for its room.
    pub(crate) fn keep_room(&mut self, emptied: Vec<u16>) {
        let mut place = lock(&self.pool.returned);
        if place.is_empty() && emptied.is_empty() {
            *place = emptied;
        }
    }

    fn start_of(&self, number: u16) -> NonNull<u8> {
        let slabs = lock(&self.pool.slabs);
        let slab = &slabs[usize::from(number / SLAB)];
        // SAFETY: a slab has this many buffers of that size.
        unsafe { slab.start.add(usize::from(number % SLAB) * SIZE) }
    }

    /// Provides a buffer to the kernel, which sees it once that was [published](Slabs::publish).
    /// For a number that is new, or that has come back.
    pub(crate) fn provide(&mut self, number: u16) {
        let Some(shared) = &self.shared else { return };
        let place = usize::from(self.tail % MOST);
        let start = self.start_of(number).as_ptr() as u64;
        // SAFETY: there are this many entries, and the kernel reads none beyond the tail that it
        // was given. Only the three fields are written: the tail lies where the first entry has
        // nothing.
        unsafe {
            let entry = shared.start.cast::<BufRingEntry>().add(place).as_mut();
            entry.set_addr(start);
            entry.set_len(SIZE as u32);
            entry.set_bid(number);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Makes the kernel see the buffers that were provided.
    pub(crate) fn publish(&mut self) {
        let Some(shared) = &self.shared else { return };
        // SAFETY: the ring begins there, is aligned, and lives as long as `shared`; we alone write
        // its tail.
        unsafe {
            let tail = BufRingEntry::tail(shared.start.cast::<BufRingEntry>().as_ptr());
            AtomicU16::from_ptr(tail.cast_mut()).store(self.tail, Ordering::Release);
        }
    }

    /// Takes the bytes that the kernel has put into a buffer, which the kernel must not know any
    /// more.
    pub(crate) fn taken(&mut self, number: u16, length: usize) -> Provided {
        let start = self.start_of(number);
        Provided { pool: self.pool.clone(), start, length: length.min(SIZE), number }
    }

    /// Makes the kernel forget the buffers. Nothing may be under way that uses them.
    pub(crate) fn forget(mut self, calls: &mut Calls, ring: &mut Ring) {
        if ring.unregister_buffers(calls, GROUP).is_ok() {
            return;
        }
        // The kernel may read the shared memory as long as the ring is there.
        std::mem::forget(self.shared.take());
        self.leak();
    }

    /// Leaves all memory to a kernel that may still write to it.
    pub(crate) fn leak(mut self) {
        std::mem::forget(self.shared.take());
        std::mem::forget(self.pool.clone());
    }
}
