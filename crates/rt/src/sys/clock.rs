//! The kernel's coarse clock.

use std::time::Duration;

/// Monotonic time with the resolution of the kernel's tick (`CLOCK_MONOTONIC_COARSE`, Linux 2.6.32): a
/// quarter of the price of the precise clock, for what is only interesting in milliseconds.
#[inline]
pub(crate) fn coarse() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec to write to for the length of the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    // Monotonic time is positive, and its nanoseconds are less than a second.
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
