//! The events on a connection.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::peer::{Peer, Permit};
use crate::telemetry::counters::EngineCounters;

/// The bytes that a connection reads, and the bytes that it writes, before other tasks run. The
/// read or the write that passes it is the last.
pub const SHARE: usize = 64 << 10;

/// The events on a transport.
#[derive(Debug, Default)]
pub struct IoActivity {
    /// Reads and writes that moved bytes.
    pub moved: Cell<u32>,
    /// Writes that moved bytes.
    pub written: Cell<u32>,
    /// Bytes have arrived that belong to no request yet.
    pub unused: Cell<bool>,
    /// These are the beginning of a record, of which it is not known yet whether it has bytes of a
    /// request.
    pub is_part: Cell<bool>,
    /// An encrypted connection has something under way without which it cannot be parked.
    pub is_busy: Cell<bool>,
    /// The last read found nothing.
    pub waits: Cell<bool>,
    /// Bytes were written and not flushed.
    pub unflushed: Cell<bool>,
    /// A write found no room, or bytes that are encrypted already found none.
    pub stuck: Cell<bool>,
    /// The request under way is given up when the client ends its side: see
    /// [`IoActivity::watches`].
    pub ends_with_client: Cell<bool>,
    /// Some of the body of the request under way has not arrived yet.
    pub has_upload: Cell<bool>,
    /// The bytes that the kernel had still to send when a write found no room, if the clock has
    /// asked for them.
    pub queued: Cell<Option<u64>>,
    /// The next write that finds no room looks at the queue of the kernel.
    pub asks_queued: Cell<bool>,
    /// The bytes that were read, and those that were written, since the connection's task was last
    /// run.
    pub(crate) spent: Cell<(usize, usize)>,
    /// A task asks whether the peer is gone; the next flush checks it.
    pub doubted: Cell<bool>,
    /// The most bytes that the socket is to hold and not have sent; the next flush tells the
    /// kernel.
    pub unsent_limit: Cell<Option<u32>>,
    /// The bytes that move now only prepare the connection for its rest, which is not activity.
    pub is_resting: Cell<bool>,
    /// The connection, and the counters of its engine, which count it as active.
    counted: Option<(Rc<Peer>, Arc<EngineCounters>)>,
}

impl IoActivity {
    /// Creates the events on the transport of this peer, which is counted as active when bytes
    /// move.
    #[must_use]
    pub fn new(peer: Rc<Peer>, counters: Arc<EngineCounters>) -> IoActivity {
        // What an operator does is no work for clients.
        let is_counted = !matches!(peer.permit, Permit::Admin(_));
        let counted = is_counted.then_some((peer, counters));
        IoActivity { counted, ..IoActivity::default() }
    }

    /// Notes that bytes have moved on the connection.
    #[inline]
    pub fn note_active(&self) {
        if let Some((peer, counters)) = &self.counted
            && !self.is_resting.get()
        {
            counters.ratio.note(&peer.active_in);
        }
    }

    pub(crate) fn count(&self) {
        self.moved.set(self.moved.get().wrapping_add(1));
    }

    /// Whether the transport is read while a request is answered, in search of the end of the
    /// client's side. As long as a body is expected, it is read for that.
    #[inline]
    pub fn watches(&self) -> bool {
        self.ends_with_client.get() && !self.has_upload.get()
    }

    /// The connection's task is run: it has its share again.
    #[inline]
    pub fn begin_turn(&self) {
        self.spent.set((0, 0));
    }

    /// Whether the task has read its share. If so it runs again after the other tasks.
    pub fn has_read_enough(&self, cx: &Context<'_>) -> bool {
        let is_enough = self.spent.get().0 >= SHARE;
        if is_enough {
            cx.waker().wake_by_ref();
        }
        is_enough
    }

    /// Whether the task has written its share. If so it runs again after the other tasks.
    pub fn has_written_enough(&self, cx: &Context<'_>) -> bool {
        let is_enough = self.spent.get().1 >= SHARE;
        if is_enough {
            self.unflushed.set(true);
            cx.waker().wake_by_ref();
        }
        is_enough
    }

    /// Notes bytes that were read.
    pub fn read(&self, bytes: usize) {
        let (read, written) = self.spent.get();
        self.spent.set((read + bytes, written));
        self.count();
        // An end is no activity.
        if bytes > 0 {
            self.note_active();
        }
    }

    /// Notes the outcome of a write.
    pub fn wrote(&self, outcome: &Poll<io::Result<usize>>) {
        match outcome {
            Poll::Pending => self.stuck.set(true),
            Poll::Ready(outcome) => {
                let (read, written) = self.spent.get();
                self.spent.set((read, written + outcome.as_ref().copied().unwrap_or(0)));
                self.stuck.set(false);
                self.written.set(self.written.get().wrapping_add(1));
                self.count();
                self.note_active();
            }
        }
        self.unflushed.set(true);
    }

    /// Notes that the written bytes are on their way to the kernel, or wait for room there.
    pub fn flushed(&self, outcome: &Poll<io::Result<()>>) {
        self.stuck.set(outcome.is_pending());
        if outcome.is_ready() {
            self.unflushed.set(false);
        }
    }
}
