//! Submits to the ring which descriptors to watch: arming, removing, and the changes that the ring
//! has not taken.
//!
//! A ring that takes no more for now (the kernel has no memory, or completions must be fetched
//! first) ends no registration. Changes that it did not take are kept, and a wait does not block
//! before they are submitted.

use std::io;

use super::{ARMINGS, HALF_CLOSED, Uring, WAKER, name, stays};
use crate::backend::Context;
use crate::interest::{Interest, Mode};
use crate::table::Table;

/// The bits that a poll asks for. Where the bits of a wake-up are known, io_uring leaves `POLLPRI`
/// out when it compares them with the bits of the poll (`IO_ASYNC_POLL_COMMON` of
/// `io_uring/poll.c`). A poll for priority alone would therefore sleep through the arrival of
/// urgent data. A wake-up with `POLLPRI` has `POLLRDBAND` as well.
fn bits(interest: Interest, mode: Mode) -> u32 {
    let flags = if mode == Mode::Exclusive { libc::EPOLLEXCLUSIVE as u32 } else { 0 };
    let both = Interest::PRIORITY | Interest::READABLE;
    let band = if interest & both == Interest::PRIORITY { libc::POLLRDBAND as u32 } else { 0 };
    u32::from(interest.poll_bits() as u16) | band | flags
}

/// Whether this error of a call, or of a poll's completion, says nothing of the descriptor, and
/// passes.
pub(super) fn passes(error: i32) -> bool {
    matches!(
        error,
        libc::EINTR | libc::EAGAIN | libc::ENOMEM | libc::ENOBUFS | libc::EBUSY | libc::ECANCELED
    )
}

/// Leaves changes that a ring has not taken to the next wait, if the ring may take them then.
pub(super) fn unless_it_passes(submitted: io::Result<()>) -> io::Result<()> {
    match submitted {
        Err(error) if !error.raw_os_error().is_some_and(passes) => Err(error),
        _ => Ok(()),
    }
}

impl Uring {
    pub(super) fn next_arming(&mut self, table: &mut Table) -> u32 {
        self.armings += 1;
        if self.armings == ARMINGS {
            self.begin_round(table);
        }
        self.armings
    }

    /// Begins again with the numbers of armings: every poll that is armed now was armed before all
    /// later ones.
    #[cold]
    fn begin_round(&mut self, table: &mut Table) {
        self.armings = 1;
        self.doubted = self.doubted.map(|_| 0);
        for index in table.indices() {
            let slot = table.slot_mut(index);
            if slot.fd() >= 0 && slot.place().is_some() {
                slot.set_of_earlier_round(true);
            }
        }
    }

    pub(super) fn arm(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        (interest, mode): (Interest, Mode),
    ) -> io::Result<()> {
        let arming = self.next_arming(cx.table);
        let slot = cx.table.slot_mut(index);
        let (fd, again) = (slot.fd(), stays(mode) || slot.account_mut().events == HALF_CLOSED);
        let calls = &mut cx.stats.calls;
        self.ring.arm(calls, fd, bits(interest, mode), again, name(index, arming))?;
        let slot = cx.table.slot_mut(index);
        slot.set_of_earlier_round(false);
        slot.set_place(Some(arming as usize));
        self.armed += 1;
        Ok(())
    }

    pub(super) fn disarm(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        let Some(arming) = cx.table.slot(index).place() else { return false };
        let name = name(index, arming as u32);
        let submitted = match self.outer {
            // With a nested ring, completions stay unfetched until the outer loop is woken: a
            // refusal would not be seen in time.
            Some(_) => self.ring.cancel(&mut cx.stats.calls, name),
            None => self.ring.remove(&mut cx.stats.calls, name),
        };
        if submitted.is_err() {
            self.leaving.push(name);
        }
        self.is_removing = true;
        self.ended(cx, index);
        true
    }

    /// Cancels a poll whose removal was refused.
    pub(super) fn cancel_poll(&mut self, cx: &mut Context<'_>, name: u64) {
        if self.ring.cancel(&mut cx.stats.calls, name).is_err() {
            self.leaving.push(name);
        }
    }

    pub(super) fn ended(&mut self, cx: &mut Context<'_>, index: u32) {
        cx.table.slot_mut(index).set_place(None);
        self.armed -= 1;
    }

    /// Submits the changes that the ring has not taken so far, and arms the polls that must be
    /// armed again. Leaves changes that the ring does not take now, for a reason that passes.
    #[inline]
    pub(super) fn catch_up_with_ring(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.submit_to_ring(cx) {
            Ok(()) => Ok(()),
            Err(_) => self.make_room_and_submit(cx),
        }
    }

    /// The same with a ring whose queue is full, and that may take more once its completions are
    /// fetched.
    #[cold]
    fn make_room_and_submit(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.fetch_early(cx);
        let submitted = self.submit_to_ring(cx);
        if let Some(outer) = &self.outer {
            // There is something for a wait that the ring does not announce: completions that were
            // fetched, or changes that were left.
            outer.announce()?;
        }
        unless_it_passes(submitted)
    }

    #[inline]
    fn submit_to_ring(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.submit_removals(cx)?;
        if self.is_waker_due {
            self.arm_waker(cx)?;
        }
        self.arm_again(cx)
    }

    /// Submits the removals that the ring has not taken yet.
    pub(super) fn submit_removals(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while let Some(&name) = self.leaving.last() {
            self.ring.cancel(&mut cx.stats.calls, name)?;
            self.leaving.pop();
        }
        Ok(())
    }

    /// Whether the ring has not taken every change that a wait must submit before it may block.
    pub(super) fn is_behind(&self) -> bool {
        !self.again.is_empty()
            || !self.leaving.is_empty()
            || self.is_waker_due
            || self.batch.has_unsubmitted()
    }

    /// Arms the polls that ended or were not taken and are still wanted.
    fn arm_again(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while let Some(&index) = self.again.last() {
            let slot = cx.table.slot(index);
            let due = slot.is_live() && slot.place().is_none();
            let submitted = slot.applied().filter(|(interest, _)| due && !interest.is_empty());
            if let Some(watch) = submitted {
                self.arm(cx, index, watch)?;
            }
            self.again.pop();
        }
        Ok(())
    }

    pub(super) fn arm_waker(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(fd) = self.waker else { return Ok(()) };
        self.is_waker_due = true;
        let arming = self.next_arming(cx.table);
        // Each write to the counter is an arrival, so the counter never needs to be read.
        let events = libc::POLLIN as u32;
        self.ring.arm(&mut cx.stats.calls, fd, events, true, name(WAKER, arming))?;
        self.is_waker_due = false;
        Ok(())
    }
}
