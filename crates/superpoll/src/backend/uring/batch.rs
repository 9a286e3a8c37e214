//! Reads on their way through a ring, with their memory.
//!
//! The kernel writes to the memory of a read between the call that submits it and the completion.
//! So the memory belongs to the batch from [`start`](Batch::start) on until the outcome gives it
//! back, and only reads that have not been submitted can be ended early. None of the reads may wait
//! (`RWF_NOWAIT`, `MSG_DONTWAIT`), hence all of a call are completed when it returns: nothing keeps
//! a place for each, or finds it by its registration, and the whole list is forgotten at once.

use std::io;
use std::os::fd::RawFd;

use crate::backend::{BatchedRead, ReadCall};
use crate::key::Key;
use crate::stats::Calls;
use crate::sys::uring::loan::{File, Loan};
use crate::sys::uring::{Completion, Ring};
use crate::sys::{call, descriptor};

/// The low half of the names of reads. Their place in the batch is in the high half.
pub(super) const BATCH: u32 = u32::MAX;

/// Up to this many cost more through the ring than by a call each.
const FEW: usize = 2;

/// The ring does not keep the file.
const NOWHERE: u32 = u32::MAX;

/// The reads of one wait.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    entries: Vec<Entry>,
    /// How many of the reads have been submitted.
    submitted: usize,
    /// How many were submitted and are not completed.
    under_way: usize,
    /// The number of the last entry in the ring's queue.
    last_submitted: u32,
    /// Where the ring keeps the files of registrations, by index; `NOWHERE` if it does not.
    files: Vec<u32>,
    /// Registrations whose files the ring shall keep.
    wanted: Vec<(u32, RawFd)>,
}

#[derive(Debug)]
struct Entry {
    loan: Loan,
    key: Key,
    fd: RawFd,
    call: ReadCall,
    is_over: bool,
}

impl Batch {
    /// Takes a read of a registration.
    #[inline]
    pub(crate) fn start(&mut self, key: Key, fd: RawFd, call: ReadCall, room: Vec<u8>) {
        self.entries.push(Entry { loan: Loan::new(room), key, fd, call, is_over: false });
    }

    /// Whether some reads have not been submitted.
    #[inline]
    pub(crate) fn has_unsubmitted(&self) -> bool {
        self.submitted < self.entries.len()
    }

    /// Ends the reads of the registration with this index that have not been submitted.
    pub(super) fn withdraw(&mut self, index: u32, mut done: impl FnMut(BatchedRead)) {
        for entry in &mut self.entries[self.submitted..] {
            if entry.key.index() == index
                && let Some(read) = entry.cancel()
            {
                done(read);
            }
        }
    }

    /// Returns whether a read of a registration is in the ring's queue, and the kernel has not
    /// taken it. After a wait that succeeded there is none.
    pub(crate) fn is_queued(&self, ring: &mut Ring, index: u32) -> bool {
        let is_it = |entry: &Entry| entry.key.index() == index && !entry.is_over;
        self.entries[..self.submitted].iter().any(is_it) && !ring.has_taken(self.last_submitted)
    }

    /// Asks the ring to keep the file of a registration that has come to stay.
    pub(crate) fn want_file(&mut self, index: u32, fd: RawFd) {
        self.wanted.push((index, fd));
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
        for (index, fd) in self.wanted.drain(..) {
            let index = index as usize;
            if index >= self.files.len() {
                self.files.resize(index + 1, NOWHERE);
            }
            if self.files[index] == NOWHERE
                && let Some(place) = ring.keep_file(calls, fd)
            {
                self.files[index] = place;
            }
        }
    }

    /// Makes the ring let go of a registration's file, whose descriptor may be given back.
    pub(crate) fn forget_file(&mut self, calls: &mut Calls, ring: &mut Ring, index: u32) {
        self.wanted.retain(|&(wanted, _)| wanted != index);
        if let Some(place) = self.files.get_mut(index as usize)
            && *place != NOWHERE
        {
            ring.forget_file(calls, std::mem::replace(place, NOWHERE));
        }
    }

    /// Carries out a few reads by calls of their own, where submitting them together is not worth
    /// it.
    pub(crate) fn carry_out_few(&mut self, calls: &mut Calls, mut done: impl FnMut(BatchedRead)) {
        if self.submitted > 0 || self.entries.len() > FEW {
            return;
        }
        for entry in &mut self.entries {
            if let Some(read) = entry.carry_out(calls) {
                done(read);
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
                if !entry.is_over {
                    *under_way += 1;
                    let file = match files.get(entry.key.index() as usize) {
                        Some(&kept) if kept != NOWHERE => File::Kept(kept),
                        _ => File::Descriptor(entry.fd),
                    };
                    let name = (place as u64) << 32 | u64::from(BATCH);
                    return Some((&mut entry.loan, file, entry.call, name));
                }
            }
            None
        };
        ring.fill(next)?;
        *last_submitted = ring.last_pushed();
        self.clear();
        Ok(!self.has_unsubmitted())
    }

