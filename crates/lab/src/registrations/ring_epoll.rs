//! `IORING_OP_EPOLL_CTL`: changes of an epoll set are queued in a ring and made in one call for each batch.
//!
//! Deletions too, so that their price is known. A poller had better not: a deletion that waits in a queue is
//! overtaken by the close of its descriptor.

use std::ops::Range;

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::sys::epoll::Change;
use crate::sys::uring::changes::Changes;

use super::raw_epoll::{FIRST, MODIFIED, Set};
use super::subject::Registry;

struct RingEpoll {
    set: Set,
    changes: Changes,
    looks: u64,
}

pub(super) fn start(total: usize) -> Result<Box<dyn Registry>> {
    let changes = Changes::new().map_err(|e| Error::system("setting up an io_uring", e))?;
    Ok(Box::new(RingEpoll { set: Set::new(total)?, changes, looks: 0 }))
}

impl RingEpoll {
    fn all(
        &mut self,
        pairs: &Pairs,
        mut batch: Range<usize>,
        change: Change,
        events: u32,
    ) -> Result<()> {
        let set = self.set.number();
        batch
            .try_for_each(|pair| {
                self.changes.of_set(set, change, pairs.readers()[pair], events, pair as u64)
            })
            .and_then(|()| self.changes.carry_out())
            .map_err(|e| Error::system("changing an epoll set through an io_uring", e))
    }
}

impl Registry for RingEpoll {
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
        self.looks += 1;
        self.set.look(found)
    }

    fn calls(&self) -> u64 {
        self.looks + self.changes.calls()
    }
}
