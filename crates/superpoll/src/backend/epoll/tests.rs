//! The calls to the kernel, one by one.

use super::*;
use crate::backend::tests::stage::Stage;
use crate::stats::Calls;
use std::io::{PipeReader, PipeWriter, Read, Write};

const READABLE: Interest = Interest::READABLE;

struct Bench {
    epoll: Epoll,
    stage: Stage,
    seen: Calls,
}

impl Bench {
    fn new(limit: usize) -> Bench {
        Bench { epoll: Epoll::new().unwrap(), stage: Stage::new(limit), seen: Calls::default() }
    }

    /// A pipe, registered and applied.
    fn pipe(&mut self, mode: Mode) -> (PipeReader, PipeWriter, Key) {
        let (reader, writer) = std::io::pipe().unwrap();
        let key = self.stage.add(reader.as_raw_fd(), Watch::new(READABLE).mode(mode));
        self.sync(key);
        (reader, writer, key)
    }

    fn ready(&mut self, mode: Mode) -> (PipeReader, PipeWriter, Key) {
        let mut pipe = self.pipe(mode);
        pipe.1.write_all(b"x").unwrap();
        pipe
    }

    fn sync(&mut self, key: Key) -> Synced {
        self.epoll.sync(&mut self.stage.cx(), key.index()).unwrap()
    }

    fn watch(&mut self, key: Key, watch: Watch) {
        self.stage.table.slot_mut(key.index()).set_watch(watch);
    }

    fn fetch(&mut self, alone: bool) -> usize {
        let mut indices = Vec::new();
        let mut cx = self.stage.cx();
        let answer = self.epoll.wait_call(&mut cx, Deadline::Now, alone).issue();
        let active =
            self.epoll.report(&mut cx, alone, answer, |_, index, _| indices.push(index)).unwrap();
        assert_eq!(active, indices.len());
        active
    }

    /// Additions, modifications, removals and waits since it was asked last.
    fn calls(&mut self) -> (u64, u64, u64, u64) {
        let calls = self.stage.stats.calls.since(&self.seen);
        self.seen = self.stage.stats.calls;
        (calls.epoll_ctl_add, calls.epoll_ctl_mod, calls.epoll_ctl_del, calls.waits())
    }

    fn applied(&self, key: Key) -> Option<(Interest, Mode)> {
        self.stage.table.slot(key.index()).applied()
    }
}

#[test]
fn a_set_is_idle_until_a_descriptor_may_report() {
    let mut bench = Bench::new(8);
    assert!(bench.epoll.is_idle());
    let pipe = bench.pipe(Mode::Level);
    assert!(!bench.epoll.is_idle());
    assert_eq!(bench.epoll.status().lengths, Lengths { cold: 1, ..Lengths::default() });
    bench.epoll.park(&mut bench.stage.cx(), pipe.2.index()).unwrap();
    assert!(bench.epoll.is_idle());
    let (waker, _writer) = std::io::pipe().unwrap();
    bench.epoll.attach_waker(&mut bench.stage.cx(), waker.as_fd()).unwrap();
    assert!(!bench.epoll.is_idle());
    assert_eq!(bench.epoll.status().lengths, Lengths { cold: 0, ..Lengths::default() });
}

#[test]
fn an_exclusive_registration_is_removed_and_added_but_never_modified() {
    let mut bench = Bench::new(8);
    let (_reader, _writer, key) = bench.pipe(Mode::Exclusive);
    assert_eq!(bench.calls(), (1, 0, 0, 0));
    for mode in [Mode::Level, Mode::Exclusive] {
        bench.watch(key, Watch::new(READABLE).mode(mode));
        assert_eq!(bench.sync(key), Synced::Applied);
        assert_eq!((bench.calls(), bench.applied(key)), ((1, 0, 1, 0), Some((READABLE, mode))));
    }
    // Parked, it is removed and nothing else.
    assert_eq!(bench.epoll.park(&mut bench.stage.cx(), key.index()).unwrap(), Synced::Applied);
    assert_eq!((bench.calls(), bench.applied(key)), ((0, 0, 1, 0), None));
}

