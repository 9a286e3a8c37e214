//! Reads that the engine makes ahead of its tasks, from the report that bytes have arrived to the
//! end of the read;
//! [`read_ahead`](crate::read_ahead) says why.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::task::Waker;

use superpoll::backend::{Backend, Context, Deadline, Lengths, Lifecycle, Memory, Status, Synced};
use superpoll::batch::MIN_BATCH;
use superpoll::operation::{Gain, Operation, Progress};
use superpoll::{Error, Events, Key, Poller, Watch};

use super::Engine;
use crate::callbacks;
use crate::counters::count;
use crate::operations;
use crate::sources::Source;

/// How many reads are made for tasks with one wait. Their bytes, and the sockets in the kernel, are
/// still in the processor's caches when the tasks run.
const MAX_BATCH: usize = 64;

impl Engine {
    /// Makes the next wait read for the tasks that wait for bytes which have arrived.
    pub(super) fn queue_reads(&self) {
        let mut due = self.due.take();
        for _ in 0..MAX_BATCH {
            let next = self.read_ahead_queue.borrow_mut().pop_front();
            let Some(key) = next else { break };
            match self.source(key, |source| source.begin_read(self.remote.id)) {
                Some(Ok(wanted)) => {
                    let receive =
                        Operation::ReceiveAtMost { bytes: self.memory(), most: wanted.into() };
                    let mut poller = self.poller.borrow_mut();
                    let started = poller.start_nonblocking(key, receive, key.to_bits());
                    if started.is_err() {
                        // The registration has ended, and no task waits.
                        self.source(key, Source::end_read);
                    }
                }
                outcome => outcome.and_then(Result::err).unwrap_or_default().append_to(&mut due),
            }
        }
        // They are called when these reads have been made, by a wait that does not block.
        self.due.set(due);
    }

    /// Notes the results of reads and of operations, and wakes the tasks that wait for them. All
    /// results are noted before the first waker is called: a waker may give up another operation,
    /// or take a stream apart whose bytes have left the socket.
    #[inline]
    pub(super) fn handle_completed(&self, events: &mut Events) {
        let mut due = self.due.take();
        for progress in events.progress() {
            match operations::place(progress.token) {
                Some(place) => self.operations.handle_progress(place, progress, &mut due),
                None => self.finish_read(progress, &mut due),
            }
        }
        self.operations.pause_full(&self.poller);
        self.note_slot(due.len());
        due.drain(..).for_each(callbacks::wake);
        self.due.set(due);
    }

    #[inline]
    fn finish_read(&self, progress: Progress, due: &mut Vec<Waker>) {
        count(&self.counters.reads_ahead);
        let Progress { token, outcome, memory, more, .. } = progress;
        let read = outcome.map(Gain::count).map(|_| memory.unwrap_or_default());
        let wakers = self.source(Key::from_bits(token), |source| source.finish_read(read, more));
        wakers.unwrap_or_default().append_to(due);
    }

    /// Wakes the tasks whose bytes have arrived, if they are so few that a call each costs less.
    pub(super) fn cancel_small_batch(&self) {
        let few = 1..MIN_BATCH;
        while few.contains(&self.read_ahead_queue.borrow().len()) {
            let next = self.read_ahead_queue.borrow_mut().pop_front();
            let wakers = next.and_then(|key| self.source(key, Source::cancel_read_ahead));
            wakers.unwrap_or_default().wake();
        }
    }

    /// Ends the reads of a wait that has failed. Threads that drop a stream wait for these reads,
    /// and no other wait may follow.
    ///
    /// The kernel may know of a read, by the number of its descriptor, without having begun it, and
    /// would begin it with the next call. So the poller goes first, while the threads still keep
    /// those descriptors open. Whether a read has taken bytes is unknown, so its stream fails.
    #[cold]
    pub(super) fn end_reads_after(&self, error: &Error) {
        if !self.sources.borrow_mut().has_reads() {
            // Nothing is lost, and another wait may succeed.
            return;
        }
        let error = error.raw_os_error().unwrap_or(libc::EIO);
        let out_of_order = OutOfOrder { name: self.remote.backend, error };
        let Ok(next) = Poller::builder().custom(out_of_order).build() else { return };
        self.operations.end_all(&self.poller);
        drop(self.poller.replace(next));
        self.sources.borrow_mut().fail_reads(error);
    }
}

/// The back-end of an engine whose poller is gone: each wait fails with the error that ended the
/// poller.
struct OutOfOrder {
    name: &'static str,
    error: i32,
}

impl OutOfOrder {
    fn failure(&self) -> io::Error {
        io::Error::from_raw_os_error(self.error)
    }

    fn refusal(&self) -> Error {
        Error::System { doing: "waiting", fd: None, source: self.failure() }
    }
}

impl Backend for OutOfOrder {
    fn status(&self) -> Status<'_> {
        Status::new(self.name, Lengths::default())
    }

    fn memory(&self) -> Memory {
        Memory::default()
    }

    fn admit(&self, _fd: RawFd, _watch: Watch) -> superpoll::Result<()> {
        Err(self.refusal())
    }

    fn sync(&mut self, _cx: &mut Context<'_>, _index: u32) -> superpoll::Result<Synced> {
        Ok(Synced::Unchanged)
    }

    fn finish_wait(
        &mut self,
        _cx: &mut Context<'_>,
        _deadline: Deadline,
        _answer: Option<io::Result<usize>>,
    ) -> io::Result<()> {
        Err(self.failure())
    }

    fn lifecycle(&mut self) -> &mut dyn Lifecycle {
        self
    }
}

impl Lifecycle for OutOfOrder {
    fn attach_waker(
        &mut self,
        _cx: &mut Context<'_>,
        _fd: BorrowedFd<'_>,
    ) -> superpoll::Result<()> {
        Err(self.refusal())
    }

    fn after_fork(&mut self, _cx: &mut Context<'_>) -> superpoll::Result<()> {
        Ok(())
    }

    fn nest(&mut self, _cx: &mut Context<'_>) -> superpoll::Result<BorrowedFd<'_>> {
        Err(self.refusal())
    }
}
