//! Actions on their way through a ring, with their memory.
//!
//! The kernel reads or writes the memory of an action between the call that submits it and the
//! completion. So the memory belongs to the batch from [`queue`](Batch::queue) on until the
//! completion gives it back, and only actions that have not been submitted can be dropped early.
//! None of the actions may wait (`RWF_NOWAIT`, `MSG_DONTWAIT`), hence all of a call are completed
//! when it returns.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use io_uring::{opcode, squeue, types};

use crate::operation::{Action, Completion};
use crate::stats::Calls;
use crate::sys::call;
use crate::sys::uring::Ring;

/// The low half of the names of actions; polls have another one.
pub const MARK: u32 = u32::MAX;

/// Up to this many cost more through the ring than by a call each.
const FEW: usize = 2;

/// The owner of an action that was withdrawn or completed.
const NOBODY: u32 = u32::MAX;

/// The actions of one wait.
#[derive(Debug, Default)]
pub struct Batch {
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
    buffer: Vec<u8>,
    token: u64,
    /// The registration's index.
    owner: u32,
    fd: RawFd,
    action: Action,
}

impl Batch {
    /// Takes an action of the registration with this index.
    #[inline]
    pub fn queue(&mut self, owner: u32, fd: RawFd, action: Action, buffer: Vec<u8>, token: u64) {
        self.entries.push(Entry { buffer, token, owner, fd, action });
    }

