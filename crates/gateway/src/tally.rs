//! What has happened on a connection.

use std::cell::Cell;
use std::io;
use std::task::Poll;

/// What has happened on a transport.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Reads and writes that moved bytes.
    pub(crate) moved: Cell<u32>,
    /// Bytes have come that no request has been made of.
    pub(crate) unused: Cell<bool>,
    /// The last read found nothing.
    pub(crate) waits: Cell<bool>,
    /// Bytes were written and not flushed.
    pub(crate) unflushed: Cell<bool>,
    /// A write found no room.
    pub(crate) stuck: Cell<bool>,
    /// Somebody wants to know whether the other end is gone, which is looked at with the next flush.
    pub(crate) doubted: Cell<bool>,
}

impl Tally {
    pub(crate) fn count(&self) {
        self.moved.set(self.moved.get().wrapping_add(1));
    }

    pub(crate) fn wrote(&self, outcome: &Poll<io::Result<usize>>) {
        match outcome {
            Poll::Pending => self.stuck.set(true),
            Poll::Ready(_) => {
                self.stuck.set(false);
                self.count();
            }
        }
        self.unflushed.set(true);
    }
}
