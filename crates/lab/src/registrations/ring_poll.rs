//! Multishot polls: the ring itself watches, and arming a batch is one call, as is taking it back: by requests
//! that cancel anything (`IORING_OP_ASYNC_CANCEL`), or by those that remove polls (`IORING_OP_POLL_REMOVE`), which
//! are refused while a poll is about to report. A poll is changed by taking it back and arming it again.

use std::ops::Range;

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::sys::uring::changes::Changes;

use super::raw_epoll::{FIRST, MODIFIED};
use super::subject::Registry;

struct RingPoll {
    changes: Changes,
    removes: bool,
}

pub(super) fn start(removes: bool) -> Result<Box<dyn Registry>> {
    let changes = Changes::new().map_err(|e| Error::system("setting up an io_uring", e))?;
    Ok(Box::new(RingPoll { changes, removes }))
}

impl RingPoll {
    fn take_back(&mut self, pair: usize) -> std::io::Result<()> {
        if self.removes {
            self.changes.remove(pair as u64)
        } else {
            self.changes.cancel(pair as u64)
        }
    }
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
                self.take_back(pair)?;
                self.changes.arm(pair as u64, pairs.readers()[pair], MODIFIED)
            })
            .and_then(|()| self.changes.carry_out())
            .map_err(failed)
    }

    fn deregister(&mut self, _pairs: &Pairs, mut batch: Range<usize>) -> Result<()> {
        batch
            .try_for_each(|pair| self.take_back(pair))
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
