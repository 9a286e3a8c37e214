//! `IORING_OP_EPOLL_CTL`: changes of an epoll set are queued in a ring and made in one call for
//! each batch.
//!
//! Deletions are queued too, so that their price is known. A poller should not queue them: the
//! close of a descriptor overtakes a deletion that waits in a queue.

use std::ops::Range;
use std::os::fd::RawFd;

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::sys::epoll::Change;
use crate::sys::uring::changes::Changes;

use super::epoll_set::{EpollSet, Tell};
use crate::registrations::registry::Registry;

struct ByRing {
    changes: Changes,
}

pub(super) fn start(total: usize) -> Result<Box<dyn Registry>> {
    let changes = Changes::new().map_err(|e| Error::system("setting up an io_uring", e))?;
    Ok(Box::new(EpollSet::new(total, ByRing { changes })?))
}

impl Tell for ByRing {
    fn apply(
        &mut self,
        set: RawFd,
        pairs: &Pairs,
        mut batch: Range<usize>,
        change: Change,
        events: u32,
    ) -> Result<()> {
        batch
            .try_for_each(|pair| {
                self.changes.of_set(set, change, pairs.readers()[pair], events, pair as u64)
            })
            .and_then(|()| self.changes.carry_out())
            .map_err(|e| Error::system("changing an epoll set through an io_uring", e))
    }

    fn calls(&self) -> u64 {
        self.changes.calls()
    }
}
