//! `poll(2)`.

use std::os::fd::RawFd;

/// Waits indefinitely and returns how many entries are ready; negative for an error, as the kernel
/// returns it.
#[inline(always)]
pub(crate) fn wait(set: &mut [libc::pollfd]) -> i32 {
    // SAFETY: the kernel reads and writes the entries of the slice, and nothing beyond.
    unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, -1) }
}

/// Polls without waiting and returns how many entries are ready; negative for an error, as the
/// kernel returns it.
pub(crate) fn look(set: &mut [libc::pollfd]) -> i32 {
    // SAFETY: as above.
    unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, 0) }
}

// `select(2)`.

/// Descriptors to wait for.
pub(crate) struct Set {
    set: libc::fd_set,
    end: i32,
}

impl Set {
    /// Creates an empty set.
    pub(crate) fn new() -> Set {
        // SAFETY: all zeros is the empty set.
        Set { set: unsafe { std::mem::zeroed() }, end: 0 }
    }

    /// Adds a descriptor; returns whether its number is small enough.
    pub(crate) fn add(&mut self, fd: RawFd) -> bool {
        let fits = (0..libc::FD_SETSIZE as RawFd).contains(&fd);
        if fits {
            // SAFETY: the number was checked against the size of the set.
            unsafe { libc::FD_SET(fd, &raw mut self.set) };
            self.end = self.end.max(fd + 1);
        }
        fits
    }

    /// Waits indefinitely until a descriptor is readable, writes the readable ones to `ready`, and
    /// returns how many; negative for an error, as the kernel returns it.
    #[inline(always)]
    pub(crate) fn wait_into(&self, ready: &mut Set) -> i32 {
        ready.set = self.set;
        let none = std::ptr::null_mut();
        // SAFETY: the kernel reads and writes the other set, which outlives the call; the further
        // sets and the timeout are absent.
        unsafe { libc::select(self.end, &raw mut ready.set, none, none, std::ptr::null_mut()) }
    }

    /// Returns whether a descriptor is in the set.
    #[inline(always)]
    pub(crate) fn contains(&self, fd: RawFd) -> bool {
        // SAFETY: the number is checked against the size of the set first.
        (0..libc::FD_SETSIZE as RawFd).contains(&fd)
            && unsafe { libc::FD_ISSET(fd, &raw const self.set) }
    }

    /// Waits indefinitely until a descriptor is readable and returns how many are; negative for an
    /// error, as the kernel returns it.
    pub(crate) fn wait(&self) -> i32 {
        self.wait_into(&mut Set::new())
    }
}
