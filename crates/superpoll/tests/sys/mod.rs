//! System calls that `std` does not offer.

use std::os::fd::{AsFd, AsRawFd, RawFd};

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
