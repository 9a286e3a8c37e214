//! Descriptors by number.

use std::os::fd::{BorrowedFd, RawFd};

/// A descriptor that a thread of the same process has named.
pub(crate) fn by_number<'a>(number: RawFd) -> Option<BorrowedFd<'a>> {
    // SAFETY: the number is not -1, which means no descriptor. The kernel decides whether it is
    // open and still means the file that it meant when it was named: the descriptor goes to
    // `epoll_ctl` alone, which looks it up once and refuses one that is closed, and a registration
    // of a file that was closed since has ended with it.
    (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
}
