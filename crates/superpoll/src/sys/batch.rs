//! Actions on their way through a ring, with their memory.
//!
//! The kernel reads or writes the memory of an action between the call that tells it and the completion. So the
//! memory belongs to the batch from [`queue`](Batch::queue) on until the completion gives it back, and what is
//! dropped early is only what the kernel has not been told of. None of the actions may wait (`RWF_NOWAIT`,
//! `MSG_DONTWAIT`), hence all of a call are completed when it returns.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use io_uring::{opcode, squeue, types};

use crate::operation::{Action, Completion};
use crate::stats::Calls;
use crate::sys::call;
use crate::sys::uring::Ring;

/// The low half of the names of actions; polls have another one.
pub const MARK: u32 = u32::MAX;

/// Up to so many cost more through the ring than by a call each.
const FEW: usize = 2;

/// The actions of one wait.
#[derive(Debug, Default)]
pub struct Batch {
    entries: Vec<Entry>,
    /// So many of them the kernel was told.
    told: usize,
    /// So many were told and are not completed.
    under_way: usize,
}

#[derive(Debug)]
struct Entry {
    /// Whose it is; nobody's after it was withdrawn or completed.
    owner: Option<u32>,
    fd: RawFd,
    action: Action,
    buffer: Vec<u8>,
    token: u64,
}

impl Batch {
    /// Takes an action of the registration with this index.
    pub fn queue(&mut self, owner: u32, fd: RawFd, action: Action, buffer: Vec<u8>, token: u64) {
        self.entries.push(Entry { owner: Some(owner), fd, action, buffer, token });
    }

    /// Whether some have not been told.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.told < self.entries.len()
    }

    /// Forgets what a registration has queued and the kernel was not told.
    pub fn withdraw(&mut self, owner: u32) {
        let told = self.told;
        for entry in self.entries.iter_mut().skip(told) {
            if entry.owner == Some(owner) {
                entry.owner = None;
            }
        }
    }

    /// Tells the kernel all, to be carried out with the next call; or carries out what is not worth that.
    pub fn tell(
        &mut self,
        calls: &mut Calls,
        ring: &mut Ring,
        mut done: impl FnMut(Completion),
    ) -> io::Result<()> {
        let alone = self.told == 0 && self.entries.len() <= FEW;
        while self.told < self.entries.len() {
            let place = self.told;
            let entry = &mut self.entries[place];
            if entry.owner.is_some() && !alone {
                let data = (place as u64) << 32 | u64::from(MARK);
                // SAFETY: the memory is the entry's until its completion was fetched, and a vector's memory
                // stays where it is when the entry moves.
                unsafe { ring.push(calls, &entry.submission().user_data(data)) }?;
                self.under_way += 1;
            }
            self.told += 1;
            if alone && let Some(completion) = self.entries[place].carry_out(calls) {
                done(completion);
            }
        }
        self.clear();
        Ok(())
    }

    /// What has become of one, by the high half of its name and the kernel's answer.
    pub fn complete(&mut self, calls: &mut Calls, place: u32, answer: i32) -> Option<Completion> {
        let entry = self.entries.get_mut(place as usize)?;
        entry.owner.take()?;
        let completion = if answer == -libc::EOPNOTSUPP {
            // A kind of file that cannot promise not to wait, but for the descriptor's own flag.
            entry.owner = Some(0);
            entry.carry_out(calls)
        } else {
            Some(entry.end(answer as isize))
        };
        self.under_way -= 1;
        self.clear();
        completion
    }

    /// Gives up what has not been completed: its ring is gone.
    pub fn give_up(&mut self, mut done: impl FnMut(Completion)) {
        for mut entry in self.entries.drain(..) {
            if entry.owner.take().is_some() {
                done(entry.end(-libc::ECANCELED as isize));
            }
        }
        (self.told, self.under_way) = (0, 0);
    }

    fn clear(&mut self) {
        if self.under_way == 0 && self.told == self.entries.len() {
            self.entries.clear();
            self.told = 0;
        }
    }

    /// Heap in use, without the memory of actions.
    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }
}

impl Entry {
    fn submission(&mut self) -> squeue::Entry {
        let (fd, memory) = (types::Fd(self.fd), self.buffer.as_mut_ptr());
        let most = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let (room, length) = (most(self.buffer.capacity()), most(self.buffer.len()));
        // Where the file is at; pipes have no other place.
        let here = u64::MAX;
        match self.action {
            Action::Read => {
                opcode::Read::new(fd, memory, room).offset(here).rw_flags(libc::RWF_NOWAIT).build()
            }
            Action::Write => opcode::Write::new(fd, memory, length)
                .offset(here)
                .rw_flags(libc::RWF_NOWAIT)
                .build(),
            Action::Receive => {
                opcode::Recv::new(fd, memory, room).flags(libc::MSG_DONTWAIT).build()
            }
            Action::Send => opcode::Send::new(fd, memory, length)
                .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                .build(),
        }
    }

    /// Carries it out by a call of its own, if it is still wanted.
    fn carry_out(&mut self, calls: &mut Calls) -> Option<Completion> {
        self.owner.take()?;
        calls.operation += 1;
        // SAFETY: it is open as long as its registration, which the caller has not ended.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let answer = loop {
            let outcome = match self.action {
                Action::Read => call::read_to_vec(fd, &mut self.buffer),
                Action::Receive => call::receive_to_vec(fd, &mut self.buffer),
                Action::Write => call::write(fd, &self.buffer),
                Action::Send => call::send_now(fd, &self.buffer),
            };
            match outcome {
                Ok(count) => break count as isize,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break -(error.raw_os_error().unwrap_or(libc::EIO) as isize),
            }
        };
        Some(self.end(answer))
    }

    fn end(&mut self, answer: isize) -> Completion {
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = call::result(answer);
        if self.action.fills() {
            let filled = outcome.as_ref().copied().unwrap_or(0).min(buffer.capacity());
            // SAFETY: the kernel has written so many bytes from the front, and there is room for them.
            unsafe { buffer.set_len(filled) };
        }
        Completion { token: self.token, buffer, outcome }
    }
}
