//! How often this process has been forked.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often this process has been forked, seen from the child.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// How often this process has been forked since the first call of this function, seen from the
/// child.
pub(crate) fn count() -> u32 {
    watch_forks();
    so_far()
}

/// The error for a child that uses an object of its parent.
pub(crate) fn error() -> io::Error {
    io::Error::other("the process has been forked: call after_fork in the child first")
}

/// The same, without starting to count.
#[inline]
pub(crate) fn so_far() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

fn watch_forks() {
    static ONCE: Once = Once::new();
    extern "C" fn forked() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    ONCE.call_once(|| {
        // SAFETY: the function only adds to a static, which is allowed between fork and exec.
        // Without memory for the handler nothing is counted, and the only protection is the ring's
        // own errors.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}
