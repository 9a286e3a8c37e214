//! The kernel's monotonic clocks.

use std::time::Duration;

#[inline]
fn read(clock: libc::clockid_t) -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec to write to for the length of the call.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    // Monotonic time is positive, and its nanoseconds are less than a second.
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Returns monotonic time with the resolution of the kernel's tick (`CLOCK_MONOTONIC_COARSE`, Linux
/// 2.6.32): a quarter of the price of the precise clock, for times that matter only to the
/// millisecond.
#[inline]
pub(crate) fn coarse() -> Duration {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// Returns the same time to the nanosecond.
#[inline]
pub(crate) fn precise() -> Duration {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the step of [`coarse`].
pub(crate) fn coarse_step() -> Duration {
    let mut step = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `step` is a valid timespec to write to for the length of the call.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut step) };
    Duration::new(step.tv_sec as u64, step.tv_nsec as u32)
}