#[test]
fn a_parked_registration_is_applied_again_only_under_a_new_name() {
    let mut bench = Bench::new(8);
    let (reader, _writer, key) = bench.pipe(Mode::OneShot);
    let fired = Some((Interest::NONE, Mode::OneShot));
    bench.stage.table.slot_mut(key.index()).set_applied(fired);
    bench.calls();
    assert_eq!(bench.epoll.park(&mut bench.stage.cx(), key.index()).unwrap(), Synced::Unchanged);
    assert_eq!((bench.calls(), bench.applied(key)), ((0, 0, 0, 0), fired));

    bench.stage.table.end(key.index(), false);
    let again = bench.stage.add(reader.as_raw_fd(), READABLE);
    assert_eq!(again.index(), key.index(), "it takes over the kernel's registration");
    assert_eq!(bench.epoll.park(&mut bench.stage.cx(), key.index()).unwrap(), Synced::Applied);
    assert_eq!((bench.calls(), bench.applied(key)), ((0, 1, 0, 0), Some(PARKED)));
}

#[test]
fn a_number_that_the_kernel_has_forgotten_is_added() {
    let mut bench = Bench::new(8);
    let (reader, _writer, key) = bench.pipe(Mode::Level);
    let (other, _other_writer) = std::io::pipe().unwrap();
    replace(reader.as_fd(), other.into()).unwrap();
    bench.calls();
    assert_eq!(
        bench.epoll.apply(&mut bench.stage.cx(), key.index(), PARKED).unwrap(),
        Synced::Applied
    );
    assert_eq!((bench.calls(), bench.applied(key)), ((1, 1, 0, 0), Some(PARKED)));
}

#[test]
fn a_number_that_the_kernel_still_knows_is_removed_and_added() {
    let mut bench = Bench::new(8);
    let (_reader, _writer, key) = bench.pipe(Mode::Exclusive);
    bench.epoll.note(&mut bench.stage.cx(), key.index(), None);
    bench.watch(key, Watch::new(READABLE));
    bench.calls();
    assert_eq!(bench.sync(key), Synced::Applied);
    assert_eq!((bench.calls(), bench.epoll.armed()), ((2, 0, 1, 0), 1));
}

#[test]
fn any_other_refusal_is_reported_without_a_second_try() {
    let mut bench = Bench::new(8);
    // A number that no test here comes near.
    let key = bench.stage.add(1_000_000, READABLE);
    for applied in [None, Some((READABLE, Mode::Edge))] {
        bench.epoll.note(&mut bench.stage.cx(), key.index(), applied);
        let error = bench.epoll.sync(&mut bench.stage.cx(), key.index()).unwrap_err();
        assert!(matches!(error, Error::BadDescriptor { fd: 1_000_000 }), "{error}");
        let modified = u64::from(applied.is_some());
        assert_eq!(bench.calls(), (1 - modified, modified, 0, 0));
        assert_eq!((bench.applied(key), bench.epoll.armed()), (None, 0));
    }
}

#[test]
fn alone_it_asks_for_no_more_than_there_is_room_for() {
    let mut bench = Bench::new(1);
    let _pipes: Vec<_> = (0..3).map(|_| bench.ready(Mode::Level)).collect();
    assert_eq!(bench.fetch(true), 1);
    let (delivered, waiting) = bench.stage.keys();
    assert_eq!((delivered.len(), waiting.len()), (1, 0));
    assert!(!bench.stage.delivery.is_idle(), "the kernel was cut off");

    let mut bench = Bench::new(1);
    let _pipes: Vec<_> = (0..3).map(|_| bench.ready(Mode::Level)).collect();
    assert_eq!(bench.fetch(false), 3);
    let (delivered, waiting) = bench.stage.keys();
    assert_eq!((delivered.len(), waiting.len()), (1, 2));
}

#[test]
fn epoll_is_asked_again_only_if_unwanted_events_filled_the_buffer() {
    // The first in the kernel's list is not wanted any more.
    let narrowed = |limit: usize, wanted: usize| {
        let mut bench = Bench::new(limit);
        let first = bench.ready(Mode::Level);
        let others: Vec<_> = (0..wanted).map(|_| bench.ready(Mode::Level)).collect();
        bench.watch(first.2, Watch::new(Interest::NONE));
        assert_eq!(bench.sync(first.2), Synced::Unchanged);
        bench.calls();
        let active = bench.fetch(true);
        drop((first, others));
        (active, bench.calls().3, bench.stage.keys().1.len())
    };
    assert_eq!(narrowed(2, 0), (0, 1, 0), "there was room for more");
    // One and then the other, sorted before it is delivered.
    assert_eq!(narrowed(1, 1), (1, 2, 1));
    let mut bench = Bench::new(1);
    let _pipes: Vec<_> = (0..2).map(|_| bench.ready(Mode::Level)).collect();
    bench.calls();
    assert_eq!((bench.fetch(true), bench.calls().3), (1, 1), "it is full of wanted events");
}

