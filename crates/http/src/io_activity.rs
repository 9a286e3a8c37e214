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
    /// A write found no room, or bytes that are encrypted already found none.
    pub stuck: Cell<bool>,
    /// The request under way is given up when the client ends its side.
    pub ends_with_client: Cell<bool>,
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
        if !self.is_resting.get() {
            self.moved.set(self.moved.get().wrapping_add(1));
        }
    }

    /// The connection's task is run: it has its share again.
    #[inline]
    pub fn begin_turn(&self) {
        self.spent.set((0, 0));
    }

    /// Whether the task has read its share. There may be more to read then.
    #[inline]
    pub fn has_read_share(&self) -> bool {
        self.spent.get().0 >= SHARE
    }

    /// Whether the task has read its share. If so it runs again after the other tasks.
    #[inline]
    pub fn has_read_enough(&self, cx: &Context<'_>) -> bool {
        let is_enough = self.has_read_share();
        if is_enough {
            cx.waker().wake_by_ref();
        }
        is_enough
    }

    /// Whether the task has written its share. If so it runs again after the other tasks.
    #[inline]
    pub fn has_written_enough(&self, cx: &Context<'_>) -> bool {
        let is_enough = self.spent.get().1 >= SHARE;
        if is_enough {
            cx.waker().wake_by_ref();
        }
        is_enough
    }

    /// Notes bytes that were read.
    #[inline]
    pub fn read(&self, bytes: usize) {
        let (read, written) = self.spent.get();
        self.spent.set((read + bytes, written));
        self.count();
        // An end is no activity.
        if bytes > 0 {
            self.note_active();
        }
    }

    /// Notes the outcome of a write. `unsent` returns how many bytes the kernel has still to send.
    #[inline]
    pub fn wrote(&self, outcome: &Poll<io::Result<usize>>, unsent: impl FnOnce() -> Option<u64>) {
        self.note_room(outcome.is_ready(), unsent);
        if let Poll::Ready(outcome) = outcome {
            let (read, written) = self.spent.get();
            self.spent.set((read, written + outcome.as_ref().copied().unwrap_or(0)));
            self.written.set(self.written.get().wrapping_add(1));
            self.count();
            self.note_active();
        }
    }

    /// Notes whether a write or a flush found room, and how many bytes the kernel has still to send
    /// if it found none and the clock has asked for them.
    #[inline]
    pub fn note_room(&self, has_room: bool, unsent: impl FnOnce() -> Option<u64>) {
        self.stuck.set(!has_room);
        if !has_room && self.asks_queued.take() {
            self.queued.set(unsent());
        }
    }
}
