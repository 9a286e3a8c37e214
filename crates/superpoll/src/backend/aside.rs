//! Descriptors that a back-end on `poll` or `select` sets aside because their error or hang-up
//! lasts.
//!
//! Neither call can be asked for data alone: `POLLERR` and `POLLHUP` come unasked, so a state that
//! lasts would end each wait at once, for a caller that can do nothing about it. In
//! [`Mode::Auto`], which promises no more than a report of each arrival, such a descriptor goes to
//! an epoll set with an edge. The back-end watches that set as it watches any descriptor, so the
//! next arrival ends a wait. The set is made when the first descriptor needs it.
//!
//! The slot of a descriptor that is set aside has an applied watch and no place; for the rest of
//! the descriptors of these back-ends it is the other way round.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use crate::backend::{Backend, Context, Deadline, Epoll, Memory, Synced};
use crate::error::Result;
use crate::interest::Mode;

/// The descriptors that are set aside, and the waker, which shares the back-end's own place.
#[derive(Debug)]
pub(super) struct Aside {
    set: Option<Epoll>,
    waker: Option<RawFd>,
    /// The first number that is too large for the descriptor of the set.
    limit: RawFd,
}

impl Aside {
    /// Nothing is set aside. `limit`: the first number that the back-end cannot watch.
    pub(super) fn new(limit: RawFd) -> Aside {
        Aside { set: None, waker: None, limit }
    }

    /// The descriptor that the back-end watches for this: the set's or, as long as there is no set,
    /// the waker's.
    pub(super) fn own(&self) -> Option<RawFd> {
        self.set.as_ref().map(|set| set.as_fd().as_raw_fd()).or(self.waker)
    }

    /// Descriptors that are set aside.
    pub(super) fn len(&self) -> usize {
        self.set.as_ref().map_or(0, Epoll::armed)
    }

    pub(super) fn memory(&self) -> Memory {
        self.set.as_ref().map(Backend::memory).unwrap_or_default()
    }

    /// Watches the waker's descriptor.
    pub(super) fn attach_waker(&mut self, cx: &mut Context<'_>, fd: RawFd) -> Result<()> {
        if let Some(set) = &mut self.set {
            set.watch_waker(cx, fd)?;
        }
        self.waker = Some(fd);
        Ok(())
    }

    /// Leaves the set and the waker to the parent of this process. The poller syncs each slot
    /// again.
    pub(super) fn after_fork(&mut self) {
        *self = Aside::new(self.limit);
    }

    /// Sets a descriptor aside. Returns false if the kernel refuses that: then the back-end keeps
    /// it, and a few reports later it is tried again.
    pub(super) fn put(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        let done = self.make(cx) && self.watch(cx, index);
        if !done {
            cx.table.slot_mut(index).forget_troubles();
        }
        done
    }

    fn make(&mut self, cx: &mut Context<'_>) -> bool {
        if self.set.is_some() {
            return true;
        }
        let Ok(mut set) = Epoll::new() else { return false };
        let is_watched = self.waker.is_none_or(|waker| set.watch_waker(cx, waker).is_ok());
        if set.as_fd().as_raw_fd() >= self.limit || !is_watched {
            return false;
        }
        self.set = Some(set);
        true
    }

    fn watch(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        let watch = (cx.table.slot(index).interest(), Mode::Auto);
        let set = self.set.as_mut();
        set.is_some_and(|set| matches!(set.apply(cx, index, watch), Ok(Synced::Applied)))
    }

    /// Makes the kernel agree with the slot of a descriptor that is set aside. Returns false if the
    /// descriptor is not, or no longer.
    pub(super) fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        let slot = cx.table.slot(index);
        if slot.applied().is_none() {
            return false;
        }
        let stays = slot.is_live()
            && !slot.inherits_old_key()
            && slot.watch().mode == Mode::Auto
            && !slot.interest().is_empty();
        if stays && self.watch(cx, index) {
            return true;
        }
        self.forget(cx, index);
        false
    }

    fn forget(&mut self, cx: &mut Context<'_>, index: u32) {
        if let Some(set) = &mut self.set {
            set.forget(cx, index);
        }
    }

    /// Reports the events of the descriptors that are set aside, after the back-end has found its
    /// [own](Aside::own) descriptor ready. Returns the table indices of those that are no longer
    /// set aside, which the back-end takes back.
    pub(super) fn report(&mut self, cx: &mut Context<'_>) -> io::Result<Vec<u32>> {
        let mut recovered = Vec::new();
        let Some(set) = &mut self.set else {
            cx.waker_fired();
            return Ok(recovered);
        };
        let answer = set.wait_call(cx, Deadline::Now, false).issue();
        cx.stats.cold.watched += set.armed() as u64;
        let active = set.report(cx, false, answer, |cx, index, found| {
            if !found.is_trouble() && cx.table.slot_mut(index).has_recovered() {
                recovered.push(index);
            }
        })?;
        cx.stats.cold.active += active as u64;
        for &index in &recovered {
            self.forget(cx, index);
        }
        Ok(recovered)
    }
}