#[test]
fn all_descriptors_and_the_waker_are_fetched_by_one_call() {
    let mut bench = Bench::new(8);
    let _pipe = bench.ready(Mode::Level);
    let (waker, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"x").unwrap();
    bench.epoll.attach_waker(&mut bench.stage.cx(), waker.as_fd()).unwrap();
    bench.calls();
    assert_eq!((bench.fetch(true), bench.calls().3), (1, 1));
}

#[test]
fn one_shots_are_counted_and_known_to_be_disarmed() {
    let mut bench = Bench::new(8);
    let pipes = [bench.ready(Mode::OneShot), bench.ready(Mode::OneShot)];
    assert_eq!((bench.epoll.armed(), bench.fetch(true), bench.epoll.armed()), (2, 2, 0));
    for (_, _, key) in &pipes {
        assert_eq!(bench.applied(*key), Some((Interest::NONE, Mode::OneShot)));
    }
}

#[test]
fn a_hang_up_of_a_parked_descriptor_is_left_to_the_array() {
    let mut bench = Bench::new(8);
    let (_reader, writer, key) = bench.pipe(Mode::Level);
    bench.epoll.park(&mut bench.stage.cx(), key.index()).unwrap();
    bench.stage.table.slot_mut(key.index()).set_place(Some(1));
    drop(writer);
    assert_eq!(bench.fetch(true), 0);
    assert_eq!((bench.stage.stats.unwanted, bench.stage.stats.stale), (1, 0));
}

#[test]
fn a_rebuilt_set_lacks_only_descriptors_without_a_registration() {
    let mut bench = Bench::new(8);
    let kept = [bench.pipe(Mode::Level), bench.pipe(Mode::Auto)];
    let parked = bench.pipe(Mode::Level);
    bench.epoll.park(&mut bench.stage.cx(), parked.2.index()).unwrap();
    bench.stage.table.slot_mut(parked.2.index()).account_mut().parked = true;
    let (waker, mut wake) = std::io::pipe().unwrap();
    bench.epoll.attach_waker(&mut bench.stage.cx(), waker.as_fd()).unwrap();
    let outer = bench.epoll.nest(&mut bench.stage.cx()).unwrap().try_clone_to_owned().unwrap();

    let (orphan, mut orphan_writer, key) = bench.pipe(Mode::Level);
    let duplicate = orphan.try_clone().unwrap();
    bench.stage.table.end(key.index(), true);
    assert_eq!(bench.sync(key), Synced::Unchanged);
    bench.stage.table.take_changed();
    drop(orphan);
    orphan_writer.write_all(b"x").unwrap();
    bench.calls();
    assert_eq!(bench.fetch(true), 0);
    assert_eq!((bench.stage.stats.stale, bench.stage.stats.rebuilds), (1, 1));
    // The set in the outer one, the waker, and two of three: the parked one is added when that is
    // due.
    assert_eq!(bench.calls(), (4, 0, 1, 1));
    assert_eq!(bench.epoll.armed(), 2);
    assert!(kept.iter().all(|pipe| bench.applied(pipe.2).is_some()));
    assert_eq!(bench.applied(parked.2), None);
    assert!(!bench.stage.table.slot(parked.2.index()).account.parked);
    assert_eq!(bench.stage.table.take_changed(), [parked.2.index()]);

    let mut calls = Calls::default();
    let mut is_readable = || {
        let mut slot = [poll_slot(&outer)];
        crate::sys::poll::wait(&mut calls, &mut slot, Some(std::time::Duration::ZERO)).unwrap() == 1
    };
    assert!(!is_readable(), "the orphan is gone");
    wake.write_all(b"x").unwrap();
    assert!(is_readable(), "the waker is not");
    assert_eq!(bench.fetch(true), 0);
    assert!(!is_readable());
    drop(duplicate);
}

