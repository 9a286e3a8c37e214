//! Nonblocking operations on their way through a ring, with their memory.
//!
//! The kernel reads or writes the memory of an operation between the call that submits it and the
//! completion. So the memory belongs to the batch from [`start`](Batch::start) on until the
//! progress gives it back, and only operations that have not been submitted can be ended early.
//! None of the operations may wait (`RWF_NOWAIT`, `MSG_DONTWAIT`), hence all of a call are
//! completed when it returns. That makes them cheaper than operations that may be under way for
//! longer (`in_flight.rs`): nothing keeps a place for each, or finds it by its registration, and
//! the whole list is forgotten at once.

use std::io;
use std::os::fd::RawFd;

use super::in_flight::at_most;
use super::names::BATCH;
use crate::operation::{Gain, Operation, Progress, Ticket};
use crate::stats::Calls;
use crate::sys::uring::loan::{File, Loan, Request};
use crate::sys::uring::{Completion, Ring};
use crate::sys::{call, descriptor};

/// Up to this many cost more through the ring than by a call each.
const FEW: usize = 2;

/// The owner of an operation that is over.
const NOBODY: u32 = u32::MAX;

/// The nonblocking operations of one wait.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    entries: Vec<Entry>,
    /// The number of the first one, which is in its ticket.
    first: u32,
    /// How many of the operations have been submitted.
    submitted: usize,
    /// How many were submitted and are not completed.
    under_way: usize,
    /// The number of the last entry in the ring's queue.
    last_submitted: u32,
    /// Where the ring keeps the files of registrations, by index; `NOBODY` if it does not.
    files: Vec<u32>,
    /// Registrations whose files the ring shall keep.
    wanted: Vec<(u32, RawFd)>,
}

#[derive(Debug)]
struct Entry {
    loan: Loan,
    token: u64,
    /// The registration's index.
    owner: u32,
    fd: RawFd,
    request: Request,
}

impl Batch {
    /// Takes an operation of the registration with this index; gives it back if it always blocks.
    #[inline]
    pub(crate) fn start(
        &mut self,
        owner: u32,
        fd: RawFd,
        operation: Operation,
        token: u64,
    ) -> Result<Ticket, Operation> {
        let ticket = self.ticket(self.entries.len());
        let mut put = |request, bytes| {
            self.entries.push(Entry { loan: Loan::of(bytes), token, owner, fd, request });
        };
        let blocks = false;
        match operation {
            Operation::Receive(bytes) => put(Request::Receive { most: u32::MAX, blocks }, bytes),
            Operation::ReceiveAtMost { bytes, most } => {
                put(Request::Receive { most: at_most(most), blocks }, bytes);
            }
            Operation::Read(bytes) => put(Request::Read { blocks }, bytes),
            Operation::Send { bytes, from } => put(Request::Send { from, blocks }, bytes),
            Operation::Write { bytes, from } => put(Request::Write { from, blocks }, bytes),
            operation => return Err(operation),
        }
        Ok(ticket)
    }

    fn ticket(&self, place: usize) -> Ticket {
        Ticket::nonblocking(self.first.wrapping_add(place as u32))
    }

    /// The place of an operation that is not over.
    fn find(&self, ticket: Ticket) -> Option<usize> {
        let place = ticket.number()?.wrapping_sub(self.first) as usize;
        self.entries.get(place).filter(|entry| entry.owner != NOBODY).map(|_| place)
    }

    /// Whether an operation is not over, as far as is known.
    pub(super) fn is_under_way(&self, ticket: Ticket) -> bool {
        self.find(ticket).is_some()
    }

    /// Whether some operations have not been submitted.
    #[inline]
    pub(crate) fn has_unsubmitted(&self) -> bool {
        self.submitted < self.entries.len()
    }

