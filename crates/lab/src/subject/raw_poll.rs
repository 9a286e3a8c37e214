//! `poll(2)` as its manual page shows it: one array, a blocking call, a walk that stops after the
//! last ready entry.

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{ReadLog, Subject, Turn};
use crate::sys::poll;
use crate::sys::ready::Ready;

/// The loop.
pub(crate) struct RawPoll {
    set: Vec<libc::pollfd>,
    waits: u64,
}

impl RawPoll {
    /// Creates it over all readers.
    pub(crate) fn over(pairs: &Pairs) -> RawPoll {
        let entry = |&fd: &i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        RawPoll { set: pairs.readers().iter().map(entry).collect(), waits: 0 }
    }
}

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    Ok(Box::new(RawPoll::over(pairs)))
}

impl Turn for RawPoll {
    #[inline(always)]
    fn turn(&mut self, receiver: &mut impl Ready) -> Result<bool> {
        self.waits += 1;
        let mut ready = poll::wait(&mut self.set);
        if ready < 0 {
            return Err(Error::last("poll"));
        }
        for (pair, entry) in self.set.iter().enumerate() {
            if entry.revents != 0 {
                if !receiver.ready(pair, entry.fd) {
                    return Ok(false);
                }
                ready -= 1;
                if ready == 0 {
                    break;
                }
            }
        }
        Ok(true)
    }
}

impl Subject for RawPoll {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        Turn::turn(self, log).map(drop)
    }

    fn calls(&self) -> Option<u64> {
        Some(self.waits)
    }
}
