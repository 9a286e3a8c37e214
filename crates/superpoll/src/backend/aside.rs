//! Descriptors that a back-end on `poll` or `select` sets aside because their error or hang-up
//! lasts.
//!
//! Neither call can be asked for data alone: `POLLERR` and `POLLHUP` come unasked, so a state that
//! lasts would end each wait at once, for a caller that can do nothing about it. In
//! [`Mode::Auto`], which promises no more than a report of each arrival, such a descriptor goes to
//! an epoll set with an edge. The back-end watches that set as it watches any descriptor, so the
//! next arrival ends a wait. The set is made when the first descriptor needs it.
//!
//! The slot of a descriptor that is set aside has an applied watch and no place. With these
//! back-ends, every other slot has a place and no applied watch.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tests::stage::{Stage, few_or_many};
    use crate::backend::{Lifecycle, Poll, Select};
    use crate::event::Readiness;
    use crate::interest::{Interest, Watch};
    use crate::key::Key;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    const AUTO: Watch = Watch::new(Interest::READABLE).mode(Mode::Auto);

    /// A back-end with a descriptor that is hung up, and one that is not.
    struct Bench<B> {
        backend: B,
        stage: Stage,
        keys: [Key; 2],
        _open: [OwnedFd; 3],
    }

    impl<B: Backend> Bench<B> {
        fn new(mut backend: B) -> Bench<B> {
            let mut stage = Stage::new(8);
            let (gone, peer) = UnixStream::pair().unwrap();
            peer.shutdown(std::net::Shutdown::Both).unwrap();
            let (idle, other) = UnixStream::pair().unwrap();
            let keys = [&gone, &idle].map(|socket| stage.add(socket.as_raw_fd(), AUTO));
            for key in keys {
                backend.sync(&mut stage.cx(), key.index()).unwrap();
            }
            let open = [gone.into(), idle.into(), other.into()];
            Bench { backend, stage, keys, _open: open }
        }

        /// The reports of a wait.
        fn wait(&mut self) -> Vec<(Key, Readiness)> {
            self.stage.events.empty();
            self.backend.finish_wait(&mut self.stage.cx(), Deadline::Now, None).unwrap();
            self.stage.delivered()
        }

        fn lengths(&self) -> (usize, usize) {
            let lengths = self.backend.status().lengths;
            (lengths.hot, lengths.cold)
        }

        /// Waits until it is set aside; returns how many reports there were.
        fn settle(&mut self) -> usize {
            let reports = (0..16).map(|_| self.wait().len()).sum();
            assert_eq!(self.lengths(), (1, 1));
            reports
        }
    }

    fn is_set_aside_and_comes_back<B: Backend>(backend: B) {
        let mut bench = Bench::new(backend);
        assert_eq!(bench.lengths(), (2, 0));
        // Three by its level, and one as an edge.
        assert_eq!(bench.settle(), 4);
        let [gone, idle] = bench.keys;
        let calls = bench.stage.stats.calls;
        assert_eq!((calls.epoll_ctl_add, calls.epoll_ctl()), (1, 1), "{calls}");
        // An interest of none, and another mode, are for the back-end itself.
        bench.stage.table.slot_mut(gone.index()).disarm();
        bench.backend.sync(&mut bench.stage.cx(), gone.index()).unwrap();
        assert_eq!((bench.wait(), bench.lengths()), (vec![], (2, 0)));
        bench.stage.table.slot_mut(gone.index()).set_watch(AUTO);
        bench.backend.sync(&mut bench.stage.cx(), gone.index()).unwrap();
        assert_eq!(bench.settle(), 2, "it is known to last");
        // Ended, whichever it is.
        for (key, left) in [(gone, (1, 0)), (idle, (0, 0))] {
            bench.stage.table.end(key.index(), false);
            bench.backend.sync(&mut bench.stage.cx(), key.index()).unwrap();
            assert_eq!((bench.wait(), bench.lengths()), (vec![], left));
        }
    }

    #[test]
    fn a_descriptor_is_set_aside_and_taken_back() {
        let _apart = few_or_many();
        is_set_aside_and_comes_back(Poll::new());
        is_set_aside_and_comes_back(Select::new());
    }

    fn wakes_before_and_after<B: Backend + Lifecycle>(backend: B) {
        let mut bench = Bench::new(backend);
        let (waker, writer) = std::io::pipe().unwrap();
        let attach = |bench: &mut Bench<B>| {
            Lifecycle::attach_waker(&mut bench.backend, &mut bench.stage.cx(), waker.as_fd())
        };
        attach(&mut bench).unwrap();
        bench.settle();
        let before = bench.stage.stats.calls.epoll_wait;
        assert_eq!(bench.wait(), []);
        assert_eq!(bench.stage.stats.calls.epoll_wait, before, "the set has nothing to report");
        for written in 1..=2 {
            std::io::Write::write_all(&mut &writer, b"x").unwrap();
            assert_eq!(bench.wait(), []);
            let calls = bench.stage.stats.calls.epoll_wait - before;
            assert_eq!(calls, written, "the set has reported the waker");
        }
        // A child has none of that. The poller makes it forget what the kernel knew.
        Lifecycle::after_fork(&mut bench.backend, &mut bench.stage.cx()).unwrap();
        attach(&mut bench).unwrap();
        for key in bench.keys {
            bench.stage.table.slot_mut(key.index()).set_applied(None);
            bench.backend.sync(&mut bench.stage.cx(), key.index()).unwrap();
        }
        assert_eq!(bench.lengths(), (2, 0));
        assert_eq!(bench.wait().len(), 1, "by its level");
        bench.settle();
    }

    #[test]
    fn a_set_watches_the_waker_and_is_left_to_the_parent() {
        let _apart = few_or_many();
        wakes_before_and_after(Poll::new());
        wakes_before_and_after(Select::new());
    }

    #[test]
    fn a_set_with_too_large_a_number_is_not_used_and_tried_again_later() {
        let mut stage = Stage::new(8);
        let (reader, _writer) = std::io::pipe().unwrap();
        let key = stage.add(reader.as_raw_fd(), AUTO);
        let mut aside = Aside::new(0);
        for _ in 0..2 {
            let slot = stage.table.slot_mut(key.index());
            let reports = (1..9).find(|_| slot.note_trouble());
            assert_eq!(reports, Some(3));
            assert!(!aside.put(&mut stage.cx(), key.index()));
            assert_eq!((aside.own(), aside.len()), (None, 0));
            assert!(stage.table.slot(key.index()).applied().is_none());
        }
    }

    #[test]
    fn memory_is_that_of_the_set() {
        let mut aside = Aside::new(RawFd::MAX);
        assert_eq!(aside.memory(), Memory::default());
        let mut stage = Stage::new(8);
        let (reader, _writer) = std::io::pipe().unwrap();
        let key = stage.add(reader.as_raw_fd(), AUTO);
        assert!(aside.put(&mut stage.cx(), key.index()));
        aside.report(&mut stage.cx()).unwrap();
        assert_eq!(aside.memory(), aside.set.as_ref().unwrap().memory());
        assert!(aside.memory().mirrors > 0);
    }
}
