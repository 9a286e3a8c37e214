//! Multishot polls in an io_uring; `uring/` has the rings of single experiments.

use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

pub(crate) mod changes;
pub(crate) mod echo;
pub(crate) mod listener;
pub(crate) mod reads;

/// Creates a ring whose completions are processed when its one thread asks for them (Linux 6.1), or
/// otherwise at least without interrupting the thread (5.19).
fn ring(requests: u32, completions: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_clamp().setup_cqsize(completions).setup_submit_all();
    let mut deferring = builder.clone();
    match deferring.setup_single_issuer().setup_defer_taskrun().build(requests) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            builder.setup_coop_taskrun().build(requests)
        }
        outcome => outcome,
    }
}

/// The most requests that one call submits.
const REQUESTS: u32 = 256;

/// A ring whose calls are counted.
pub(crate) struct Counted {
    inner: IoUring,
    /// System calls so far.
    pub calls: u64,
    /// How often the completion queue had no room.
    pub overflows: u64,
}

impl Counted {
    fn new(inner: IoUring) -> Counted {
        Counted { inner, calls: 0, overflows: 0 }
    }

    /// Creates a ring with room for `completions` (rounded up to a power of two) that were not
    /// fetched yet; the kernel keeps any more aside.
    ///
    /// The kernel defers the work of a completion until this thread asks for it, so that a writer
    /// pays for a mark and no interrupt; that needs Linux 6.1.
    fn deferring(completions: u32) -> io::Result<Counted> {
        let completions = completions.max(2).next_power_of_two();
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_clamp();
        Ok(Counted::new(builder.setup_cqsize(completions).build(REQUESTS.min(completions))?))
    }

    /// # Safety
    ///
    /// The memory that the entry refers to must stay valid until its request is over.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the caller's promise.
        while unsafe { self.inner.submission().push(entry) }.is_err() {
            self.enter(0)?;
        }
        Ok(())
    }

    /// Submits all entries.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.enter(0)
    }

    /// Submits all entries, and waits until there are `want` completions.
    fn enter(&mut self, want: usize) -> io::Result<()> {
        loop {
            self.calls += 1;
            self.overflows += u64::from(self.inner.submission().cq_overflow());
            match self.inner.submit_and_wait(want) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Marks the requests that cancel a poll; the polls' own numbers do not have this bit.
const CANCEL: u64 = 1 << 63;

/// Polls that stay until they are cancelled, or until the kernel ends one.
pub(crate) struct Polls {
    pub ring: Counted,
    /// The polls that the kernel has.
    armed: Vec<bool>,
}

/// The kernel's report about a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    /// The number that the poll was armed with.
    pub number: usize,
    /// The error, if it ended the poll.
    pub error: Option<i32>,
    /// Whether the poll stays.
    pub more: bool,
}

impl Polls {
    /// Creates room for `total` polls, and for `completions` that were not fetched yet, as
    /// [`Counted::deferring`] says.
    pub(crate) fn new(total: usize, completions: u32) -> io::Result<Polls> {
        Ok(Polls { ring: Counted::deferring(completions)?, armed: vec![false; total] })
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: a poll and its cancellation refer to no memory of ours.
        unsafe { self.ring.push(entry) }
    }

    /// Watches a descriptor for something to read, from the next [`submit`](Counted::submit) or
    /// [`wait`](Polls::wait) on.
    pub(crate) fn arm(&mut self, number: usize, fd: RawFd) -> io::Result<()> {
        self.armed[number] = true;
        let poll = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).multi(true);
        self.push(&poll.build().user_data(number as u64))
    }

    /// Submits the armed polls, waits indefinitely for an event, and adds all available events to
    /// `events`.
    #[inline(always)]
    pub(crate) fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        self.ring.enter(1)?;
        for completion in self.ring.inner.completion() {
            let event = Event {
                number: completion.user_data() as usize,
                error: (completion.result() < 0).then(|| -completion.result()),
                more: cqueue::more(completion.flags()),
            };
            self.armed[event.number] &= event.more;
            events.push(event);
        }
        Ok(())
    }

    /// Cancels all polls and waits until none is left.
    fn cancel_all(&mut self) -> io::Result<()> {
        let mut left = 0;
        for number in 0..self.armed.len() {
            if self.armed[number] {
                let cancel = opcode::PollRemove::new(number as u64).build();
                self.push(&cancel.user_data(CANCEL | number as u64))?;
                left += 1;
            }
        }
        while left > 0 {
            self.ring.enter(1)?;
            for completion in self.ring.inner.completion() {
                left -= usize::from(completion.user_data() & CANCEL != 0);
            }
        }
        Ok(())
    }
}

impl Drop for Polls {
    fn drop(&mut self) {
        // Closing the ring would cancel the polls, but some time later: until then writers would
        // pay for abandoned watchers, and the cost would count against the next subject. The kernel
        // cancels then any poll that it does not cancel here.
        let _ = self.cancel_all();
    }
}
