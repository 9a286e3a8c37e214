//! An epoll set as a registry, with either way to tell it of changes.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::sys::epoll::{self, Change};

use crate::registrations::registry::Registry;

/// The first registered interest: priority data, which never arrives.
pub(super) const FIRST: u32 = libc::EPOLLPRI as u32;

/// The interest after the change.
pub(super) const MODIFIED: u32 = libc::EPOLLIN as u32;

/// A way to tell an epoll set of changes.
pub(super) trait Tell {
    /// Makes the same change for all pairs of a batch.
    fn apply(
        &mut self,
        set: RawFd,
        pairs: &Pairs,
        batch: Range<usize>,
        change: Change,
        events: u32,
    ) -> Result<()>;

    /// System calls so far.
    fn calls(&self) -> u64;
}

/// The set, and the way to tell it of changes.
pub(super) struct EpollSet<T> {
    set: OwnedFd,
    events: Vec<epoll::Raw>,
    applied: T,
    looks: u64,
}

impl<T: Tell> EpollSet<T> {
    /// Creates a set for `total` pairs.
    pub(super) fn new(total: usize, applied: T) -> Result<EpollSet<T>> {
        let set = epoll::create().map_err(|e| Error::system("making an epoll set", e))?;
        let events = vec![epoll::Raw { events: 0, u64: 0 }; total];
        Ok(EpollSet { set, events, applied, looks: 0 })
    }
}

impl<T: Tell> Registry for EpollSet<T> {
    fn register(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()> {
        self.applied.apply(self.set.as_raw_fd(), pairs, batch, Change::Add, FIRST)
    }

    fn modify(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()> {
        self.applied.apply(self.set.as_raw_fd(), pairs, batch, Change::Modify, MODIFIED)
    }

    fn deregister(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()> {
        self.applied.apply(self.set.as_raw_fd(), pairs, batch, Change::Delete, 0)
    }

    fn look(&mut self, found: &mut Vec<usize>) -> Result<()> {
        self.looks += 1;
        let count = epoll::look(self.set.as_raw_fd(), &mut self.events)
            .map_err(|e| Error::system("waiting in epoll", e))?;
        found.extend(self.events[..count].iter().map(|event| event.u64 as usize));
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.looks + self.applied.calls()
    }
}
