//! Reads that wait in an io_uring until there is something to read, each with memory of its own.

use std::io;
use std::os::fd::RawFd;

use io_uring::{cqueue, opcode, squeue, types};

use super::Counted;

/// The memory of a read.
const ROOM: usize = 64;

/// Marks the requests that cancel a read; the reads' own numbers do not have this bit.
const CANCEL: u64 = 1 << 63;

/// Reads, one of each descriptor at a time.
pub(crate) struct Reads {
    // Before the memory that the kernel writes to.
    pub ring: Counted,
    buffers: Vec<[u8; ROOM]>,
    files: Vec<RawFd>,
    /// The reads that the kernel has.
    started: Vec<bool>,
    /// Memory for the completions of a call.
    completed: Vec<cqueue::Entry>,
}

impl Reads {
    /// Creates room for `total` reads, in a ring as [`Counted::deferring`] says.
    pub(crate) fn new(total: usize) -> io::Result<Reads> {
        Ok(Reads {
            ring: Counted::deferring(u32::try_from(total).unwrap_or(u32::MAX >> 1))?,
            buffers: vec![[0; ROOM]; total],
            files: vec![-1; total],
            started: vec![false; total],
            completed: Vec::with_capacity(2 * total),
        })
    }

    /// Reads a descriptor, from the next [`submit`](Counted::submit) on, when there is something.
    /// Its last read must be over.
    pub(crate) fn start(&mut self, number: usize, fd: RawFd) -> io::Result<()> {
        self.files[number] = fd;
        if std::mem::replace(&mut self.started[number], true) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let buffer = self.buffers[number].as_mut_ptr();
        // Pipes and sockets have no position; this one means the descriptor's own.
        let read = opcode::Read::new(types::Fd(fd), buffer, ROOM as u32).offset(u64::MAX);
        self.push(&read.build().user_data(number as u64))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: a read writes to the buffer of its number, and each buffer has one read at a
        // time; buffers are neither moved nor freed before all reads are over (`drop`). A
        // cancellation refers to no memory of ours.
        unsafe { self.ring.push(entry) }
    }

    /// Returns the error of a read that is over although it should wait, if there is one.
    pub(crate) fn refusal(&mut self) -> Option<io::Error> {
        let mut refusal = None;
        for completion in self.ring.inner.completion() {
            self.started[completion.user_data() as usize] = false;
            refusal = Some(io::Error::from_raw_os_error(-completion.result().min(0)));
        }
        refusal
    }

    /// Submits the started reads, waits indefinitely for completed ones, passes the bytes of each
    /// to `read`, and starts it again, from the next call on.
    #[inline(always)]
    pub(crate) fn wait(&mut self, mut read: impl FnMut(usize, &[u8])) -> io::Result<()> {
        self.ring.enter(1)?;
        let mut completed = std::mem::take(&mut self.completed);
        completed.extend(self.ring.inner.completion());
        for completion in &completed {
            let number = completion.user_data() as usize;
            self.started[number] = false;
            match usize::try_from(completion.result()) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => read(number, &self.buffers[number][..count]),
                Err(_) => return Err(io::Error::from_raw_os_error(-completion.result())),
            }
            self.start(number, self.files[number])?;
        }
        completed.clear();
        self.completed = completed;
        Ok(())
    }

    /// Cancels all reads and waits until none is left.
    fn cancel_all(&mut self) -> io::Result<()> {
        for number in 0..self.started.len() {
            if self.started[number] {
                let cancel = opcode::AsyncCancel::new(number as u64).build();
                self.push(&cancel.user_data(CANCEL | number as u64))?;
            }
        }
        while self.started.contains(&true) {
            self.ring.enter(1)?;
            for completion in self.ring.inner.completion() {
                if completion.user_data() & CANCEL == 0 {
                    self.started[completion.user_data() as usize] = false;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        if self.cancel_all().is_err() {
            // The kernel may still write to it, some time after the ring was closed.
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}
