//! Changes to the watched descriptors, submitted in batches through a ring: of an epoll set
//! (`IORING_OP_EPOLL_CTL`), or of polls that the ring keeps itself.

use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::REQUESTS;
use crate::sys::epoll;

/// Completions that may wait to be fetched.
const COMPLETIONS: u32 = 4096;

/// `IORING_ENTER_GETEVENTS`: the call does the work that completions wait for.
const GET_EVENTS: u32 = 1;

/// Marks the answers to changes; the polls' own numbers do not have this bit.
const CHANGE: u64 = 1 << 63;

/// A ring for changes.
pub(crate) struct Changes {
    ring: IoUring,
    /// The events that unsubmitted entries refer to.
    events: Box<[epoll::Raw; REQUESTS as usize]>,
    calls: u64,
    /// Changes that are not submitted yet.
    untold: usize,
    /// Answers that must arrive before the submitted changes are done: one for each change of a
    /// set, and one for each cancelled poll.
    due: usize,
    /// Polls that have reported and were not fetched yet.
    found: Vec<u64>,
}

impl Changes {
    /// Creates an empty ring.
    pub(crate) fn new() -> io::Result<Changes> {
        Ok(Changes {
            ring: super::ring(REQUESTS, COMPLETIONS)?,
            events: Box::new([epoll::Raw { events: 0, u64: 0 }; REQUESTS as usize]),
            calls: 0,
            untold: 0,
            due: 0,
            found: Vec::new(),
        })
    }

    /// Makes a change of an epoll set with the next [`carry_out`](Changes::carry_out).
    pub(crate) fn of_set(
        &mut self,
        set: RawFd,
        change: epoll::Change,
        fd: RawFd,
        events: u32,
        data: u64,
    ) -> io::Result<()> {
        self.make_room()?;
        // None of them is used before all have been submitted.
        self.events[self.untold] = epoll::Raw { events, u64: data };
        let event = (&raw const self.events[self.untold]).cast::<types::epoll_event>();
        let operation = change.operation();
        let entry = opcode::EpollCtl::new(types::Fd(set), types::Fd(fd), operation, event).build();
        self.due += 1;
        // SAFETY: the event is in a box that lives longer than the ring, and the kernel copies it
        // when it takes the entry.
        unsafe { self.push(&entry.user_data(CHANGE)) }
    }

    /// Watches a descriptor for readability in the ring, from the next
    /// [`carry_out`](Changes::carry_out) on.
    pub(crate) fn arm(&mut self, number: u64, fd: RawFd, events: u32) -> io::Result<()> {
        self.make_room()?;
        let poll = opcode::PollAdd::new(types::Fd(fd), events).multi(true).build();
        // SAFETY: a poll refers to no memory of ours.
        unsafe { self.push(&poll.user_data(number)) }
    }

    /// Cancels a poll with the next [`carry_out`](Changes::carry_out), in the way of any request
    /// (`IORING_OP_ASYNC_CANCEL`).
    pub(crate) fn cancel(&mut self, number: u64) -> io::Result<()> {
        self.take_back(opcode::AsyncCancel::new(number).build(), number)?;
        self.due += 1;
        Ok(())
    }

    /// Cancels a poll with the next [`carry_out`](Changes::carry_out), in the way of polls only
    /// (`IORING_OP_POLL_REMOVE`).
    pub(crate) fn remove(&mut self, number: u64) -> io::Result<()> {
        self.take_back(opcode::PollRemove::new(number).build(), number)?;
        self.due += 1;
        Ok(())
    }

    fn take_back(&mut self, entry: squeue::Entry, number: u64) -> io::Result<()> {
        self.make_room()?;
        // A success needs no answer: the poll's own completion reports its end.
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(CHANGE | number);
        // SAFETY: neither request refers to memory of ours.
        unsafe { self.push(&entry) }
    }

    fn make_room(&mut self) -> io::Result<()> {
        if self.untold == self.events.len() { self.carry_out() } else { Ok(()) }
    }

    /// # Safety
    ///
    /// The memory that the entry refers to must stay valid until the kernel has taken the entry.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.ring.submission().push(entry) }
            .map_err(|_| io::Error::other("the ring does not take more changes"))?;
        self.untold += 1;
        Ok(())
    }

    /// Submits all changes and waits until they are made.
    pub(crate) fn carry_out(&mut self) -> io::Result<()> {
        while self.untold > 0 || self.due > 0 {
            self.enter(self.due as u32)?;
            self.fetch()?;
        }
        Ok(())
    }

    fn enter(&mut self, wanted: u32) -> io::Result<()> {
        self.calls += 1;
        let (submitter, told) = (self.ring.submitter(), self.untold as u32);
        // SAFETY: entries refer to memory that lives as long as this; there is no argument.
        match unsafe { submitter.enter::<libc::sigset_t>(told, wanted, GET_EVENTS, None) } {
            Ok(taken) => self.untold -= taken,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn fetch(&mut self) -> io::Result<()> {
        let mut busy = Vec::new();
        for completion in self.ring.completion() {
            let (data, result) = (completion.user_data(), completion.result());
            if data & CHANGE != 0 && result == -libc::EALREADY {
                busy.push(data & !CHANGE);
            } else if data & CHANGE != 0 {
                self.due = self.due.saturating_sub(1);
                if result < 0 {
                    return Err(io::Error::from_raw_os_error(-result));
                }
            } else if result == -libc::ECANCELED {
                self.due = self.due.saturating_sub(1);
            } else if result < 0 || !cqueue::more(completion.flags()) {
                // A poll that is over although it was not cancelled.
                return Err(io::Error::from_raw_os_error(if result < 0 {
                    -result
                } else {
                    libc::EIO
                }));
            } else {
                self.found.push(data);
            }
        }
        // A poll that is about to report is not removed, but can be cancelled.
        busy.into_iter()
            .try_for_each(|number| self.take_back(opcode::AsyncCancel::new(number).build(), number))
    }

    /// Returns the numbers of polls that have reported, without waiting for more.
    pub(crate) fn look(&mut self) -> io::Result<std::vec::Drain<'_, u64>> {
        self.enter(0)?;
        self.fetch()?;
        Ok(self.found.drain(..))
    }

    /// Returns the number of system calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }
}
