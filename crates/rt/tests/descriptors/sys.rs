//! Descriptors whose numbers are closed without the knowledge of their owner.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A descriptor's number, in the hands of code that does not own the descriptor.
pub(crate) struct Number(pub RawFd);

impl AsFd for Number {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it may be closed, which is the case that is tested: the kernel refuses it
        // then. No memory depends on it.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// Duplicates a descriptor to a number that no other test gets: other tests get the lowest.
pub(crate) fn duplicate(fd: impl AsFd, least: RawFd) -> OwnedFd {
    // SAFETY: F_DUPFD_CLOEXEC takes a number and makes a descriptor that no other code has.
    unsafe {
        let fd = libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_DUPFD_CLOEXEC, least);
        assert!(fd >= least);
        OwnedFd::from_raw_fd(fd)
    }
}

/// Closes a descriptor without the knowledge of the code that has its number.
pub(crate) fn close(number: RawFd) {
    // SAFETY: its owner has given it up.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
}
