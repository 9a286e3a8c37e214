//! `epoll_ctl(2)`: one call for each change of each descriptor.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::sys::epoll::{self, Change};

use super::subject::Registry;

/// What is registered first: priority data, of which there never is any.
pub(super) const FIRST: u32 = libc::EPOLLPRI as u32;

/// What that is changed to.
pub(super) const MODIFIED: u32 = libc::EPOLLIN as u32;

struct RawEpoll {
    set: Set,
    calls: u64,
}

/// An epoll set that can be asked what is ready.
pub(super) struct Set {
    set: OwnedFd,
    events: Vec<epoll::Raw>,
}

impl Set {
    pub(super) fn new(total: usize) -> Result<Set> {
        let set = epoll::create().map_err(|e| Error::system("making an epoll set", e))?;
        Ok(Set { set, events: vec![epoll::Raw { events: 0, u64: 0 }; total] })
    }

    pub(super) fn number(&self) -> i32 {
        self.set.as_raw_fd()
    }

    pub(super) fn look(&mut self, found: &mut Vec<usize>) -> Result<()> {
        let count = epoll::look(self.set.as_raw_fd(), &mut self.events)
            .map_err(|e| Error::system("waiting in epoll", e))?;
        found.extend(self.events[..count].iter().map(|event| event.u64 as usize));
        Ok(())
    }
}

pub(super) fn start(total: usize) -> Result<Box<dyn Registry>> {
    Ok(Box::new(RawEpoll { set: Set::new(total)?, calls: 0 }))
}

impl RawEpoll {
    #[inline(always)]
    fn all(
        &mut self,
        pairs: &Pairs,
        batch: Range<usize>,
        change: Change,
        events: u32,
    ) -> Result<()> {
        let set = self.set.number();
        self.calls += batch.len() as u64;
        for pair in batch {
            epoll::change(set, change, pairs.readers()[pair], events, pair as u64)
                .map_err(|e| Error::system("changing an epoll set", e))?;
        }
        Ok(())
    }
}

impl Registry for RawEpoll {
    fn register(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()> {
        self.all(pairs, batch, Change::Add, FIRST)
    }

    fn modify(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()> {
        self.all(pairs, batch, Change::Modify, MODIFIED)
    }

    fn deregister(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()> {
        self.all(pairs, batch, Change::Delete, 0)
    }

    fn look(&mut self, found: &mut Vec<usize>) -> Result<()> {
        self.calls += 1;
        self.set.look(found)
    }

    fn calls(&self) -> u64 {
        self.calls
    }
}