fn poll_slot(fd: &OwnedFd) -> crate::sys::poll::Slot {
    crate::sys::poll::Slot { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

#[test]
fn an_ended_registration_is_not_added_to_a_new_set() {
    let mut bench = Bench::new(8);
    let (_reader, _writer, key) = bench.pipe(Mode::Level);
    bench.stage.table.end(key.index(), false);
    bench.calls();
    bench.epoll.rebuild(&mut bench.stage.cx()).unwrap();
    assert_eq!((bench.calls(), bench.epoll.armed(), bench.applied(key)), ((0, 0, 0, 0), 0, None));
}

#[test]
fn only_a_narrower_level_without_writability_may_wait() {
    let all = Interest::READABLE | Interest::WRITABLE;
    let cases = [
        ((READABLE, Mode::Level), Interest::NONE, Mode::Level, true),
        ((READABLE | Interest::PRIORITY, Mode::Level), READABLE, Mode::Level, true),
        ((all, Mode::Level), Interest::WRITABLE, Mode::Level, true),
        ((all, Mode::Level), READABLE, Mode::Level, false),
        ((READABLE, Mode::Level), all, Mode::Level, false),
        ((READABLE, Mode::Level), Interest::PRIORITY, Mode::Level, false),
        ((READABLE, Mode::Edge), Interest::NONE, Mode::Level, false),
        ((READABLE, Mode::Level), Interest::NONE, Mode::Edge, false),
        ((READABLE, Mode::Edge), Interest::NONE, Mode::Edge, false),
    ];
    for (applied, interest, mode, may) in cases {
        let watch = Watch::new(interest).mode(mode);
        assert_eq!(Epoll::may_wait(applied, watch), may, "{applied:?} to {watch:?}");
    }
}

#[test]
fn only_effective_changes_reach_the_kernel() {
    let (level, edge) = (Watch::new, |interest| Watch::new(interest).mode(Mode::Edge));
    let (saved, modified) = ((0, 0, 0, 0), (0, 1, 0, 0));
    let readable = |mode| Some((READABLE, mode));
    let cases = [
        // Applied, wanted, the calls and the answer.
        (None, level(Interest::NONE), saved, Synced::Unchanged),
        (None, level(READABLE), (1, 0, 0, 0), Synced::Applied),
        (readable(Mode::Level), level(READABLE), saved, Synced::Unchanged),
        (readable(Mode::Edge), edge(READABLE), saved, Synced::Unchanged),
        (readable(Mode::Level), edge(READABLE), modified, Synced::Applied),
        (readable(Mode::Level), level(Interest::WRITABLE), modified, Synced::Applied),
        (readable(Mode::Level), level(Interest::NONE), saved, Synced::Unchanged),
        (readable(Mode::Edge), edge(Interest::NONE), modified, Synced::Applied),
        (Some(PARKED), level(Interest::NONE), saved, Synced::Unchanged),
        (Some(PARKED), level(READABLE), modified, Synced::Applied),
    ];
    for (applied, watch, calls, synced) in cases {
        let mut bench = Bench::new(8);
        let (reader, _writer) = std::io::pipe().unwrap();
        let key = bench.stage.add(reader.as_raw_fd(), watch);
        if let Some(applied) = applied {
            bench.epoll.apply(&mut bench.stage.cx(), key.index(), applied).unwrap();
        }
        bench.calls();
        assert_eq!(bench.sync(key), synced, "{applied:?} to {watch:?}");
        assert_eq!(bench.calls(), calls, "{applied:?} to {watch:?}");
    }
}

#[test]
fn a_forced_change_and_a_new_name_are_applied_at_once() {
    let mut bench = Bench::new(8);
    let (reader, _writer, key) = bench.pipe(Mode::Level);
    bench.watch(key, Watch::new(Interest::NONE));
    bench.calls();
    assert_eq!(bench.sync(key), Synced::Unchanged);
    bench.stage.table.slot_mut(key.index()).set_forced(true);
    assert_eq!(bench.sync(key), Synced::Applied);
    assert_eq!((bench.calls(), bench.applied(key)), ((0, 1, 0, 0), Some(PARKED)));
    // The same interest and mode, but another key.
    bench.watch(key, Watch::new(READABLE));
    bench.sync(key);
    bench.stage.table.end(key.index(), false);
    let again = bench.stage.add(reader.as_raw_fd(), READABLE);
    bench.calls();
    assert_eq!(bench.sync(again), Synced::Applied);
    assert_eq!(bench.calls(), (0, 1, 0, 0));
}

#[test]
fn a_removal_is_applied_unless_a_close_has_made_it_needless() {
    for (closed, known, calls, synced) in [
        (false, true, (0, 0, 1, 0), Synced::Applied),
        (true, true, (0, 0, 0, 0), Synced::Unchanged),
        (false, false, (0, 0, 0, 0), Synced::Unchanged),
    ] {
        let mut bench = Bench::new(8);
        let (_reader, _writer, key) = bench.pipe(Mode::Level);
        if !known {
            bench.epoll.forget(&mut bench.stage.cx(), key.index());
        }
        bench.stage.table.end(key.index(), closed);
        bench.calls();
        assert_eq!(bench.sync(key), synced);
        assert_eq!((bench.calls(), bench.applied(key), bench.epoll.armed()), (calls, None, 0));
    }
}

#[test]
fn a_wait_counts_watched_and_active_descriptors() {
    let mut bench = Bench::new(8);
    let mut ready = bench.ready(Mode::Level);
    let _idle = bench.pipe(Mode::Level);
    for (watched, active) in [(2, 1), (4, 2)] {
        bench.epoll.finish_wait(&mut bench.stage.cx(), Deadline::Now, None).unwrap();
        let cold = bench.stage.stats.cold;
        assert_eq!((cold.watched, cold.active), (watched, active));
    }
    ready.0.read_exact(&mut [0]).unwrap();
    bench.epoll.finish_wait(&mut bench.stage.cx(), Deadline::Now, None).unwrap();
    let cold = bench.stage.stats.cold;
    assert_eq!((cold.watched, cold.active), (6, 2));
}

#[test]
fn a_child_gets_sets_of_its_own_under_the_same_numbers() {
    let mut bench = Bench::new(8);
    let (_reader, _writer, key) = bench.ready(Mode::Level);
    let outer = bench.epoll.nest(&mut bench.stage.cx()).unwrap().as_raw_fd();
    let number = bench.epoll.as_fd().as_raw_fd();
    let theirs = bench.epoll.as_fd().try_clone_to_owned().unwrap();
    let before = bench.stage.stats.calls;
    bench.epoll.after_fork(&mut bench.stage.cx()).unwrap();
    let calls = bench.stage.stats.calls.since(&before);
    // Two sets, and one in the other again.
    assert_eq!((calls.epoll_create, calls.epoll_ctl_add, calls.total()), (2, 1, 3), "{calls}");
    assert_eq!((bench.epoll.armed(), bench.epoll.waker), (0, None));
    assert_eq!(bench.epoll.as_fd().as_raw_fd(), number);
    assert_eq!(bench.epoll.nest(&mut bench.stage.cx()).unwrap().as_raw_fd(), outer);
    assert_eq!(bench.fetch(true), 0, "nothing was added to the new set");
    // Everything that was added to the old one is still there.
    let mut buffer = Vec::new();
    let found = epoll::wait(
        &mut Calls::default(),
        theirs.as_fd(),
        &mut buffer,
        8,
        Some(std::time::Duration::ZERO),
    );
    assert_eq!(found.unwrap(), 1);
    bench.stage.table.slot_mut(key.index()).set_applied(None);
    assert_eq!(bench.sync(key), Synced::Applied);
    assert_eq!(bench.fetch(true), 1);
}

#[test]
fn a_set_is_nested_once() {
    let mut bench = Bench::new(8);
    bench.epoll.nest(&mut bench.stage.cx()).unwrap();
    bench.epoll.nest(&mut bench.stage.cx()).unwrap();
    assert_eq!(bench.calls(), (1, 0, 0, 0));
    assert_eq!(bench.stage.stats.calls.epoll_create, 1);
}

#[test]
fn memory_is_the_kernels_buffer() {
    let mut bench = Bench::new(8);
    assert_eq!(bench.epoll.memory(), Memory::default());
    bench.epoll.buffer.reserve_exact(10);
    assert_eq!(bench.epoll.memory(), Memory { own: 0, mirrors: 10 * size_of::<Raw>() });
}
