//! Operations that are started, and waited for when they are given up.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::backend::uring::Uring;
use crate::backend::{Context, Operations};
use crate::error::{Error, Result};
use crate::key::Key;
use crate::operation::{self, Operation, Progress, Ticket};
use crate::stats::Calls;

/// How long a call waits for a cancelled operation before it cancels the operation once more.
const REAPED: Duration = Duration::from_millis(10);

/// How often the kernel is asked to take a queue before its ring is given up.
const HANDED_IN: usize = 8;

impl Operations for Uring {
    #[inline]
    fn start_nonblocking(
        &mut self,
        index: u32,
        fd: RawFd,
        operation: Operation,
        token: u64,
    ) -> Result<Ticket, (Error, Operation)> {
        let started = self.batch.start(index, fd, operation, token);
        started.map_err(|operation| (operation::always_waits("uring"), operation))
    }

    fn disengage(&mut self, cx: &mut Context<'_>, index: u32) {
        if self.batch.is_queued(&mut self.ring, index) {
            self.hand_in(cx);
        }
        self.batch.leave_file(index);
        self.batch.withdraw(index, |ticket, progress| self.in_flight.put(ticket, progress));
    }

    fn keep_file(&mut self, index: u32, fd: RawFd) {
        self.batch.want_file(index, fd);
    }

    fn start(
        &mut self,
        cx: &mut Context<'_>,
        key: Key,
        operation: Operation,
        token: u64,
    ) -> Result<Ticket, (Error, Operation)> {
        let fd = cx.table.slot(key.index()).fd();
        let here = if self.ring.is_elsewhere() { self.move_here(cx) } else { Ok(()) };
        let calls = &mut cx.stats.calls;
        match here.and_then(|()| self.in_flight.prepare(calls, &mut self.ring, &operation)) {
            Ok(()) => Ok(self.in_flight.start(key.index(), fd, operation, token)),
            // The error of an older kernel that does not support provided buffers.
            Err(error)
                if error.kind() == io::ErrorKind::Unsupported
                    || error.raw_os_error() == Some(libc::EINVAL) =>
            {
                Err((operation::unsupported("uring"), operation))
            }
            Err(error) => Err((Error::system("starting an operation", Some(fd), error), operation)),
        }
    }

    fn cancel(&mut self, cx: &mut Context<'_>, ticket: Ticket) -> io::Result<()> {
        if self.ring.is_elsewhere() {
            // This ends all of them.
            self.move_here(cx)?;
        }
        self.cancel_here(cx, ticket)
    }

    fn reap(&mut self, cx: &mut Context<'_>, ticket: Ticket) -> io::Result<Vec<Progress>> {
        if self.ring.is_elsewhere() {
            self.move_here(cx)?;
        }
        while self.is_under_way(ticket) {
            self.cancel_here(cx, ticket)?;
            if !self.is_under_way(ticket) {
                break;
            }
            self.fetch_once(cx)?;
        }
        Ok(self.in_flight.take_done_by(ticket))
    }

    fn withdraw(&mut self, cx: &mut Context<'_>, index: u32) {
        let is_queued = self.batch.is_queued(&mut self.ring, index)
            || (!self.in_flight.is_idle() && self.in_flight.is_queued(&mut self.ring, index));
        if is_queued {
            self.hand_in(cx);
        }
        self.batch.withdraw(index, |ticket, progress| self.in_flight.put(ticket, progress));
        self.batch.forget_file(&mut cx.stats.calls, &mut self.ring, index);
        if !self.in_flight.is_idle() {
            let linked = self.in_flight.linked(index);
            // The registration has no other owner to report the failure to, and its memory stays.
            let _ = self.in_flight.withdraw(&mut cx.stats.calls, &mut self.ring, index);
            if !linked.is_empty() {
                // The caller may close the descriptor next, and its number may then name another
                // file.
                let _ = self.await_end(cx, &linked);
            }
        }
    }

