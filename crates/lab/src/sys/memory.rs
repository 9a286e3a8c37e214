//! An allocator that counts, so that "no allocation in a round" is measured.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

static COUNT: AtomicU64 = AtomicU64::new(0);
static IN_USE: AtomicBool = AtomicBool::new(false);

/// The system's allocator with a counter in front; a binary makes it its `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

/// Allocations so far; `None` if the binary does not use [`Counting`].
pub(crate) fn allocations() -> Option<u64> {
    IN_USE.load(Ordering::Relaxed).then(|| COUNT.load(Ordering::Relaxed))
}

fn count() {
    COUNT.fetch_add(1, Ordering::Relaxed);
    if !IN_USE.load(Ordering::Relaxed) {
        IN_USE.store(true, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract;
// counting touches two atomics and does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's obligations are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// Numbers that forked children share with their parent.
#[derive(Debug)]
pub(crate) struct SharedNumbers {
    address: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the address is that of a mapping which is not moved and ends with the value; all access
// is atomic.
unsafe impl Send for SharedNumbers {}
// SAFETY: as above.
unsafe impl Sync for SharedNumbers {}

impl SharedNumbers {
    /// Maps pages for this many numbers, at least one, shared across forks; all are zero.
    pub(crate) fn new(count: usize) -> std::io::Result<SharedNumbers> {
        let length = NonZeroUsize::new(bytes_of(count)).ok_or(ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping of the kernel's choosing touches no memory of ours.
        let address = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_SHARED)? };
        Ok(SharedNumbers { address: address.cast(), count })
    }

    /// Returns the numbers.
    pub(crate) fn all(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has room for so many, is aligned to a page, was zeroed by the kernel,
        // and lives as long as `self`; all access is atomic.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.count) }
    }
}

impl std::ops::Index<usize> for SharedNumbers {
    type Output = AtomicU64;
    fn index(&self, index: usize) -> &AtomicU64 {
        &self.all()[index]
    }
}

fn bytes_of(count: usize) -> usize {
    count * size_of::<AtomicU64>()
}

impl Drop for SharedNumbers {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` and is unmapped once; no borrow outlives `self`.
        let _ = unsafe { munmap(self.address.cast(), bytes_of(self.count)) };
    }
}
