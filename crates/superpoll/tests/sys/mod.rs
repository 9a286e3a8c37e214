//! System calls that `std` does not offer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use superpoll::{Interest, Key, Poller};

/// A TCP socket that neither blocks nor is connected.
pub(crate) fn socket() -> OwnedFd {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: it takes three numbers.
    let fd = unsafe { libc::socket(libc::AF_INET, kind, 0) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: no other code knows of it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Whether a descriptor does not block, and whether it is closed on exec.
pub(crate) fn flags(fd: impl AsFd) -> (bool, bool) {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: it only asks.
    let (status, own) = unsafe { (libc::fcntl(fd, libc::F_GETFL), libc::fcntl(fd, libc::F_GETFD)) };
    (status & libc::O_NONBLOCK != 0, own & libc::FD_CLOEXEC != 0)
}

/// Makes the calls on a descriptor fail instead of waiting.
pub(crate) fn set_nonblocking(fd: impl AsFd) {
    // SAFETY: it takes three numbers.
    assert_eq!(unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
}

/// Whether a descriptor is readable now.
pub(crate) fn is_readable(fd: RawFd) -> bool {
    let mut slot = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the kernel reads and writes one structure, which outlives the call.
    unsafe { libc::poll(&raw mut slot, 1, 0) == 1 }
}

/// Puts a duplicate of one descriptor in the place of another, which is closed.
pub(crate) fn replace(fd: impl AsFd, number: RawFd) {
    // SAFETY: the owner of the number owns the duplicate from then on.
    assert_eq!(unsafe { libc::dup2(fd.as_fd().as_raw_fd(), number) }, number);
}

/// Sets the number of descriptors that this process may have. Those that are open stay open.
pub(crate) fn limit_descriptors(soft: u64) {
    let (_, rlim_max) = superpoll::limits::nofile();
    let limit = libc::rlimit { rlim_cur: soft, rlim_max };
    // SAFETY: the kernel reads one structure, which outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

/// Runs something in a forked process, and fails as it does.
pub(crate) fn in_a_child(run: impl FnOnce()) {
    // SAFETY: the child runs on, as its only thread, and ends without running the code that is left
    // to the parent.
    match unsafe { libc::fork() } {
        0 => {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            // SAFETY: it does not return.
            unsafe { libc::_exit(i32::from(outcome.is_err())) }
        }
        child => {
            let mut status = 0;
            // SAFETY: it writes one number.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child has failed");
        }
    }
}

/// Registers a descriptor that stays open until its registration has ended, which the test sees to.
pub(crate) fn register(poller: &mut Poller, fd: impl AsFd) -> Key {
    let key = poller.register(fd, Interest::NONE).unwrap();
    // SAFETY: as the caller sees to.
    unsafe { poller.assume_open(key) };
    key
}
