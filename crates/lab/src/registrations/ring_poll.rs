//! Multishot polls: the ring itself watches. Arming a batch is one call. Cancelling it is one call
//! as well: by requests that cancel anything (`IORING_OP_ASYNC_CANCEL`), or by requests that remove
//! polls (`IORING_OP_POLL_REMOVE`), which are refused while a poll is about to report. A poll is
//! changed by cancelling it and arming it again.

use std::ops::Range;
use std::os::fd::RawFd;

use crate::channel::Pairs;
use crate::error::{Doing, Error, Result};
use crate::registrations::registry::{Registry, interest};
use crate::sys::epoll::Change;
use crate::sys::uring::changes::Changes;

struct RingPoll {
    changes: Changes,
    removes: bool,
    /// How often each pair's poll was armed: a poll that is armed while the previous one is being
    /// cancelled has another number.
    armings: Vec<u32>,
}

pub(super) fn start(total: usize, removes: bool) -> Result<Box<dyn Registry>> {
    let changes = Changes::new().doing("setting up an io_uring")?;
    Ok(Box::new(RingPoll { changes, removes, armings: vec![0; total] }))
}

impl RingPoll {
    fn number(&self, pair: usize) -> u64 {
        u64::from(self.armings[pair] & u32::MAX >> 1) << 32 | pair as u64
    }

    fn change_one(&mut self, pair: usize, fd: RawFd, change: Change) -> std::io::Result<()> {
        if change != Change::Add {
            let number = self.number(pair);
            if self.removes { self.changes.remove(number)? } else { self.changes.cancel(number)? }
        }
        if change != Change::Delete {
            self.armings[pair] = self.armings[pair].wrapping_add(1);
            self.changes.arm(self.number(pair), fd, interest(change))?;
        }
        Ok(())
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::system("changing the polls of an io_uring", source)
}

impl Registry for RingPoll {
    fn change(&mut self, pairs: &Pairs, mut batch: Range<usize>, change: Change) -> Result<()> {
        batch
            .try_for_each(|pair| self.change_one(pair, pairs.readers()[pair], change))
            .and_then(|()| self.changes.carry_out())
            .map_err(failed)
    }

    fn look(&mut self, found: &mut Vec<usize>) -> Result<()> {
        found.extend(self.changes.look().map_err(failed)?.map(|number| number as u32 as usize));
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.changes.calls()
    }
}
