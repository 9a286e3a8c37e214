//! Reads that wait in an io_uring until there is something to read, each with memory of its own.

use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

/// The most requests that one call submits.
const REQUESTS: u32 = 256;

/// The memory of a read.
const ROOM: usize = 64;

/// Marks the requests that cancel a read; the reads' own numbers do not have this bit.
const CANCEL: u64 = 1 << 63;

/// Reads, one of each descriptor at a time.
pub(crate) struct Reads {
    // Before the memory that the kernel writes to.
    ring: IoUring,
    buffers: Vec<[u8; ROOM]>,
    files: Vec<RawFd>,
    /// The reads that the kernel has.
    started: Vec<bool>,
    /// Memory for the completions of a call.
    completed: Vec<cqueue::Entry>,
    calls: u64,
    overflows: u64,
}

impl Reads {
    /// Creates room for `total` reads. The kernel defers the work of a completion until this thread
    /// asks for it, so that a writer pays for a mark and no interrupt; that needs Linux 6.1.
    pub(crate) fn new(total: usize) -> io::Result<Reads> {
        let completions = u32::try_from(total).unwrap_or(u32::MAX >> 1).max(2).next_power_of_two();
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_clamp()
            .setup_cqsize(completions)
            .build(REQUESTS.min(completions))?;
        Ok(Reads {
            ring,
            buffers: vec![[0; ROOM]; total],
            files: vec![-1; total],
            started: vec![false; total],
            completed: Vec::with_capacity(2 * total),
            calls: 0,
            overflows: 0,
        })
    }

    /// Reads a descriptor, from the next [`submit`](Reads::submit) on, when there is something. Its
    /// last read must be over.
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
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.submit()?;
        }
        Ok(())
    }

    /// Submits the started reads.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.enter(0)
    }

    fn enter(&mut self, want: usize) -> io::Result<()> {
        loop {
            self.calls += 1;
            self.overflows += u64::from(self.ring.submission().cq_overflow());
            match self.ring.submit_and_wait(want) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the error of a read that is over although it should wait, if there is one.
    pub(crate) fn refusal(&mut self) -> Option<io::Error> {
        let mut refusal = None;
        for completion in self.ring.completion() {
            self.started[completion.user_data() as usize] = false;
            refusal = Some(io::Error::from_raw_os_error(-completion.result().min(0)));
        }
        refusal
    }

    /// Submits the started reads, waits indefinitely for completed ones, passes the bytes of each
    /// to `read`, and starts it again, from the next call on.
    #[inline(always)]
    pub(crate) fn wait(&mut self, mut read: impl FnMut(usize, &[u8])) -> io::Result<()> {
        self.enter(1)?;
        let mut completed = std::mem::take(&mut self.completed);
        completed.extend(self.ring.completion());
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

    /// Returns the number of system calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns how often the completion queue had no room.
    pub(crate) fn overflows(&self) -> u64 {
        self.overflows
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
            self.enter(1)?;
            for completion in self.ring.completion() {
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
