//! Idle descriptors watched by signals.
//!
//! Each cold set has a real-time signal of its own. A signal is sent to the thread that waits,
//! names a number, and comes once for each arrival. What signals cannot do stays in the epoll set:
//!
//! - Only readable pipes and sockets are watched. The kernel sends no signal for a Unix-domain
//!   stream that becomes writable.
//! - Signals are asked for of an open file, not of a number. A second number of the same file, or a
//!   file that a parent or another loop has asked for, is left alone.
//!
//! A shutdown of the watched end itself sends no signal (`shutdown(2)` wakes up only those that
//! wait).
//!
//! When the queue is full (`RLIMIT_SIGPENDING`), the kernel sends a plain SIGIO to the thread. It
//! does not say which cold set of the thread has lost a signal, so each of them doubts its own. The
//! queue is emptied before the descriptors are polled: an event that the poll does not find then
//! comes after the queue had room again.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::thread::{self, ThreadId};

use superpoll::{Interest, Key, Mode};

use super::{Begun, Watcher};
use crate::sys::signal::{self, Batch, OwnSignal, Signal};

/// The number of signals that are fetched with one call.
const BATCH: usize = 256;

thread_local! {
    /// How often SIGIO was fetched in this thread, by whatever cold set.
    static OVERFLOWS: Cell<u64> = const { Cell::new(0) };
}

pub(super) struct Signals {
    signal: OwnSignal,
    descriptor: OwnedFd,
    batch: Batch,
    /// By number.
    keys: Vec<Option<Key>>,
    /// The thread that gets the signals.
    thread: ThreadId,
    /// The overflows of that thread that this set has made up for.
    overflows: u64,
}

impl Signals {
    pub(super) fn new() -> io::Result<Signals> {
        let signal = OwnSignal::take()?;
        OwnSignal::block_here()?;
        let descriptor = signal.descriptor()?;
        let (thread, overflows) = (thread::current().id(), OVERFLOWS.get());
        let batch = Batch::new(BATCH);
        Ok(Signals { signal, descriptor, batch, keys: Vec::new(), thread, overflows })
    }

    fn fds(&self) -> impl Iterator<Item = RawFd> {
        let numbers = (0..).zip(&self.keys);
        numbers.filter_map(|(fd, key)| key.is_some().then_some(fd))
    }

    fn has_overflowed(&mut self) -> bool {
        std::mem::replace(&mut self.overflows, OVERFLOWS.get()) != OVERFLOWS.get()
    }
}

impl Watcher for Signals {
    const LINK: Mode = Mode::Level;
    const SEES_STATES: bool = false;
    const HOLDS_FILES: bool = false;
    const IS_LATE: bool = false;

    fn link(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn add(&mut self, key: Key, fd: RawFd, interest: Interest) -> io::Result<Option<RawFd>> {
        let may = Interest::READABLE | Interest::READ_CLOSED;
        let suits = interest.contains(Interest::READABLE) && may.contains(interest);
        if !suits || signal::is_asked(fd)? {
            return Ok(None);
        }
        self.signal.ask(fd)?;
        let place = fd as usize;
        if self.keys.len() <= place {
            self.keys.resize(place + 1, None);
        }
        self.keys[place] = Some(key);
        Ok(Some(fd))
    }

    fn remove(&mut self, key: Key, fd: RawFd) {
        let own = self.keys.get_mut(fd as usize).filter(|own| **own == Some(key));
        if let Some(own) = own {
            *own = None;
            self.signal.ask_no_more(fd);
        }
    }

    fn begin(&mut self, begun: &mut Begun) -> io::Result<()> {
        let here = thread::current().id();
        if here != self.thread {
            // Signals that the other thread has not fetched stay there, held back.
            OwnSignal::block_here()?;
            for fd in self.fds() {
                // Only a descriptor that was closed while it was registered is refused.
                let _ = self.signal.ask(fd);
            }
            (self.thread, self.overflows) = (here, OVERFLOWS.get());
            begun.lost = true;
        }
        begun.lost |= self.has_overflowed();
        Ok(())
    }

    fn collect(&mut self, hints: &mut Vec<Key>) -> io::Result<bool> {
        loop {
            match self.batch.wait(&self.descriptor) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                outcome => outcome?,
            }
            for signal in self.batch.signals() {
                match signal {
                    Signal::Ready(fd) => {
                        let place = usize::try_from(fd).ok();
                        hints.extend(place.and_then(|place| *self.keys.get(place)?));
                    }
                    Signal::Overflow => OVERFLOWS.set(OVERFLOWS.get() + 1),
                }
            }
            if !self.batch.is_full() {
                break;
            }
        }
        Ok(self.has_overflowed())
    }

    fn abandon(mut self) {
        self.keys.clear();
    }

    fn memory(&self) -> usize {
        self.keys.capacity() * size_of::<Option<Key>>() + self.batch.memory()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for fd in self.fds() {
            self.signal.ask_no_more(fd);
        }
        // The next set with this signal gets none of these; in another thread than the set's some
        // stay, which are hints at worst.
        let _ = self.collect(&mut Vec::new());
    }
}
