//! Actions on their way through a ring, with their memory.
//!
//! The kernel reads or writes the memory of an action between the call that submits it and the
//! completion. So the memory belongs to the batch from [`queue`](Batch::queue) on until the
//! completion gives it back, and only actions that have not been submitted can be dropped early.
//! None of the actions may wait (`RWF_NOWAIT`, `MSG_DONTWAIT`), hence all of a call are completed
//! when it returns.

use std::io;
use std::os::fd::RawFd;

use crate::operation::{Action, Completion};
use crate::stats::Calls;
use crate::sys::uring::loan::{File, Loan, Request};
use crate::sys::uring::{self, Ring};
use crate::sys::{call, descriptor};

/// The low half of the names of actions; polls have another one.
pub(super) const MARK: u32 = u32::MAX;

/// Up to this many cost more through the ring than by a call each.
const FEW: usize = 2;

/// The owner of an action that was withdrawn or completed.
const NOBODY: u32 = u32::MAX;

/// The actions of one wait.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    entries: Vec<Entry>,
    /// How many of the actions have been submitted.
    told: usize,
    /// How many were submitted and are not completed.
    under_way: usize,
    /// The number of the last entry in the ring's queue.
    last_told: u32,
    /// Completions that arrived outside of a wait, each with its owner; the next wait delivers
    /// them.
    kept: Vec<(u32, Completion)>,
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
    action: Action,
}

impl Batch {
    /// Takes an action of the registration with this index.
    #[inline]
    pub(crate) fn queue(
        &mut self,
        owner: u32,
        fd: RawFd,
        action: Action,
        buffer: Vec<u8>,
        token: u64,
    ) {
        self.entries.push(Entry { loan: Loan::of(buffer), token, owner, fd, action });
    }

    /// Whether the next wait has something to submit or to deliver.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_untold() || !self.kept.is_empty()
    }

    /// Whether some actions have not been submitted.
    #[inline]
    pub(crate) fn is_untold(&self) -> bool {
        self.told < self.entries.len()
    }

    /// Forgets the actions of a registration that have not been submitted.
    pub(crate) fn withdraw(&mut self, owner: u32) {
        self.kept.retain(|&(whose, _)| whose != owner);
        let told = self.told;
        for entry in self.entries.iter_mut().skip(told) {
            if entry.owner == owner {
                entry.owner = NOBODY;
            }
        }
    }

    /// Makes sure that nothing more is submitted with the number of a registration's descriptor.
    /// Returns whether an action was queued.
    pub(crate) fn disengage(&mut self, owner: u32) -> bool {
        if !self.wanted.is_empty() {
            self.wanted.retain(|&(wanted, _)| wanted != owner);
        }
        let queued = self.entries.iter().skip(self.told).any(|entry| entry.owner == owner);
        if queued {
            self.withdraw(owner);
        }
        queued
    }

    /// Returns whether an action of a registration was submitted and is not completed. After a wait
    /// that succeeded none is.
    fn is_under_way(&self, owner: u32) -> bool {
        self.entries[..self.told].iter().any(|entry| entry.owner == owner)
    }

    /// Returns whether an action of a registration is in the ring's queue, and the kernel has not
    /// taken it.
    pub(crate) fn is_queued(&self, ring: &mut Ring, owner: u32) -> bool {
        self.is_under_way(owner) && !ring.has_taken(self.last_told)
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
        self.wanted.retain(|&(wanted, _)| wanted != owner);
        if let Some(place) = self.files.get_mut(owner as usize)
            && *place != NOBODY
        {
            ring.forget_file(calls, std::mem::replace(place, NOBODY));
        }
    }

    /// Carries out a few actions by calls of their own, where submitting them together is not worth
    /// it.
    pub(crate) fn carry_out_few(&mut self, calls: &mut Calls, mut done: impl FnMut(Completion)) {
        if self.told > 0 || self.entries.len() > FEW {
            return;
        }
        for entry in &mut self.entries {
            if let Some(completion) = entry.carry_out(calls) {
                done(completion);
            }
        }
        self.entries.clear();
    }

    /// Queues as many in the ring as it has room for; the next call carries them out. Returns
    /// whether that is all.
    pub(crate) fn tell(&mut self, ring: &mut Ring) -> io::Result<bool> {
        let Batch { entries, told, under_way, files, last_told, .. } = self;
        let mut waiting = entries.iter_mut().enumerate().skip(*told);
        let next = || {
            for (place, entry) in waiting.by_ref() {
                *told = place + 1;
                if entry.owner != NOBODY {
                    *under_way += 1;
                    let file = match files.get(entry.owner as usize) {
                        Some(&kept) if kept != NOBODY => File::Kept(kept),
                        _ => File::Descriptor(entry.fd),
                    };
                    let name = (place as u64) << 32 | u64::from(MARK);
                    return Some((&mut entry.loan, file, request(entry.action), name));
                }
            }
            None
        };
        ring.fill(next)?;
        *last_told = ring.last_pushed();
        self.clear();
        Ok(!self.is_untold())
    }

    /// Takes the result of an action: the kernel's answer under the name of that action.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        calls: &mut Calls,
        answered: uring::Completion,
    ) -> Option<Completion> {
        let entry = self.entries.get_mut((answered.data >> 32) as usize)?;
        entry.loan.answered(answered);
        if entry.owner == NOBODY {
            return None;
        }
        let completion = if answered.answer == -libc::EOPNOTSUPP {
            // A kind of file that cannot promise not to wait, except by the descriptor's own flag.
            entry.carry_out(calls)
        } else {
            entry.owner = NOBODY;
            Some(entry.end(answered.answer as isize, answered.more))
        };
        self.under_way -= 1;
        self.clear();
        completion
    }

    /// Gives up the actions that are not completed, with this error: their ring is gone.
    pub(crate) fn give_up(&mut self, error: i32) {
        for mut entry in self.entries.drain(..) {
            entry.loan.recall();
            if entry.owner != NOBODY {
                self.kept.push((entry.owner, entry.end(-error as isize, true)));
            }
        }
        (self.told, self.under_way) = (0, 0);
        self.files.clear();
    }

    /// Keeps the completions that arrived outside of a wait.
    pub(crate) fn keep(&mut self, done: &mut Vec<Completion>) {
        self.kept.extend(done.drain(..).map(|completion| (NOBODY, completion)));
    }

    /// Takes the completions that were kept.
    pub(crate) fn take_kept(&mut self) -> impl Iterator<Item = Completion> {
        self.kept.drain(..).map(|(_, completion)| completion)
    }

    #[inline]
    fn clear(&mut self) {
        if self.under_way == 0 && self.told == self.entries.len() {
            self.entries.clear();
            self.told = 0;
        }
    }

    /// Heap in use, without the memory of actions.
    pub(crate) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.files.capacity() * size_of::<u32>()
            + self.wanted.capacity() * size_of::<(u32, RawFd)>()
    }
}

