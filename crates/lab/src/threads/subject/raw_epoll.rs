//! `epoll(7)`, level-triggered, in one thread, as its manual page shows it.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::error::{Error, Result};
use crate::sys::{descriptor, epoll};
use crate::threads::counters::{Outcome, SharedCounters};
use crate::threads::subject::input::{Input, Reading};

/// An epoll set over some of the readers, and the loop that reads the ones that it reports.
pub(super) struct Loop {
    set: OwnedFd,
    events: Vec<epoll::Raw>,
    readers: Vec<RawFd>,
    counters: SharedCounters,
}

pub(super) fn set_up<'a>(input: Input<'a>) -> Result<Box<dyn Reading + 'a>> {
    Ok(Box::new(Loop::over(input, |_| true)?))
}

impl Loop {
    /// Creates a set of the pairs for which `has` returns true.
    pub(super) fn over(input: Input<'_>, has: impl Fn(usize) -> bool) -> Result<Loop> {
        let set = epoll::create().map_err(|e| Error::system("creating an epoll set", e))?;
        let mut count = 0;
        for (pair, &fd) in input.readers.iter().enumerate().filter(|(pair, _)| has(*pair)) {
            descriptor::set_blocking(fd, false)
                .and_then(|()| epoll::add(&set, fd, libc::EPOLLIN as u32, pair as u64))
                .map_err(|e| Error::system(format!("watching descriptor {fd} with epoll"), e))?;
            count += 1;
        }
        let events = vec![epoll::Raw { events: 0, u64: 0 }; count.max(1)];
        Ok(Loop { set, events, readers: input.readers.to_vec(), counters: input.counters.clone() })
    }

    /// Reads the reported descriptors until a writer is gone.
    pub(super) fn turn(&mut self) -> Result<()> {
        loop {
            let count = epoll::wait(self.set.as_raw_fd(), &mut self.events);
            let Ok(count) = usize::try_from(count) else { return Err(Error::last("epoll_wait")) };
            for event in &self.events[..count] {
                let pair = event.u64 as usize;
                if self.counters.read(pair, self.readers[pair]) == Outcome::Ended {
                    return Ok(());
                }
            }
        }
    }
}

impl Reading for Loop {
    fn read_on(mut self: Box<Self>) -> Result<()> {
        self.turn()
    }
}
