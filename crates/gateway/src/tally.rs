//! What has happened on a connection.

use std::cell::Cell;
use std::io;
use std::task::Poll;

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

    pub(crate) fn wrote(&self, outcome: &Poll<io::Result<usize>>) {
        match outcome {
            Poll::Pending => self.stuck.set(true),
            Poll::Ready(_) => {
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
