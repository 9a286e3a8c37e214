//! Signals that become events of a descriptor.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook_registry::SigId;

/// Returns a counter that is readable while it is not zero (`eventfd(2)`, Linux 2.6.27),
/// non-blocking and closed on exec.
pub(crate) fn counter() -> io::Result<OwnedFd> {
    // SAFETY: eventfd takes two numbers and touches no memory.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Counts each arrival of a signal. The signal's handler keeps the counter open.
pub(crate) fn count(signal: i32, counter: Arc<OwnedFd>) -> io::Result<SigId> {
    let action = move || {
        // SAFETY: a handler saves the thread's errno, and gives it back.
        unsafe {
            let errno = libc::__errno_location();
            let saved = *errno;
            add(&counter);
            *errno = saved;
        }
    };
    // SAFETY: the action only makes calls that a handler may make (write(2), signal-safety(7)): it
    // neither allocates nor locks, and it cannot panic.
    unsafe { signal_hook_registry::register(signal, action) }
}

/// Sets a flag at each arrival of a signal.
pub(crate) fn note(signal: i32, has_arrived: Arc<AtomicBool>) -> io::Result<SigId> {
    let action = move || has_arrived.store(true, Ordering::Relaxed);
    // SAFETY: a handler may write to an atomic, and the action does nothing else.
    unsafe { signal_hook_registry::register(signal, action) }
}

/// Adds one to a counter.
pub(crate) fn add(counter: &OwnedFd) {
    let one = 1u64;
    // SAFETY: the kernel reads eight bytes, which outlive the call. A counter that is full, which
    // it refuses, is readable too.
    unsafe { libc::write(counter.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}

/// Sets a counter to zero; `WouldBlock` if it is zero already.
pub(crate) fn take(counter: &OwnedFd) -> io::Result<()> {
    let mut value = 0u64;
    // SAFETY: `value` may be written to, eight bytes long.
    let read =
        unsafe { libc::read(counter.as_raw_fd(), (&raw mut value).cast(), size_of::<u64>()) };
    if read < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
