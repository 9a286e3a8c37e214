//! An epoll set as a registry. It learns of changes by `epoll_ctl(2)`, one call for each change of
//! each descriptor, or through a ring (`IORING_OP_EPOLL_CTL`), in which changes are queued and made
//! in one call for each batch.
//!
//! Deletions are queued too, so that their price is known. A poller should not queue them: the
//! close of a descriptor overtakes a deletion that waits in a queue.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::channel::Pairs;
use crate::error::{Doing, Result};
use crate::registrations::registry::{Registry, interest};
use crate::sys::epoll::{self, Change};
use crate::sys::uring::changes::Changes;

struct EpollSet {
    set: OwnedFd,
    events: Vec<epoll::Raw>,
    /// Where changes are queued; without it, each is a call.
    ring: Option<Changes>,
    /// System calls apart from those of the ring.
    calls: u64,
}

pub(super) fn start(total: usize, by_ring: bool) -> Result<Box<dyn Registry>> {
    let ring = by_ring.then(Changes::new).transpose();
    let ring = ring.doing("setting up an io_uring")?;
    let set = epoll::create().doing("making an epoll set")?;
    let events = vec![epoll::Raw { events: 0, u64: 0 }; total];
    Ok(Box::new(EpollSet { set, events, ring, calls: 0 }))
}

impl Registry for EpollSet {
    fn change(&mut self, pairs: &Pairs, mut batch: Range<usize>, change: Change) -> Result<()> {
        let (set, readers, events) = (self.set.as_raw_fd(), pairs.readers(), interest(change));
        if let Some(ring) = &mut self.ring {
            return batch
                .try_for_each(|pair| ring.of_set(set, change, readers[pair], events, pair as u64))
                .and_then(|()| ring.carry_out())
                .doing("changing an epoll set through an io_uring");
        }
        self.calls += batch.len() as u64;
        batch
            .try_for_each(|pair| epoll::change(set, change, readers[pair], events, pair as u64))
            .doing("changing an epoll set")
    }

    fn look(&mut self, found: &mut Vec<usize>) -> Result<()> {
        self.calls += 1;
        let count =
            epoll::look(self.set.as_raw_fd(), &mut self.events).doing("waiting in epoll")?;
        found.extend(self.events[..count].iter().map(|event| event.u64 as usize));
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.calls + self.ring.as_ref().map_or(0, Changes::calls)
    }
}
