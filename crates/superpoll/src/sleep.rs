//! Waking a poller from another thread, with a system call only when it sleeps.
//!
//! The state is three bits. A thread that wakes sets `WOKEN` (a user's wake) or `KICKED` (a command
//! of the registrar or of a dropped owner); the poller sets `ASLEEP` right before a call that may
//! block. Each side's step is one atomic read-modify-write, so there are only two orders: if the
//! wake comes first the poller sees it and does not block; if the sleep comes first the waker sees
//! it and writes to the eventfd, once, however many wake. After the call the poller takes the bits
//! back, which also coalesces wakes: any number of them since the last wait count as one.
//!
//! The write happens after the bit is set, so it may arrive late, in a later wait. It is then
//! drained and ignored: only the bit counts. The protocol is model-checked with loom (`models/`).

mod state;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use self::state::{KICKED, State, WOKEN};
use crate::error::{Error, Result};
use crate::stats::Calls;
use crate::sys::eventfd::EventFd;

/// The sleeping side and the waking side of a poller.
#[derive(Debug)]
pub(crate) struct Sleep {
    state: State,
    eventfd: OnceLock<EventFd>,
    writes: AtomicU64,
}

/// The signals that had come when a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Signals {
    pub woken: bool,
    pub kicked: bool,
}

impl Sleep {
    pub(crate) fn new() -> Sleep {
        Sleep { state: State::new(), eventfd: OnceLock::new(), writes: AtomicU64::new(0) }
    }

    /// Creates the descriptor, unless there is one.
    pub(crate) fn ensure(&self, calls: &mut Calls) -> Result<bool> {
        if self.eventfd.get().is_some() {
            return Ok(false);
        }
        let eventfd = EventFd::new(calls)
            .map_err(|source| Error::system("creating the waker's eventfd", None, source))?;
        Ok(self.eventfd.set(eventfd).is_ok())
    }