impl Entry {
    /// Carries the action out by a call of its own, if it is still wanted.
    fn carry_out(&mut self, calls: &mut Calls) -> Option<Completion> {
        if std::mem::replace(&mut self.owner, NOBODY) == NOBODY {
            return None;
        }
        calls.operation += 1;
        // It is open as long as its registration, which the caller has not ended.
        let fd = descriptor::registered(self.fd);
        let mut none = Vec::new();
        let buffer = self.loan.room().unwrap_or(&mut none);
        let answer = loop {
            let outcome = match self.action {
                Action::Read => call::read_to_vec(fd, buffer),
                Action::Receive => call::receive_to_vec(fd, buffer, usize::MAX),
                Action::ReceiveAtMost(most) => call::receive_to_vec(fd, buffer, most as usize),
                Action::Write => call::write(fd, buffer),
                Action::Send => call::send_now(fd, buffer),
            };
            match outcome {
                Ok(count) => break count as isize,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break -(error.raw_os_error().unwrap_or(libc::EIO) as isize),
            }
        };
        // The call does not tell whether there is more.
        Some(self.end(answer, true))
    }

    #[inline]
    fn end(&mut self, answer: isize, more: bool) -> Completion {
        let mut buffer = self.loan.take();
        let outcome = call::result(answer);
        if outcome.is_err() && self.action.fills() {
            buffer.clear();
        }
        Completion { token: self.token, buffer, outcome, more }
    }
}

/// The request that an action stands for.
#[inline]
fn request(action: Action) -> Request {
    match action {
        Action::Read => Request::ReadNow,
        Action::Write => Request::WriteNow,
        Action::Receive => Request::ReceiveNow { most: u32::MAX },
        Action::ReceiveAtMost(most) => Request::ReceiveNow { most },
        Action::Send => Request::SendNow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_disengaged_is_not_told_under_its_number() {
        let mut batch = Batch::default();
        for owner in [3, 4, 3] {
            batch.queue(owner, 9, Action::Receive, Vec::new(), u64::from(owner));
            batch.want_file(owner, 9);
        }
        assert!(batch.disengage(3) && !batch.disengage(3) && !batch.disengage(5));
        assert_eq!(batch.wanted, [(4, 9)]);
        let owners: Vec<u32> = batch.entries.iter().map(|entry| entry.owner).collect();
        assert_eq!(owners, [NOBODY, 4, NOBODY]);
    }
}
