//! The system calls, one thin function each, and the only `unsafe` code of the crate.
//!
//! Each function that the poller calls while running takes the counters and adds itself to them,
//! so that the statistics cannot miss a call.

pub mod call;
pub(crate) mod descriptor;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod forks;
pub mod limits;
pub(crate) mod poll;
pub(crate) mod returns;
pub(crate) mod select;
#[cfg(feature = "uring")]
pub(crate) mod uring;
pub(crate) mod wait_call;

use std::io;
use std::time::Duration;

use crate::stats::Calls;

/// Turns the `-1` convention into a result.
#[inline(always)]
pub(crate) fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// A duration as the kernel takes it, saturating.
#[cfg_attr(
    target_env = "musl",
    allow(deprecated, reason = "libc calls time_t so for musl, where its size will change")
)]
pub(crate) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(duration.subsec_nanos() as i32),
    }
}

/// Sleeps for this time, or until a signal.
pub(crate) fn sleep(calls: &mut Calls, time: Duration) {
    calls.nanosleep += 1;
    let time = timespec(time);
    // SAFETY: the kernel reads the time, which outlives the call, and writes nothing.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

/// Blocks all signals for this thread, except those that it causes itself.
pub(crate) fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call fills the set, which the second reads; it changes nothing but this
    // thread's mask.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// Sets by how much the kernel may delay this thread's timers to merge them with further timers
/// (`PR_SET_TIMERSLACK`; 50 microseconds unless set). It bounds how late a wait with a timeout
/// returns. A zero is taken as one nanosecond, because the kernel takes zero as "back to the
/// default".
///
/// # Errors
///
/// The error of `prctl(2)`.
pub fn set_timer_slack(slack: Duration) -> io::Result<()> {
    let nanoseconds =
        libc::c_ulong::try_from(slack.as_nanos()).unwrap_or(libc::c_ulong::MAX).max(1);
    // SAFETY: this option takes one integer and touches no memory of ours.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds, 0, 0, 0) }).map(drop)
}