    /// The descriptor, if there is one.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.eventfd.get().map(AsFd::as_fd)
    }

    pub(crate) fn begin(&self) -> bool {
        self.state.begin()
    }

    pub(crate) fn is_signalled(&self) -> bool {
        self.state.is_signalled()
    }

    pub(crate) fn take(&self) -> Signals {
        let bits = self.state.take();
        Signals { woken: bits & WOKEN != 0, kicked: bits & KICKED != 0 }
    }

    pub(crate) fn drain(&self, calls: &mut Calls) {
        if let Some(eventfd) = self.eventfd.get() {
            eventfd.drain(calls);
        }
    }

    /// System calls that wakes have cost so far.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// In a child process: a descriptor of its own, and no sleep or wake of the parent's.
    pub(crate) fn after_fork(&self, calls: &mut Calls) -> Result<()> {
        self.state.take();
        match self.eventfd.get() {
            Some(eventfd) => eventfd
                .renew(calls)
                .map_err(|source| Error::system("renewing the waker's eventfd", None, source)),
            None => Ok(()),
        }
    }

    /// Leaves the state asleep although no wait blocks here, because an outer loop does; writes to
    /// the descriptor if there is something to wake up for already.
    pub(crate) fn stay_asleep(&self, known: bool) {
        let begun = self.state.begin();
        if known || (!begun && self.state.is_signalled()) {
            // It cannot fail on an open eventfd; should it, the outer loop's own timeout remains.
            let _ = self.write();
        }
    }

    pub(crate) fn wake(&self) -> Result<()> {
        self.signal(WOKEN)
    }

    pub(crate) fn kick(&self) -> Result<()> {
        self.signal(KICKED)
    }

    fn signal(&self, bit: u8) -> Result<()> {
        if !self.state.signal(bit) {
            return Ok(());
        }
        self.write()
    }

    fn write(&self) -> Result<()> {
        match self.eventfd.get() {
            Some(eventfd) => {
                self.writes.fetch_add(1, Ordering::Relaxed);
                eventfd
                    .write()
                    .map_err(|source| Error::system("writing to the waker's eventfd", None, source))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::state::ASLEEP;
    use super::*;
    use crate::sys::poll::{self, Slot};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    #[test]
    fn a_wake_is_written_only_if_it_is_the_first_of_a_sleep() {
        for (first, second) in [(WOKEN, KICKED), (KICKED, WOKEN), (WOKEN, WOKEN)] {
            let state = State::new();
            assert!(!state.signal(first), "no thread sleeps");
            assert!(!state.begin(), "it has come already");
            assert_eq!(state.take(), first);
            assert!(state.begin());
            assert!(state.signal(first));
            assert!(!state.signal(second), "the first has written");
            assert_eq!(state.take(), ASLEEP | first | second);
            assert_eq!(state.take(), 0);
        }
    }

    #[test]
    fn a_sleep_is_no_signal() {
        let state = State::new();
        assert!(!state.is_signalled());
        assert!(state.begin() && !state.begin());
        assert!(!state.is_signalled());
        for bit in [WOKEN, KICKED] {
            state.signal(bit);
            assert!(state.is_signalled());
            state.take();
            assert!(!state.is_signalled());
        }
    }

    fn sleep() -> Sleep {
        let sleep = Sleep::new();
        assert!(sleep.ensure(&mut Calls::default()).unwrap());
        sleep
    }

    fn is_readable(sleep: &Sleep) -> bool {
        let fd = sleep.fd().unwrap().as_raw_fd();
        let mut slots = [Slot { fd, events: libc::POLLIN, revents: 0 }];
        poll::wait(&mut Calls::default(), &mut slots, Some(Duration::ZERO)).unwrap() == 1
    }

    #[test]
    fn there_is_one_descriptor_and_only_if_it_is_needed() {
        let (sleep, mut calls) = (Sleep::new(), Calls::default());
        assert!(sleep.fd().is_none());
        sleep.wake().unwrap();
        sleep.drain(&mut calls);
        sleep.after_fork(&mut calls).unwrap();
        assert_eq!((calls.total(), sleep.writes()), (0, 0));
        assert!(sleep.ensure(&mut calls).unwrap());
        let fd = sleep.fd().unwrap().as_raw_fd();
        assert!(!sleep.ensure(&mut calls).unwrap());
        assert_eq!((calls.eventfd, sleep.fd().unwrap().as_raw_fd()), (1, fd));
    }

    #[test]
    fn wakes_and_kicks_are_distinguished() {
        let sleep = sleep();
        assert_eq!(sleep.take(), Signals::default());
        assert!(!sleep.is_signalled());
        sleep.wake().unwrap();
        assert!(sleep.is_signalled());
        assert_eq!(sleep.take(), Signals { woken: true, kicked: false });
        sleep.kick().unwrap();
        assert!(sleep.is_signalled());
        assert_eq!(sleep.take(), Signals { woken: false, kicked: true });
        assert!(sleep.begin());
        assert_eq!(sleep.take(), Signals::default());
        sleep.wake().unwrap();
        sleep.kick().unwrap();
        assert_eq!(sleep.take(), Signals { woken: true, kicked: true });
        assert_eq!((sleep.writes(), is_readable(&sleep)), (0, false));
    }

    #[test]
    fn a_sleep_is_ended_by_one_write_and_drained_by_one_read() {
        let (sleep, mut calls) = (sleep(), Calls::default());
        for writes in [1, 2] {
            assert!(sleep.begin());
            sleep.kick().unwrap();
            sleep.wake().unwrap();
            assert_eq!((sleep.writes(), is_readable(&sleep)), (writes, true));
            sleep.take();
            sleep.drain(&mut calls);
            assert_eq!((calls.waker_read, is_readable(&sleep)), (writes, false));
        }
    }

    #[test]
    fn an_outer_loop_is_woken_for_signals_from_before_its_sleep() {
        // Known to be ready, woken before: one write if either holds.
        for (known, woken, writes) in [(false, false, 0), (true, false, 1), (false, true, 1)] {
            let sleep = sleep();
            if woken {
                sleep.wake().unwrap();
            }
            sleep.stay_asleep(known);
            assert_eq!(sleep.writes(), writes, "{known} {woken}");
            assert_eq!(is_readable(&sleep), writes == 1);
        }
        // At rest already; a wake after that writes by itself.
        let sleep = sleep();
        sleep.stay_asleep(false);
        sleep.stay_asleep(false);
        assert_eq!(sleep.writes(), 0);
        sleep.wake().unwrap();
        assert_eq!((sleep.writes(), is_readable(&sleep)), (1, true));
    }

    #[test]
    fn a_child_has_a_descriptor_of_its_own_and_no_signals_of_its_parent() {
        let (sleep, mut calls) = (sleep(), Calls::default());
        let fd = sleep.fd().unwrap();
        let (number, parents) = (fd.as_raw_fd(), fd.try_clone_to_owned().unwrap());
        assert!(sleep.begin());
        sleep.wake().unwrap();
        sleep.after_fork(&mut calls).unwrap();
        assert_eq!((calls.eventfd, sleep.fd().unwrap().as_raw_fd()), (1, number));
        assert_eq!((sleep.take(), is_readable(&sleep)), (Signals::default(), false));
        let mut slots = [Slot { fd: parents.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        let ready = poll::wait(&mut calls, &mut slots, Some(Duration::ZERO));
        assert_eq!(ready.unwrap(), 1, "the parent's is as it was");
        assert!(sleep.begin());
        sleep.wake().unwrap();
        assert!(is_readable(&sleep));
    }
}
