//! A timer of the kernel (`timerfd_create(2)`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A descriptor that becomes readable when its time is over.
#[derive(Debug)]
pub(crate) struct Timer(OwnedFd);

impl Timer {
    /// Makes a timer that is not set.
    pub(crate) fn new() -> io::Result<Timer> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: the call takes integers.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it, and no other code has its number.
        Ok(Timer(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sets the timer anew, to less than a second and more than nothing. It is not readable until
    /// that is over.
    pub(crate) fn set(&self, after: Duration) -> io::Result<()> {
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let end = libc::timespec { tv_sec: 0, tv_nsec: after.subsec_nanos().into() };
        let when = libc::itimerspec { it_interval: never, it_value: end };
        // SAFETY: the kernel reads the time, which outlives the call, and writes nothing.
        let set = unsafe {
            libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const when, std::ptr::null_mut())
        };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
