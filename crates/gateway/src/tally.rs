//! What has happened on a connection.

use std::cell::Cell;
use std::io;
use std::task::{Context, Poll};

/// The bytes that a connection reads, and the bytes that it writes, before other tasks run. The read or the write that
/// passes it is the last.
pub(crate) const SHARE: usize = 64 << 10;

/// What has happened on a transport.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Reads and writes that moved bytes.
    pub(crate) moved: Cell<u32>,
    /// Writes that moved bytes.
    pub(crate) written: Cell<u32>,
    /// Bytes have come that no request has been made of.
    pub(crate) unused: Cell<bool>,
    /// The last read found nothing.
    pub(crate) waits: Cell<bool>,
    /// Bytes were written and not flushed.
    pub(crate) unflushed: Cell<bool>,
    /// A write found no room, or what is encrypted already did not.
    pub(crate) stuck: Cell<bool>,
    /// The request under way is given up when the client ends its side: see [`Tally::watches`].
    pub(crate) ends_with_client: Cell<bool>,
    /// There is more to come of the body of the request under way.
    pub(crate) has_upload: Cell<bool>,
    /// How many bodies somebody has that have not come in full. One may outlive its request.
    pub(crate) uploads: Cell<u32>,
    /// The body of the request under way is read no further: it is too large, or came too slowly.
    pub(crate) given_up: Cell<bool>,
    /// Bytes that have come since the last request was known to be over.
    pub(crate) arrived: Cell<usize>,
    /// The bytes that the kernel had still to send when a write found no room, if the clock has asked for them.
    pub(crate) queued: Cell<Option<u64>>,
    /// The queue of the kernel is looked at when a write next finds no room.
    pub(crate) asks_queued: Cell<bool>,
    /// The bytes that were read, and those that were written, since the connection's task was last run.
    pub(crate) spent: Cell<(usize, usize)>,
    /// Somebody wants to know whether the other end is gone, which is looked at with the next flush.
    pub(crate) doubted: Cell<bool>,
}

impl Tally {
    pub(crate) fn count(&self) {
        self.moved.set(self.moved.get().wrapping_add(1));
    }

    /// Whether the transport is to be read while a request is answered, for the end of what the client sends. As long
    /// as a body is to come, hyper reads.
    pub(crate) fn watches(&self) -> bool {
        self.ends_with_client.get() && !self.has_upload.get()
    }

    /// The connection's task is run: it has its share again.
    pub(crate) fn begin_turn(&self) {
        self.spent.set((0, 0));
    }

    /// Whether the task has read its share. If so it is run again after the others.
    pub(crate) fn has_read_enough(&self, cx: &Context<'_>) -> bool {
        let is_enough = self.spent.get().0 >= SHARE;
        if is_enough {
            cx.waker().wake_by_ref();
        }
        is_enough
    }

    /// Whether the task has written its share. If so it is run again after the others.
    pub(crate) fn has_written_enough(&self, cx: &Context<'_>) -> bool {
        let is_enough = self.spent.get().1 >= SHARE;
        if is_enough {
            self.unflushed.set(true);
            cx.waker().wake_by_ref();
        }
        is_enough
    }

    pub(crate) fn read(&self, bytes: usize) {
        let (read, written) = self.spent.get();
        self.spent.set((read + bytes, written));
        self.arrived.set(self.arrived.get().saturating_add(bytes));
        self.count();
    }

    pub(crate) fn wrote(&self, outcome: &Poll<io::Result<usize>>) {
        match outcome {
            Poll::Pending => self.stuck.set(true),
            Poll::Ready(outcome) => {
                let (read, written) = self.spent.get();
                self.spent.set((read, written + outcome.as_ref().copied().unwrap_or(0)));
                self.stuck.set(false);
                self.written.set(self.written.get().wrapping_add(1));
                self.count();
            }
        }
        self.unflushed.set(true);
    }

    /// What was written is on its way to the kernel, or waits for room there.
    pub(crate) fn flushed(&self, outcome: &Poll<io::Result<()>>) {
        self.stuck.set(outcome.is_pending());
        if outcome.is_ready() {
            self.unflushed.set(false);
        }
    }
}