    /// Whether the next wait has something to submit or to deliver.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.is_untold() || !self.kept.is_empty()
    }

    /// Whether some actions have not been submitted.
    #[inline]
    pub fn is_untold(&self) -> bool {
        self.told < self.entries.len()
    }

    /// Forgets the actions of a registration that have not been submitted.
    pub fn withdraw(&mut self, owner: u32) {
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
    pub fn disengage(&mut self, owner: u32) -> bool {
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
    pub fn is_under_way(&self, owner: u32) -> bool {
        self.entries[..self.told].iter().any(|entry| entry.owner == owner)
    }

    /// Returns whether an action of a registration is in the ring's queue, and the kernel has not
    /// taken it.
    pub fn is_queued(&self, ring: &mut Ring, owner: u32) -> bool {
        self.is_under_way(owner) && !ring.has_taken(self.last_told)
    }

    /// Asks the ring to keep the file of a registration that has come to stay.
    pub fn want_file(&mut self, owner: u32, fd: RawFd) {
        self.wanted.push((owner, fd));
    }

    /// Registers with the ring the files that it shall keep.
    #[inline]
    pub fn keep_files(&mut self, calls: &mut Calls, ring: &mut Ring) {
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
    pub fn forget_file(&mut self, calls: &mut Calls, ring: &mut Ring, owner: u32) {
        self.wanted.retain(|&(wanted, _)| wanted != owner);
        if let Some(place) = self.files.get_mut(owner as usize)
            && *place != NOBODY
        {
            ring.forget_file(calls, std::mem::replace(place, NOBODY));
        }
    }

    /// Carries out a few actions by calls of their own, where submitting them together is not worth
    /// it.
    pub fn carry_out_few(&mut self, calls: &mut Calls, mut done: impl FnMut(Completion)) {
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
    pub fn tell(&mut self, ring: &mut Ring) -> io::Result<bool> {
        let Batch { entries, told, under_way, files, last_told, .. } = self;
        let next = || {
            while let Some(entry) = entries.get_mut(*told) {
                let data = (*told as u64) << 32 | u64::from(MARK);
                *told += 1;
                if entry.owner != NOBODY {
                    *under_way += 1;
                    let file = files.get(entry.owner as usize).copied().unwrap_or(NOBODY);
                    return Some(entry.submission(file).user_data(data));
                }
            }
            None
        };
        // SAFETY: the memory is the entry's until its completion was fetched, and a vector's memory
        // stays where it is when the entry moves.
        unsafe { ring.fill(next) }?;
        *last_told = ring.last_pushed();
        self.clear();
        Ok(!self.is_untold())
    }

    /// Takes the result of an action, by the high half of its name, the kernel's answer, and
    /// whether the answer says that there is more.
    #[inline]
    pub fn complete(
        &mut self,
        calls: &mut Calls,
        place: u32,
        answer: i32,
        more: bool,
    ) -> Option<Completion> {
        let entry = self.entries.get_mut(place as usize)?;
        if entry.owner == NOBODY {
            return None;
        }
        let completion = if answer == -libc::EOPNOTSUPP {
            // A kind of file that cannot promise not to wait, except by the descriptor's own flag.
            entry.carry_out(calls)
        } else {
            entry.owner = NOBODY;
            Some(entry.end(answer as isize, more))
        };
        self.under_way -= 1;
        self.clear();
        completion
    }

    /// Gives up the actions that are not completed, with this error: their ring is gone.
    pub fn give_up(&mut self, error: i32) {
        for mut entry in self.entries.drain(..) {
            if entry.owner != NOBODY {
                self.kept.push((entry.owner, entry.end(-error as isize, true)));
            }
        }
        (self.told, self.under_way) = (0, 0);
        self.files.clear();
    }

    /// Keeps the completions that arrived outside of a wait.
    pub fn keep(&mut self, done: &mut Vec<Completion>) {
        self.kept.extend(done.drain(..).map(|completion| (NOBODY, completion)));
    }

    /// Takes the completions that were kept.
    pub fn take_kept(&mut self) -> impl Iterator<Item = Completion> {
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
    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.files.capacity() * size_of::<u32>()
            + self.wanted.capacity() * size_of::<(u32, RawFd)>()
    }
}

impl Entry {
    /// For the ring, which knows the file by its place if it keeps it.
    #[inline]
    fn submission(&mut self, file: u32) -> squeue::Entry {
        let (number, flags) = match file {
            NOBODY => (self.fd, squeue::Flags::empty()),
            place => (place as RawFd, squeue::Flags::FIXED_FILE),
        };
        let (fd, memory) = (types::Fd(number), self.buffer.as_mut_ptr());
        let most = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let (room, length) = (most(self.buffer.capacity()), most(self.buffer.len()));
        // Where the file is at; pipes have no other place.
        let here = u64::MAX;
        let receive = |room| opcode::Recv::new(fd, memory, room).flags(libc::MSG_DONTWAIT).build();
        let entry = match self.action {
            Action::Read => {
                opcode::Read::new(fd, memory, room).offset(here).rw_flags(libc::RWF_NOWAIT).build()
            }
            Action::Write => opcode::Write::new(fd, memory, length)
                .offset(here)
                .rw_flags(libc::RWF_NOWAIT)
                .build(),
            Action::Receive => receive(room),
            Action::ReceiveAtMost(most) => receive(room.min(most)),
            Action::Send => opcode::Send::new(fd, memory, length)
                .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                .build(),
        };
        entry.flags(flags)
    }

    /// Carries the action out by a call of its own, if it is still wanted.
    fn carry_out(&mut self, calls: &mut Calls) -> Option<Completion> {
        if std::mem::replace(&mut self.owner, NOBODY) == NOBODY {
            return None;
        }
        calls.operation += 1;
        // SAFETY: it is open as long as its registration, which the caller has not ended.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let answer = loop {
            let outcome = match self.action {
                Action::Read => call::read_to_vec(fd, &mut self.buffer),
                Action::Receive => call::receive_to_vec(fd, &mut self.buffer, usize::MAX),
                Action::ReceiveAtMost(most) => {
                    call::receive_to_vec(fd, &mut self.buffer, most as usize)
                }
                Action::Write => call::write(fd, &self.buffer),
                Action::Send => call::send_now(fd, &self.buffer),
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
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = call::result(answer);
        if self.action.fills() {
            let filled = outcome.as_ref().copied().unwrap_or(0).min(buffer.capacity());
            // SAFETY: the kernel has written this many bytes from the front, and there is room for
            // them.
            unsafe { buffer.set_len(filled) };
        }
        Completion { token: self.token, buffer, outcome, more }
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
