//! `epoll(7)` as its manual page shows it: the loop that our epoll back-end is compared with.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{ReadLog, Subject};
use crate::sys::epoll;

struct RawEpoll<'a> {
    set: OwnedFd,
    readers: &'a [RawFd],
    events: Vec<epoll::Raw>,
    waits: u64,
}

pub(super) fn build_level(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    build(pairs, libc::EPOLLIN as u32)
}

pub(super) fn build_edge(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    build(pairs, (libc::EPOLLIN | libc::EPOLLET) as u32)
}

fn build(pairs: &Pairs, events: u32) -> Result<Box<dyn Subject + '_>> {
    let set = epoll::create().map_err(|e| Error::system("creating an epoll set", e))?;
    for (pair, &fd) in pairs.readers().iter().enumerate() {
        epoll::add(&set, fd, events, pair as u64)
            .map_err(|e| Error::system(format!("watching descriptor {fd} with epoll"), e))?;
    }
    let events = vec![epoll::Raw { events: 0, u64: 0 }; pairs.len()];
    Ok(Box::new(RawEpoll { set, readers: pairs.readers(), events, waits: 0 }))
}

impl Subject for RawEpoll<'_> {
    fn round(&mut self, active: &[u32], log: &mut ReadLog) -> Result<()> {
        while log.bytes() < active.len() {
            self.waits += 1;
            let count = epoll::wait(self.set.as_raw_fd(), &mut self.events);
            let Ok(count) = usize::try_from(count) else {
                return Err(Error::last("epoll_wait"));
            };
            for event in &self.events[..count] {
                let pair = event.u64 as usize;
                log.read(pair, self.readers[pair]);
            }
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.waits)
    }
}
