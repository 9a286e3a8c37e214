//! Multishot polls: the ring itself watches, and arming or cancelling a batch is one call. There is no change
//! of a poll that keeps its place in the wait queue for less, so it is cancelled and armed again.

use std::ops::Range;

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::sys::uring::changes::Changes;

use super::raw_epoll::{FIRST, MODIFIED};
use super::subject::Registry;

struct RingPoll {
    changes: Changes,
}

pub(super) fn start(_total: usize) -> Result<Box<dyn Registry>> {
    let changes = Changes::new().map_err(|e| Error::system("setting up an io_uring", e))?;
    Ok(Box::new(RingPoll { changes }))
}

fn failed(source: std::io::Error) -> Error {
    Error::system("changing the polls of an io_uring", source)
}

impl Registry for RingPoll {
    fn register(&mut self, pairs: &Pairs, mut batch: Range<usize>) -> Result<()> {
        batch
            .try_for_each(|pair| self.changes.arm(pair as u64, pairs.readers()[pair], FIRST))
            .and_then(|()| self.changes.carry_out())
            .map_err(failed)
    }

    fn modify(&mut self, pairs: &Pairs, mut batch: Range<usize>) -> Result<()> {
        batch
            .try_for_each(|pair| {
                self.changes.cancel(pair as u64)?;
                self.changes.arm(pair as u64, pairs.readers()[pair], MODIFIED)
            })
            .and_then(|()| self.changes.carry_out())
            .map_err(failed)
    }

    fn deregister(&mut self, _pairs: &Pairs, mut batch: Range<usize>) -> Result<()> {
        batch
            .try_for_each(|pair| self.changes.cancel(pair as u64))
            .and_then(|()| self.changes.carry_out())
            .map_err(failed)
    }

    fn look(&mut self, found: &mut Vec<usize>) -> Result<()> {
        found.extend(self.changes.look().map_err(failed)?.map(|number| number as usize));
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.changes.calls()
    }
}
