//! `pselect`, and bit sets that refuse numbers that would overflow them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::stats::Calls;

/// The first descriptor number that does not fit into a set.
pub(crate) const SET_SIZE: RawFd = libc::FD_SETSIZE as RawFd;

/// A set of descriptors below [`SET_SIZE`].
#[derive(Clone, Copy)]
pub(crate) struct Set(libc::fd_set);

impl Set {
    pub(crate) fn new() -> Set {
        let mut set = MaybeUninit::<libc::fd_set>::uninit();
        // SAFETY: FD_ZERO writes the whole set.
        unsafe { libc::FD_ZERO(set.as_mut_ptr()) };
        // SAFETY: just written.
        Set(unsafe { set.assume_init() })
    }

    /// Adds or removes a descriptor; numbers outside the set are ignored.
    pub(crate) fn put(&mut self, fd: RawFd, on: bool) {
        if !(0..SET_SIZE).contains(&fd) {
            return;
        }
        if on {
            // SAFETY: the number is inside the set.
            unsafe { libc::FD_SET(fd, &mut self.0) }
        } else {
            // SAFETY: the number is inside the set.
            unsafe { libc::FD_CLR(fd, &mut self.0) }
        }
    }

    pub(crate) fn has(&self, fd: RawFd) -> bool {
        // SAFETY: the number is inside the set.
        (0..SET_SIZE).contains(&fd) && unsafe { libc::FD_ISSET(fd, &self.0) }
    }
}

/// Waits until the timeout (`None`: no limit) for descriptors below `end`; leaves the ready ones in
/// the sets.
pub(crate) fn wait(
    calls: &mut Calls,
    end: RawFd,
    readable: &mut Set,
    writable: &mut Set,
    exceptional: &mut Set,
    timeout: Option<Duration>,
) -> io::Result<usize> {
    calls.select += 1;
    let time = timeout.map(super::timespec);
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the kernel reads and writes three sets of FD_SETSIZE bits, `end` is at most that,
    // and timespec and sets outlive the call; a null signal mask is allowed.
    super::check(unsafe {
        libc::pselect(
            end.clamp(0, SET_SIZE),
            &mut readable.0,
            &mut writable.0,
            &mut exceptional.0,
            time,
            std::ptr::null(),
        )
    })
    .map(|ready| ready as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_exactly_its_numbers() {
        let mut set = Set::new();
        for fd in [0, 1, 63, 64, SET_SIZE - 1] {
            assert!(!set.has(fd));
            set.put(fd, true);
            assert!(set.has(fd));
            set.put(fd, false);
            assert!(!set.has(fd));
        }
        for fd in [-1, SET_SIZE, i32::MAX] {
            set.put(fd, true);
            assert!(!set.has(fd));
        }
    }
}
