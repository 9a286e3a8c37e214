//! `epoll(7)` as its manual page shows it: the loop that our epoll back-end is compared with.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::channel::Pairs;
use crate::error::{Doing, Error, Result};
use crate::subject::work::{ReadLog, Subject, Turn};
use crate::sys::epoll;
use crate::sys::ready::Ready;

/// An epoll set over readers, and the loop that waits for it.
pub(crate) struct RawEpoll {
    set: OwnedFd,
    readers: Vec<RawFd>,
    events: Vec<epoll::Raw>,
    waits: u64,
}

/// Readability, level-triggered.
pub(crate) const LEVEL: i32 = libc::EPOLLIN;

/// Readability, edge-triggered.
pub(super) const EDGE: i32 = libc::EPOLLIN | libc::EPOLLET;

impl RawEpoll {
    /// Creates a set of the readers of the pairs for which `has` returns true.
    pub(crate) fn over(
        readers: &[RawFd],
        events: i32,
        has: impl Fn(usize) -> bool,
    ) -> Result<RawEpoll> {
        let set = epoll::create().doing("creating an epoll set")?;
        let mut count = 0;
        for (pair, &fd) in readers.iter().enumerate().filter(|(pair, _)| has(*pair)) {
            epoll::add(&set, fd, events as u32, pair as u64)
                .doing(format_args!("watching descriptor {fd} with epoll"))?;
            count += 1;
        }
        let events = vec![epoll::Raw { events: 0, u64: 0 }; count.max(1)];
        Ok(RawEpoll { set, readers: readers.to_vec(), events, waits: 0 })
    }
}

pub(super) fn build(pairs: &Pairs, events: i32) -> Result<Box<dyn Subject + '_>> {
    Ok(Box::new(RawEpoll::over(pairs.readers(), events, |_| true)?))
}

impl Turn for RawEpoll {
    #[inline(always)]
    fn turn(&mut self, receiver: &mut impl Ready) -> Result<bool> {
        self.waits += 1;
        let count = epoll::wait(self.set.as_raw_fd(), &mut self.events);
        let Ok(count) = usize::try_from(count) else {
            return Err(Error::last("epoll_wait"));
        };
        for event in &self.events[..count] {
            let pair = event.u64 as usize;
            if !receiver.ready(pair, self.readers[pair]) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Subject for RawEpoll {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        Turn::turn(self, log).map(drop)
    }

    fn calls(&self) -> Option<u64> {
        Some(self.waits)
    }
}
