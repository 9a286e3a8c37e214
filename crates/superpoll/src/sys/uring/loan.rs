//! Memory that belongs to the kernel while a read into it is submitted to a ring.
//!
//! A [`Loan`] owns the memory of one read from before its submission until it was answered. Until
//! then the memory cannot be taken out, and dropping the loan leaks the memory, because the kernel
//! may still use it.

use std::io;
use std::mem::{forget, take};
use std::os::fd::RawFd;

use io_uring::{opcode, squeue, types};

use super::{Completion, Ring};
use crate::backend::ReadCall;

/// The most bytes that one call moves (`MAX_RW_COUNT` of the kernel).
const MOST: usize = 0x7fff_f000;

/// The file to read from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum File {
    /// By the number of its descriptor, which the kernel looks up when it makes the read.
    Descriptor(RawFd),
    /// By its place in the [table](Ring::keep_file) of the ring.
    Kept(u32),
}

/// The memory of a read, and how far the kernel is with it.
#[derive(Default)]
pub(crate) struct Loan {
    room: Vec<u8>,
    /// Whether the kernel has the memory.
    is_lent: bool,
    /// The number of bytes that the kernel has written.
    filled: u32,
}

crate::debug_fields!(Loan, it => is_lent: it.is_lent);

impl Loan {
    /// A loan of room to read into.
    #[inline]
    pub(crate) fn new(room: Vec<u8>) -> Loan {
        Loan { room, is_lent: false, filled: 0 }
    }

    /// Takes the memory out, with the bytes that the kernel has written and no more. None while the
    /// kernel has it.
    #[inline]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        if self.is_lent {
            return Vec::new();
        }
        let mut bytes = take(&mut self.room);
        let filled = (self.filled as usize).min(bytes.capacity());
        // SAFETY: the kernel has written this many bytes from the front, and there is room for
        // them.
        unsafe { bytes.set_len(filled) };
        bytes
    }

    /// Notes the answer to the read, which the caller knows by its name.
    #[inline]
    pub(crate) fn answered(&mut self, completion: Completion) {
        self.is_lent = false;
        self.filled = completion.answer.max(0) as u32;
    }

    /// Takes the memory back without an answer, because the ring is gone. The kernel is done with a
    /// read that does not wait when the call that submits it returns, and nothing submits it any
    /// more.
    pub(crate) fn recall(&mut self) {
        self.is_lent = false;
        self.filled = 0;
    }

    /// The entry for the kernel, which does not wait for bytes.
    #[inline]
    fn entry(&mut self, file: File, call: ReadCall) -> squeue::Entry {
        let (fd, kept) = match file {
            File::Descriptor(fd) => (types::Fd(fd), squeue::Flags::empty()),
            File::Kept(place) => (types::Fd(place as RawFd), squeue::Flags::FIXED_FILE),
        };
        let (memory, room) = (self.room.as_mut_ptr(), self.room.capacity().min(MOST) as u32);
        // Where the file is at; pipes have no other place.
        let here = u64::MAX;
        let entry = match call {
            ReadCall::Receive => {
                opcode::Recv::new(fd, memory, room).flags(libc::MSG_DONTWAIT).build()
            }
            ReadCall::Read => {
                opcode::Read::new(fd, memory, room).offset(here).rw_flags(libc::RWF_NOWAIT).build()
            }
        };
        entry.flags(kept)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.is_lent {
            forget(take(&mut self.room));
        }
    }
}

impl Ring {
    /// Queues reads, as many as there is room for. The iterator is advanced only when there is room
    /// for its next read.
    #[inline]
    pub(crate) fn fill<'a>(
        &mut self,
        mut next: impl FnMut() -> Option<(&'a mut Loan, File, ReadCall, u64)>,
    ) -> io::Result<()> {
        self.check_forks()?;
        let mut queue = self.ring.submission();
        while !queue.is_full() {
            let Some((loan, file, call, name)) = next() else { break };
            let entry = loan.entry(file, call);
            loan.is_lent = true;
            // SAFETY: the memory is the loan's, which keeps it in place until the answer. It cannot
            // fail, there is room.
            let _ = unsafe { queue.push(&entry.user_data(name)) };
            self.pushed = self.pushed.wrapping_add(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_when_the_answer_has_come() {
        let mut loan = Loan::new(Vec::with_capacity(4));
        loan.entry(File::Descriptor(0), ReadCall::Receive);
        loan.is_lent = true;
        assert_eq!(loan.take().capacity(), 0, "the kernel has it");
        loan.answered(Completion { answer: 2, ..Completion::NONE });
        let taken = loan.take();
        assert!(taken.len() == 2 && taken.capacity() >= 4);
    }

    #[test]
    fn a_read_that_failed_or_is_recalled_has_filled_nothing() {
        let lent = || {
            let mut loan = Loan::new(vec![1, 2, 3]);
            loan.entry(File::Kept(3), ReadCall::Read);
            loan.is_lent = true;
            loan
        };
        let mut recalled = lent();
        recalled.recall();
        assert_eq!(recalled.take(), []);
        let mut failed = lent();
        failed.answered(Completion { answer: -libc::EAGAIN, ..Completion::NONE });
        assert_eq!(failed.take(), []);
    }
}