    fn perform(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.batch.has_unsubmitted() && self.in_flight.is_idle() {
            return Ok(());
        }
        self.begin(cx)?;
        self.ring.submit(&mut cx.stats.calls)?;
        self.fetch(cx, false);
        self.in_flight.take_done(&mut cx.events.progress);
        self.keep_found();
        Ok(())
    }

    fn flush_kernel(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.ring.is_elsewhere() {
            self.move_here(cx)?;
        }
        self.submit_removals(cx)?;
        if let Some(outer) = &self.outer {
            if self.in_flight.has_done() || self.batch.has_unsubmitted() {
                outer.announce()?;
            }
            self.catch_up_with_ring(cx)?;
            self.in_flight.submit_waiting(&mut cx.stats.calls, &mut self.ring)?;
        }
        self.ring.submit(&mut cx.stats.calls)?;
        if std::mem::take(&mut self.is_removing)
            && self.outer.is_none()
            && self.ring.has_completions()
        {
            // A removal may have been refused, and the next wait would be too late to learn that:
            // the ring would hold the file open.
            self.fetch_early(cx);
            self.ring.submit(&mut cx.stats.calls)?;
        }
        Ok(())
    }

    fn stay_on_thread(&mut self, cx: &mut Context<'_>) {
        if !self.ring.is_elsewhere() {
            self.stays = true;
            self.ring.stay(&mut cx.stats.calls);
        }
    }
}

impl Uring {
    /// Whether an operation is not over, as far as is known.
    fn is_under_way(&mut self, ticket: Ticket) -> bool {
        self.in_flight.is_under_way(ticket) || self.batch.is_under_way(ticket)
    }

    /// Asks the kernel to end an operation, on the thread to which the ring belongs. A nonblocking
    /// operation that the kernel has received is over soon without that.
    fn cancel_here(&mut self, cx: &mut Context<'_>, ticket: Ticket) -> io::Result<()> {
        if let Some(progress) = self.batch.cancel(ticket) {
            self.in_flight.put(ticket, progress);
        }
        self.in_flight.cancel(&mut cx.stats.calls, &mut self.ring, ticket)
    }

    /// Waits until cancelled operations have ended; their progress is left to the next wait.
    #[cold]
    pub(super) fn await_end(
        &mut self,
        cx: &mut Context<'_>,
        tickets: &[Ticket],
    ) -> std::io::Result<()> {
        while tickets.iter().any(|&ticket| self.in_flight.is_under_way(ticket)) {
            if self.ring.is_elsewhere() {
                // The remaining operations end with the ring.
                return self.move_here(cx);
            }
            self.fetch_once(cx)?;
        }
        Ok(())
    }

    /// Makes the kernel take the queue, in which a call that failed (`EAGAIN`, `EBUSY`, `ENOMEM`)
    /// has left an operation. The caller may close its descriptor next, and the number may then
    /// name another file. A ring that takes nothing is given up.
    #[cold]
    pub(super) fn hand_in(&mut self, cx: &mut Context<'_>) {
        for _ in 0..HANDED_IN {
            let submitted = self.ring.submit(&mut cx.stats.calls);
            if submitted.is_ok() && !self.ring.has_changes() {
                return;
            }
            self.fetch_early(cx);
        }
        self.ring.bar();
    }

    /// Waits for a completion for a while, and fetches all that are there.
    fn fetch_once(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.ring.wait_call(&mut cx.stats.calls, 1, Some(REAPED))?.issue() {
            Err(error) if !self.ring.has_completions() => match error.raw_os_error() {
                Some(libc::ETIME | libc::EBUSY | libc::EAGAIN | libc::ENOMEM | libc::EINTR) => {}
                _ => return Err(error),
            },
            _ => {}
        }
        self.fetch_early(cx);
        Ok(())
    }
}

impl Drop for Uring {
    /// The kernel must be done with the memory of operations before that is given back.
    fn drop(&mut self) {
        self.in_flight.abort_all(&mut Calls::default(), &mut self.ring, libc::ECANCELED);
    }
}
