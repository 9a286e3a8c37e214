//! System calls that make descriptors of many kinds.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

fn new(fd: i64) -> OwnedFd {
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel has just made it, and no other code knows of it.
    unsafe { OwnedFd::from_raw_fd(RawFd::try_from(fd).unwrap()) }
}

/// An event counter of zero.
pub(super) fn eventfd() -> OwnedFd {
    // SAFETY: it takes two numbers.
    new(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }.into())
}

/// A timer that is not set.
pub(super) fn timerfd() -> OwnedFd {
    // SAFETY: it takes two numbers.
    new(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) }.into())
}

/// A descriptor that reports one signal, which this thread can learn of in no other way from then
/// on.
pub(super) fn signalfd(signal: libc::c_int) -> OwnedFd {
    // SAFETY: all zeros are a value of a set of signals, which both calls fill; the later calls
    // read it.
    new(unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()), 0);
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    }
    .into())
}

/// Sends this thread a signal.
pub(super) fn raise(signal: libc::c_int) {
    // SAFETY: the signal is blocked, or handled, by the caller.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// An epoll set.
pub(super) fn epoll() -> OwnedFd {
    // SAFETY: it takes a number.
    new(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }.into())
}

/// An inotify instance that watches nothing.
pub(super) fn inotify() -> OwnedFd {
    // SAFETY: it takes a number.
    new(unsafe { libc::inotify_init1(libc::IN_CLOEXEC) }.into())
}

/// A descriptor of a process.
pub(super) fn pidfd(process: u32) -> OwnedFd {
    // SAFETY: it takes two numbers.
    new(unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) })
}
