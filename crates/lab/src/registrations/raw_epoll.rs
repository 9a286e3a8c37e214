//! `epoll_ctl(2)`: one call for each change of each descriptor.

use std::ops::Range;
use std::os::fd::RawFd;

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::sys::epoll::{self, Change};

use super::epoll_set::{EpollSet, Tell};
use crate::registrations::registry::Registry;

struct ByCalls {
    calls: u64,
}

pub(super) fn start(total: usize) -> Result<Box<dyn Registry>> {
    Ok(Box::new(EpollSet::new(total, ByCalls { calls: 0 })?))
}

impl Tell for ByCalls {
    #[inline(always)]
    fn apply(
        &mut self,
        set: RawFd,
        pairs: &Pairs,
        batch: Range<usize>,
        change: Change,
        events: u32,
    ) -> Result<()> {
        self.calls += batch.len() as u64;
        for pair in batch {
            epoll::change(set, change, pairs.readers()[pair], events, pair as u64)
                .map_err(|e| Error::system("changing an epoll set", e))?;
        }
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.calls
    }
}
