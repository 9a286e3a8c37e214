//! Reads that the next wait makes together, and their end when a registration ends first.

use std::io;
use std::os::fd::RawFd;

use super::Uring;
use crate::backend::{BatchReads, Context, ReadCall};
use crate::key::Key;

/// How often the kernel is asked to take a queue before its ring is given up.
const HANDED_IN: usize = 8;

impl BatchReads for Uring {
    #[inline]
    fn start(&mut self, key: Key, fd: RawFd, call: ReadCall, room: Vec<u8>) {
        self.batch.start(key, fd, call, room);
    }

    fn disengage(&mut self, cx: &mut Context<'_>, index: u32) {
        if self.batch.is_queued(&mut self.ring, index) {
            self.hand_in(cx);
        }
        self.batch.forget_file(&mut cx.stats.calls, &mut self.ring, index);
        self.batch.withdraw(index, |read| self.early.push(read));
    }

    fn keep_file(&mut self, index: u32, fd: RawFd) {
        self.batch.want_file(index, fd);
    }

    fn perform(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.batch.has_unsubmitted() && self.early.is_empty() {
            return Ok(());
        }
        self.begin(cx)?;
        self.ring.submit(&mut cx.stats.calls)?;
        self.fetch(cx, false);
        self.keep_found();
        Ok(())
    }
}

impl Uring {
    /// Makes the kernel take the queue, in which a call that failed (`EAGAIN`, `EBUSY`, `ENOMEM`)
    /// has left a read. The caller may close its descriptor next, and the number may then name
    /// another file. A ring that takes nothing is given up.
    #[cold]
    fn hand_in(&mut self, cx: &mut Context<'_>) {
        for _ in 0..HANDED_IN {
            let submitted = self.ring.submit(&mut cx.stats.calls);
            if submitted.is_ok() && !self.ring.has_changes() {
                return;
            }
            self.fetch_early(cx);
        }
        self.ring.bar();
    }
}