    /// Takes the result of a read: the kernel's answer under its name.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        calls: &mut Calls,
        answered: Completion,
        done: impl FnOnce(BatchedRead),
    ) {
        let place = (answered.data >> 32) as usize;
        let Some(entry) = self.entries.get_mut(place) else { return };
        entry.loan.answered(answered);
        if entry.is_over {
            return;
        }
        let read = if answered.answer == -libc::EOPNOTSUPP {
            // A kind of file that cannot promise not to wait, except by the descriptor's own flag.
            entry.make_call(calls)
        } else {
            entry.end(call::result(answered.answer as isize), answered.more)
        };
        done(read);
        self.under_way -= 1;
        self.clear();
    }

    /// Gives up the reads that are not completed, with this error: their ring is gone.
    pub(super) fn abort_all(&mut self, error: i32, mut done: impl FnMut(BatchedRead)) {
        for entry in &mut self.entries {
            entry.loan.recall();
            if !entry.is_over {
                done(entry.end(Err(io::Error::from_raw_os_error(error)), true));
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
        self.entries.clear();
        self.submitted = 0;
    }

    /// Heap in use, without the memory of reads.
    pub(crate) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.files.capacity() * size_of::<u32>()
            + self.wanted.capacity() * size_of::<(u32, RawFd)>()
    }
}

impl Entry {
    /// Ends a read that the kernel does not know of, unless it is over.
    fn cancel(&mut self) -> Option<BatchedRead> {
        let canceled = || Err(io::Error::from_raw_os_error(libc::ECANCELED));
        (!self.is_over).then(|| self.end(canceled(), true))
    }

    /// Makes the read by a call of its own, unless it is over.
    fn carry_out(&mut self, calls: &mut Calls) -> Option<BatchedRead> {
        (!self.is_over).then(|| self.make_call(calls))
    }

    /// Makes the read by a call of its own.
    fn make_call(&mut self, calls: &mut Calls) -> BatchedRead {
        calls.read += 1;
        // It is open as long as its registration, which the caller has not ended.
        let fd = descriptor::registered(self.fd);
        let mut room = self.loan.take();
        let outcome = loop {
            let outcome = match self.call {
                ReadCall::Read => call::read_to_vec(fd, &mut room),
                ReadCall::Receive => call::receive_to_vec(fd, &mut room),
            };
            match outcome {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome,
            }
        };
        self.is_over = true;
        // The call does not tell whether there is more.
        BatchedRead { key: self.key, outcome, room, more: true }
    }

    #[inline]
    fn end(&mut self, outcome: io::Result<usize>, more: bool) -> BatchedRead {
        self.is_over = true;
        BatchedRead { key: self.key, outcome, room: self.loan.take(), more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The registrations whose reads come back, and the room of each.
    fn withdrawn(batch: &mut Batch, index: u32) -> Vec<(u32, usize)> {
        let mut list = Vec::new();
        batch.withdraw(index, |read| {
            assert_eq!(read.outcome.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
            list.push((read.key.generation(), read.room.capacity()));
        });
        list
    }

    #[test]
    fn reads_of_a_registration_that_is_over_come_back_and_are_not_submitted() {
        let mut batch = Batch::default();
        for (index, generation) in [(3, 1), (4, 2), (3, 3)] {
            let room = Vec::with_capacity(8);
            batch.start(Key::new(index, generation), 9, ReadCall::Receive, room);
        }
        assert_eq!(withdrawn(&mut batch, 3), [(1, 8), (3, 8)]);
        assert!(withdrawn(&mut batch, 3).is_empty() && withdrawn(&mut batch, 5).is_empty());
        let are_over: Vec<bool> = batch.entries.iter().map(|entry| entry.is_over).collect();
        assert_eq!(are_over, [true, false, true]);
    }

    #[test]
    fn reads_come_back_when_their_ring_is_gone() {
        let mut batch = Batch::default();
        batch.start(Key::new(1, 7), 9, ReadCall::Read, Vec::with_capacity(8));
        let mut ended = Vec::new();
        batch.abort_all(libc::EBADR, |read| ended.push(read));
        assert_eq!((ended[0].key, ended[0].room.capacity()), (Key::new(1, 7), 8));
        assert_eq!(ended[0].outcome.as_ref().unwrap_err().raw_os_error(), Some(libc::EBADR));
        assert!(ended.len() == 1 && !batch.has_unsubmitted());
    }
}
