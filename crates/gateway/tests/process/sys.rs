//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

pub(crate) struct Counting;

// SAFETY: every call is handed to the system's allocator as it is; counting needs no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let before = BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        PEAK.fetch_max(before + layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps GlobalAlloc's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps GlobalAlloc's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes that were allocated and not freed.
pub(crate) fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// The most that [`bytes`] has been since the last call.
pub(crate) fn peak() -> usize {
    PEAK.swap(bytes(), Ordering::Relaxed)
}

/// Gives the memory back that the allocator of the C library keeps from what was freed.
#[cfg(target_env = "gnu")]
pub(super) fn trim() {
    // SAFETY: the call touches free memory only.
    unsafe { libc::malloc_trim(0) };
}