    /// Ends an operation that has not been submitted.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> Option<Progress> {
        let place = self.find(ticket).filter(|&place| place >= self.submitted)?;
        self.entries[place].cancel()
    }

    /// Ends the operations of a registration that have not been submitted.
    pub(super) fn withdraw(&mut self, owner: u32, mut done: impl FnMut(Ticket, Progress)) {
        for place in self.submitted..self.entries.len() {
            if self.entries[place].owner == owner
                && let Some(progress) = self.entries[place].cancel()
            {
                done(self.ticket(place), progress);
            }
        }
    }

    /// Forgets that the ring should keep the file of a registration.
    pub(super) fn leave_file(&mut self, owner: u32) {
        self.wanted.retain(|&(wanted, _)| wanted != owner);
    }

    /// Returns whether an operation of a registration was submitted and is not completed. After a
    /// wait that succeeded none is.
    fn is_submitted(&self, owner: u32) -> bool {
        self.entries[..self.submitted].iter().any(|entry| entry.owner == owner)
    }

    /// Returns whether an operation of a registration is in the ring's queue, and the kernel has
    /// not taken it.
    pub(crate) fn is_queued(&self, ring: &mut Ring, owner: u32) -> bool {
        self.is_submitted(owner) && !ring.has_taken(self.last_submitted)
    }

    /// Asks the ring to keep the file of a registration that has come to stay.
    pub(crate) fn want_file(&mut self, owner: u32, fd: RawFd) {
        self.wanted.push((owner, fd));
    }

    /// Registers with the ring the files that it shall keep.
    #[inline]
    pub(crate) fn keep_files(&mut self, calls: &mut Calls, ring: &mut Ring) {
        if !self.wanted.is_empty() {
            self.keep_wanted(calls, ring);
        }
    }

    #[cold]
    fn keep_wanted(&mut self, calls: &mut Calls, ring: &mut Ring) {
        for (owner, fd) in self.wanted.drain(..) {
            let index = owner as usize;
            if index >= self.files.len() {
                self.files.resize(index + 1, NOBODY);
            }
            if self.files[index] == NOBODY
                && let Some(place) = ring.keep_file(calls, fd)
            {
                self.files[index] = place;
            }
        }
    }

    /// Makes the ring let go of a registration's file, whose descriptor is given back.
    pub(crate) fn forget_file(&mut self, calls: &mut Calls, ring: &mut Ring, owner: u32) {
        self.leave_file(owner);
        if let Some(place) = self.files.get_mut(owner as usize)
            && *place != NOBODY
        {
            ring.forget_file(calls, std::mem::replace(place, NOBODY));
        }
    }

    /// Carries out a few operations by calls of their own, where submitting them together is not
    /// worth it.
    pub(crate) fn carry_out_few(&mut self, calls: &mut Calls, mut done: impl FnMut(Progress)) {
        if self.submitted > 0 || self.entries.len() > FEW {
            return;
        }
        for entry in &mut self.entries {
            if let Some(progress) = entry.carry_out(calls) {
                done(progress);
            }
        }
        self.forget();
    }

    /// Queues as many in the ring as it has room for; the next call carries them out. Returns
    /// whether that is all.
    pub(crate) fn submit_queued(&mut self, ring: &mut Ring) -> io::Result<bool> {
        let Batch { entries, submitted, under_way, files, last_submitted, .. } = self;
        let mut waiting = entries.iter_mut().enumerate().skip(*submitted);
        let next = || {
            for (place, entry) in waiting.by_ref() {
                *submitted = place + 1;
                if entry.owner != NOBODY {
                    *under_way += 1;
                    let file = match files.get(entry.owner as usize) {
                        Some(&kept) if kept != NOBODY => File::Kept(kept),
                        _ => File::Descriptor(entry.fd),
                    };
                    let name = (place as u64) << 32 | u64::from(BATCH);
                    return Some((&mut entry.loan, file, entry.request, name));
                }
            }
            None
        };
        ring.fill(next)?;
        *last_submitted = ring.last_pushed();
        self.clear();
        Ok(!self.has_unsubmitted())
    }

    /// Takes the result of an operation: the kernel's answer under its name.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        calls: &mut Calls,
        answered: Completion,
        done: impl FnOnce(Ticket, Progress),
    ) {
        let place = (answered.data >> 32) as usize;
        let ticket = self.ticket(place);
        let Some(entry) = self.entries.get_mut(place) else { return };
        entry.loan.answered(answered);
        if entry.owner == NOBODY {
            return;
        }
        let (answer, more) = if answered.answer == -libc::EOPNOTSUPP {
            // A kind of file that cannot promise not to wait, except by the descriptor's own flag.
            (entry.call(calls), true)
        } else {
            (answered.answer as isize, answered.more)
        };
        entry.owner = NOBODY;
        done(ticket, entry.end(answer, more));
        self.under_way -= 1;
        self.clear();
    }

    /// Gives up the operations that are not completed, with this error: their ring is gone.
    pub(super) fn abort_all(&mut self, error: i32, mut done: impl FnMut(Ticket, Progress)) {
        for place in 0..self.entries.len() {
            let ticket = self.ticket(place);
            let entry = &mut self.entries[place];
            entry.loan.recall();
            if entry.owner != NOBODY {
                done(ticket, entry.end(-error as isize, true));
            }
        }
        self.under_way = 0;
        self.forget();
        self.files.clear();
    }

    #[inline]
    fn clear(&mut self) {
        if self.under_way == 0 && self.submitted == self.entries.len() {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.first = self.first.wrapping_add(self.entries.len() as u32);
        self.entries.clear();
        self.submitted = 0;
    }

    /// Heap in use, without the memory of operations.
    pub(crate) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.files.capacity() * size_of::<u32>()
            + self.wanted.capacity() * size_of::<(u32, RawFd)>()
    }
}

