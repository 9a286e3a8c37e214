//! The descriptor that stands for the ring in another event loop.
//!
//! A ring whose completions are worked off by its own thread is not readable before that, but the
//! kernel can be asked to count them. If the ring's counter counted the writes of another counter,
//! it would do so with a delay. So the waker's counter is watched next to it. Events that come
//! without a completion, and events that a wait leaves to the next one, are announced by hand.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::Uring;
use crate::backend::{Context, Lifecycle};
use crate::error::{Error, Result};
use crate::stats::Calls;
use crate::sys::epoll;
use crate::sys::eventfd::{EventFd, replace};
use crate::sys::uring::Ring;

/// The epoll set that the other loop watches, and the counter in it.
#[derive(Debug)]
pub(super) struct Outer {
    set: OwnedFd,
    counter: EventFd,
}

impl Outer {
    fn new(calls: &mut Calls, ring: &mut Ring) -> io::Result<Outer> {
        let outer = Outer { set: epoll::create(calls)?, counter: EventFd::new(calls)? };
        outer.watch(calls, outer.counter.as_fd().as_raw_fd())?;
        outer.listen_to(calls, ring)?;
        // For completions that are there already.
        outer.announce()?;
        Ok(outer)
    }

    /// A set that a child process does not share, under the same number, by which the other loop
    /// knows it.
    pub(super) fn renewed(self, calls: &mut Calls, ring: &mut Ring) -> io::Result<Outer> {
        let new = Outer::new(calls, ring)?;
        replace(self.set.as_fd(), new.set)?;
        Ok(Outer { set: self.set, counter: new.counter })
    }

    pub(super) fn watch(&self, calls: &mut Calls, fd: RawFd) -> io::Result<()> {
        let bits = libc::EPOLLIN as u32;
        epoll::control(calls, self.set.as_fd(), epoll::Operation::Add, fd, bits, 0)
    }

    /// Becomes readable with each completion of a ring.
    fn listen_to(&self, calls: &mut Calls, ring: &mut Ring) -> io::Result<()> {
        ring.announce_to(calls, self.counter.as_fd())
    }

    /// Listens to another ring, and no longer to the earlier one: the kernel ends the operations of
    /// that ring some time after it was closed, and each end counts.
    pub(super) fn listen_anew(&mut self, calls: &mut Calls, ring: &mut Ring) -> io::Result<()> {
        let counter = EventFd::new(calls)?;
        ring.announce_to(calls, counter.as_fd())?;
        self.watch(calls, counter.as_fd().as_raw_fd())?;
        // The earlier counter, which leaves the set as it is closed, may have announced completions
        // that were not fetched.
        counter.write()?;
        self.counter = counter;
        Ok(())
    }

    /// Makes the descriptor readable.
    pub(super) fn announce(&self) -> io::Result<()> {
        self.counter.write()
    }

    /// Makes the descriptor unreadable until something happens.
    pub(super) fn quiet(&self, calls: &mut Calls) {
        self.counter.drain(calls);
    }
}

impl Uring {
    /// As [`Lifecycle::nest`](crate::backend::Lifecycle::nest).
    pub(super) fn nest_ring(&mut self, cx: &mut Context<'_>) -> Result<BorrowedFd<'_>> {
        let failed = |source| Error::system("nesting an io_uring", None, source);
        if self.outer.is_none() {
            let calls = &mut cx.stats.calls;
            let outer = Outer::new(calls, &mut self.ring).map_err(failed)?;
            if let Some(waker) = self.waker {
                outer.watch(calls, waker).map_err(failed)?;
            }
            self.outer = Some(outer);
        }
        self.flush(cx).map_err(failed)?;
        Ok(self.outer.as_ref().map_or(self.ring.as_fd(), |outer| outer.set.as_fd()))
    }
}
