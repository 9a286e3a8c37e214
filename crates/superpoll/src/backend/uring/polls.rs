//! The completions of polls, and the events that are reported from them.
//!
//! A completion is noted when it is fetched. When all completions are there, those of one
//! descriptor are united, one `poll` asks for the state of descriptors whose readiness may be over,
//! and the rest is reported and armed again as its mode demands.

use std::io;

use super::arming::passes;
use super::{HALF_CLOSED, Uring, WAKER, stays};
use crate::backend::{Context, Deadline, Report};
use crate::event::Readiness;
use crate::interest::{Interest, Mode};
use crate::key::Key;
use crate::sys::descriptor;
use crate::sys::poll::{self, Slot};
use crate::sys::uring::{Completion, REMOVAL};

/// A descriptor that was found ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    key: Key,
    readiness: Readiness,
    /// Whether it is ready now, and for no more than that.
    sure: bool,
}

impl Uring {
    /// Notes the completion of a poll, or of a poll's removal.
    #[inline]
    pub(super) fn collect_poll(
        &mut self,
        cx: &mut Context<'_>,
        completion: Completion,
        index: u32,
        arming: u32,
    ) {
        if arming & REMOVAL != 0 {
            if completion.answer == -libc::EALREADY {
                self.cancel_poll(cx, completion.data & !u64::from(REMOVAL));
            }
            return;
        }
        if index == WAKER {
            if !completion.armed {
                // If the ring does not take the poll now, that is left to the next wait.
                let _ = self.arm_waker(cx);
            }
            return;
        }
        let slot = cx.table.slot(index);
        // The place of a vacant slot is something else.
        if slot.fd() < 0 || slot.place() != Some(arming as usize) {
            // The last completion of a poll that was removed is no event.
            cx.stats.stale += u64::from(completion.answer >= 0);
            return;
        }
        if !completion.armed {
            self.ended(cx, index);
        }
        if completion.answer < 0 {
            match -completion.answer {
                libc::EBADF => self.refuse(cx, index),
                error if passes(error) => self.again.push(index),
                // A file that never has the requested readiness, and has nothing to wait for.
                libc::EINVAL if !self.can_wait(cx, index) => {}
                error => {
                    cx.table.slot_mut(index).set_applied(None);
                    cx.unwatched(cx.table.key(index), error);
                }
            }
            return;
        }
        let readiness = Readiness::from_poll_bits(completion.answer as i16);
        // A poll that should have stayed found no room, or is always ready, which is reported once.
        if !completion.armed && stays(cx.table.slot(index).watch().mode) && self.can_wait(cx, index)
        {
            self.again.push(index);
        }
        let slot = cx.table.slot_mut(index);
        let interest = slot.interest();
        // An arrival reports itself, not the other direction.
        let whole = !interest.contains(Interest::READABLE | Interest::WRITABLE);
        // A caller that accepts either trigger finds out by reading, which costs no more than
        // asking.
        let trusting = slot.watch().mode == Mode::Auto;
        let is_of_this_round = !slot.is_of_earlier_round();
        let now = trusting || self.doubted.is_none_or(|last| arming > last && is_of_this_round);
        let last = std::mem::replace(&mut slot.account_mut().since, self.waits);
        self.repeated |= last == self.waits;
        // A socket that wakes its readers names priority, too, whatever has arrived.
        let named = readiness.contains(Readiness::PRIORITY);
        let key = cx.table.key(index);
        let sure = now && !named && (whole || !completion.armed);
        self.found.push(Found { key, readiness, sure });
    }

    fn refuse(&mut self, cx: &mut Context<'_>, index: u32) {
        cx.table.slot_mut(index).set_applied(None);
        cx.stats.invalid += 1;
        cx.invalid(cx.table.key(index));
    }

    /// Reports the events that were found. Returns how many of them are wanted.
    #[inline]
    pub(super) fn deliver(&mut self, cx: &mut Context<'_>) -> io::Result<usize> {
        if std::mem::take(&mut self.repeated) {
            self.found.retain(|found| cx.table.get(found.key).is_some());
            self.found.sort_by_key(|found| found.key);
            self.found.dedup_by(|later, first| {
                let same = later.key == first.key;
                if same {
                    first.readiness |= later.readiness;
                    first.sure &= later.sure;
                }
                same
            });
        }
        if self.found.iter().any(|found| !found.sure)
            && let Err(error) = self.look(cx)
        {
            self.keep_found();
            return Err(error);
        }
        let mut active = 0;
        for place in 0..self.found.len() {
            let Found { key, readiness, sure } = self.found[place];
            let index = key.index();
            let slot = cx.table.slot_mut(index);
            let goes_on = stays(slot.watch().mode);
            if !goes_on && readiness.masked(slot.interest()).is_empty() {
                // It was ready before this wait, or it is not the requested readiness. A poll that
                // stays reports that only once.
                if sure || !readiness.is_empty() {
                    slot.account_mut().events = HALF_CLOSED;
                }
                if slot.applied().is_some() {
                    self.again.push(index);
                }
                continue;
            }
            if !goes_on && slot.place().is_some() {
                self.disarm(cx, index);
            }
            let slot = cx.table.slot_mut(index);
            slot.account_mut().events = 0;
            match slot.applied() {
                Some((_, mode)) if stays(mode) => {}
                Some((_, Mode::OneShot)) => slot.set_applied(Some((Interest::NONE, Mode::OneShot))),
                _ => self.again.push(index),
            }
            let report = cx.report(key, readiness);
            active += usize::from(matches!(report, Report::Taken | Report::Later));
        }
        self.found.clear();
        Ok(active)
    }

    /// Leaves the events that were found to the next wait, which may find some of them again, or
    /// over.
    pub(super) fn keep_found(&mut self) {
        self.repeated = true;
        self.found.iter_mut().for_each(|found| found.sure = false);
    }

    /// Asks the kernel for the readiness of those descriptors whose readiness is not certain.
    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.probe.clear();
        for found in self.found.iter().filter(|found| !found.sure) {
            let slot = cx.table.slot(found.key.index());
            let events = slot.interest().poll_bits();
            self.probe.push(Slot { fd: slot.fd(), events, revents: 0 });
        }
        poll::wait(&mut cx.stats.calls, &mut self.probe, Deadline::Now.left())?;
        let mut probed = 0;
        for place in 0..self.found.len() {
            if self.found[place].sure {
                continue;
            }
            let found = self.probe[probed].revents;
            probed += 1;
            self.found[place].readiness = Readiness::from_poll_bits(found);
            if found & libc::POLLNVAL != 0 {
                self.found[place].readiness = Readiness::NONE;
                self.refuse(cx, self.found[place].key.index());
            }
        }
        Ok(())
    }

    /// Whether there is anything to wait for; not with files, directories and some devices.
    fn can_wait(&self, cx: &mut Context<'_>, index: u32) -> bool {
        descriptor::can_wait(&mut cx.stats.calls, cx.table.slot(index).fd())
    }
}