impl Entry {
    /// Ends an operation that the kernel does not know of, unless it is over.
    fn cancel(&mut self) -> Option<Progress> {
        if std::mem::replace(&mut self.owner, NOBODY) == NOBODY {
            return None;
        }
        Some(self.end(-libc::ECANCELED as isize, true))
    }

    /// Carries the operation out by a call of its own, unless it is over.
    fn carry_out(&mut self, calls: &mut Calls) -> Option<Progress> {
        if std::mem::replace(&mut self.owner, NOBODY) == NOBODY {
            return None;
        }
        let answer = self.call(calls);
        // The call does not tell whether there is more.
        Some(self.end(answer, true))
    }

    /// Makes the call, and returns its answer as the ring would have it.
    fn call(&mut self, calls: &mut Calls) -> isize {
        calls.operation += 1;
        // It is open as long as its registration, which the caller has not ended.
        let fd = descriptor::registered(self.fd);
        let mut none = Vec::new();
        let buffer = self.loan.room().unwrap_or(&mut none);
        loop {
            let outcome = match self.request {
                Request::Read { .. } => call::read_to_vec(fd, buffer),
                Request::Receive { most, .. } => call::receive_to_vec(fd, buffer, most as usize),
                Request::Write { from, .. } => call::write(fd, &buffer[from.min(buffer.len())..]),
                Request::Send { from, .. } => call::send_now(fd, &buffer[from.min(buffer.len())..]),
                // The batch takes no other.
                _ => Err(io::ErrorKind::Unsupported.into()),
            };
            match outcome {
                Ok(count) => return count as isize,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return -(error.raw_os_error().unwrap_or(libc::EIO) as isize),
            }
        }
    }

    #[inline]
    fn end(&mut self, answer: isize, more: bool) -> Progress {
        let mut memory = self.loan.take();
        let outcome = call::result(answer).map(Gain::Count);
        if outcome.is_err() && self.request.fills() {
            memory.clear();
        }
        Progress { token: self.token, last: true, outcome, memory: Some(memory), more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the operations that come back.
    fn withdrawn(batch: &mut Batch, owner: u32) -> Vec<(Ticket, u64, usize)> {
        let mut list = Vec::new();
        batch.withdraw(owner, |ticket, progress| {
            let number = progress.outcome.unwrap_err().raw_os_error();
            assert!(progress.last && number == Some(libc::ECANCELED));
            list.push((ticket, progress.token, progress.memory.unwrap().capacity()));
        });
        list
    }

    #[test]
    fn operations_of_a_registration_that_is_over_come_back_and_are_not_submitted() {
        let mut batch = Batch { first: u32::MAX, ..Batch::default() };
        let mut tickets = Vec::new();
        for (owner, token) in [(3, 1), (4, 2), (3, 3)] {
            let receive = Operation::Receive(Vec::with_capacity(8));
            tickets.push(batch.start(owner, 9, receive, token).unwrap());
            batch.want_file(owner, 9);
        }
        assert_eq!(withdrawn(&mut batch, 3), [(tickets[0], 1, 8), (tickets[2], 3, 8)]);
        assert!(withdrawn(&mut batch, 3).is_empty() && withdrawn(&mut batch, 5).is_empty());
        batch.leave_file(3);
        assert_eq!(batch.wanted, [(4, 9)]);
        let owners: Vec<u32> = batch.entries.iter().map(|entry| entry.owner).collect();
        assert_eq!(owners, [NOBODY, 4, NOBODY]);
        let is_under_way: Vec<bool> = tickets.iter().map(|&it| batch.is_under_way(it)).collect();
        assert_eq!(is_under_way, [false, true, false]);
        assert!(batch.cancel(tickets[0]).is_none());
        assert_eq!(batch.cancel(tickets[1]).unwrap().token, 2);
        assert!(!batch.is_under_way(tickets[1]));
    }

    #[test]
    fn a_late_ticket_means_no_operation_of_a_later_wait() {
        let mut batch = Batch::default();
        let read = |batch: &mut Batch| batch.start(1, 9, Operation::Read(Vec::new()), 1).unwrap();
        let first = read(&mut batch);
        batch.abort_all(libc::ECANCELED, |ticket, _| assert_eq!(ticket, first));
        let second = read(&mut batch);
        assert!(batch.is_under_way(second) && !batch.is_under_way(first) && first != second);
        assert!(batch.start(1, 9, Operation::Accept, 1).is_err());
    }
}
