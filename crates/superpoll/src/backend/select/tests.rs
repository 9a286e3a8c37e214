//! The sets, the refusals, and which descriptors are looked at more closely.

use super::*;
use crate::backend::tests::stage::{Stage, few_or_many};
use crate::interest::Mode;
use crate::key::Key;
use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::AsFd;
use std::sync::MutexGuard;
use std::time::Duration;

const READABLE: Interest = Interest::READABLE;

struct Bench {
    select: Select,
    stage: Stage,
    pipes: Vec<(PipeReader, PipeWriter)>,
    keys: Vec<Key>,
    _apart: MutexGuard<'static, ()>,
}

impl Bench {
    /// This many registered pipes.
    fn new(count: usize, watch: Watch) -> Bench {
        let apart = few_or_many();
        let (mut select, mut stage) = (Select::new(), Stage::new(8));
        let pipes: Vec<_> = (0..count).map(|_| std::io::pipe().unwrap()).collect();
        let keys: Vec<_> =
            pipes.iter().map(|(reader, _)| stage.add(reader.as_raw_fd(), watch)).collect();
        for key in &keys {
            assert_eq!(select.sync(&mut stage.cx(), key.index()).unwrap(), Synced::Unchanged);
        }
        Bench { select, stage, pipes, keys, _apart: apart }
    }

    fn wait(&mut self, deadline: Deadline) {
        self.select.finish_wait(&mut self.stage.cx(), deadline, None).unwrap();
    }

    fn found(&self) -> Vec<RawFd> {
        self.select.found.iter().map(|slot| slot.fd).collect()
    }
}

#[test]
fn the_end_is_one_more_than_the_highest_watched() {
    let mut select = Select::new();
    let steps = [
        (5, READABLE, 6),
        (20, Interest::WRITABLE, 21),
        (10, Interest::PRIORITY, 21),
        (12, READABLE, 21),
        (12, Interest::NONE, 21),
        (20, Interest::NONE, 11),
        (10, Interest::NONE, 6),
        (3, Interest::WRITABLE, 6),
        (5, Interest::NONE, 4),
        (3, Interest::NONE, 0),
        (3, Interest::NONE, 0),
    ];
    for (fd, interest, end) in steps {
        select.put(fd, interest);
        assert_eq!(select.end, end, "after {fd} {interest:?}");
    }
}

#[test]
fn interests_that_select_cannot_express_are_refused() {
    let select = Select::new();
    let priority = Interest::PRIORITY;
    for interest in [Interest::NONE, READABLE, Interest::WRITABLE, READABLE | priority] {
        assert!(select.admit(1023, Watch::new(interest)).is_ok(), "{interest:?}");
    }
    let closed = Interest::READ_CLOSED;
    assert!(select.admit(0, Watch::new(READABLE | closed | priority)).is_ok());
    for interest in [priority, closed, Interest::WRITABLE | closed] {
        let error = select.admit(0, Watch::new(interest)).unwrap_err();
        assert!(matches!(error, Error::Unsupported { backend: "select", .. }), "{error}");
        assert!(error.to_string().contains("without readable interest"), "{error}");
    }
    for fd in [1024, 5000] {
        let error = select.admit(fd, Watch::new(READABLE)).unwrap_err();
        assert!(matches!(error, Error::DescriptorTooLarge { limit: 1024, .. }), "{error}");
    }
    assert!(select.admit(0, Watch::new(READABLE).mode(Mode::Edge)).is_err());
}

#[test]
fn only_descriptors_that_select_found_are_checked_again() {
    let mut bench = Bench::new(3, Watch::new(READABLE));
    let (waker, mut writer) = std::io::pipe().unwrap();
    bench.select.attach_waker(&mut bench.stage.cx(), waker.as_fd()).unwrap();
    writer.write_all(b"x").unwrap();
    bench.wait(Deadline::Never);
    assert_eq!(bench.found(), []);
    bench.pipes[1].1.write_all(b"x").unwrap();
    bench.wait(Deadline::Never);
    assert_eq!(bench.found(), [bench.pipes[1].0.as_raw_fd()]);
    assert_eq!(bench.stage.delivered(), [(bench.keys[1], Readiness::READABLE)]);
}

#[test]
fn a_wait_looks_and_then_blocks_once() {
    let mut bench = Bench::new(2, Watch::new(READABLE));
    bench.wait(Deadline::after(Some(Duration::from_millis(1))));
    assert_eq!(bench.stage.stats.calls.select, 2);
    assert_eq!(bench.stage.stats.slots_scanned, 4);
    bench.wait(Deadline::Now);
    bench.pipes[0].1.write_all(b"x").unwrap();
    bench.wait(Deadline::Never);
    let calls = bench.stage.stats.calls;
    assert_eq!((calls.select, calls.poll, calls.total()), (4, 1, 5), "{calls}");
}

#[test]
fn a_wait_counts_watched_and_active_descriptors() {
    let mut bench = Bench::new(3, Watch::new(READABLE));
    bench.pipes[0].1.write_all(b"x").unwrap();
    bench.pipes[2].1.write_all(b"x").unwrap();
    for (watched, active) in [(3, 2), (6, 4)] {
        bench.wait(Deadline::Now);
        let hot = bench.stage.stats.hot;
        assert_eq!((hot.watched, hot.active), (watched, active));
    }
}

#[test]
fn a_descriptor_that_has_recovered_comes_back_to_the_sets() {
    let mut bench = Bench::new(1, Watch::new(READABLE).mode(Mode::Auto));
    let (index, number) = (bench.keys[0].index(), bench.pipes[0].0.as_raw_fd());
    while !bench.stage.table.slot_mut(index).note_trouble() {}
    bench.select.troubled.push(index);
    bench.select.look_aside(&mut bench.stage.cx(), false).unwrap();
    for arrival in 1..=3 {
        assert!(!bench.select.is_watched(number));
        assert_eq!(bench.select.status().lengths, Lengths { hot: 0, cold: 1, away: 0 });
        bench.pipes[0].1.write_all(b"x").unwrap();
        bench.wait(Deadline::Now);
        assert_eq!(bench.stage.events.len(), arrival);
    }
    assert!(bench.select.is_watched(number));
    assert_eq!(bench.select.status().lengths, Lengths { hot: 1, cold: 0, away: 0 });
    bench.wait(Deadline::Now);
    assert_eq!(bench.stage.delivered().last(), Some(&(bench.keys[0], Readiness::READABLE)));
}

#[test]
fn a_one_shot_leaves_the_sets_with_its_event() {
    let mut bench = Bench::new(2, Watch::new(READABLE).mode(Mode::OneShot));
    bench.pipes[1].1.write_all(b"x").unwrap();
    bench.wait(Deadline::Now);
    assert_eq!(bench.stage.keys().0, [bench.keys[1]]);
    assert!(!bench.select.is_watched(bench.pipes[1].0.as_raw_fd()));
    assert!(bench.select.is_watched(bench.pipes[0].0.as_raw_fd()));
    assert_eq!(bench.select.status().lengths.hot, 2, "it is still registered");
}

#[test]
fn a_closed_descriptor_is_found_invalid_and_leaves_the_sets() {
    let mut bench = Bench::new(2, Watch::new(READABLE));
    bench.pipes[1].1.write_all(b"x").unwrap();
    // A number that other tests do not reuse while this one looks at it.
    let number = 1020;
    let reader = bench.pipes[0].0.as_raw_fd();
    let key = bench.stage.add(number, READABLE);
    bench.select.sync(&mut bench.stage.cx(), key.index()).unwrap();
    bench.wait(Deadline::Now);
    assert_eq!(
        (bench.stage.delivery.invalid.as_slice(), bench.stage.stats.invalid),
        (&[key][..], 1)
    );
    assert_eq!(bench.stage.keys().0, [bench.keys[1]]);
    assert!(!bench.select.is_watched(number) && bench.select.is_watched(reader));
    assert_eq!(bench.stage.stats.hot.active, 1);
}

#[test]
fn the_length_follows_the_registrations() {
    let mut bench = Bench::new(3, Watch::new(READABLE));
    assert_eq!(bench.select.status().lengths, Lengths { hot: 3, ..Lengths::default() });
    // A change is not another registration.
    bench.select.sync(&mut bench.stage.cx(), bench.keys[0].index()).unwrap();
    assert_eq!(bench.select.status().lengths.hot, 3);
    for left in [2, 1] {
        let index = bench.keys[left].index();
        bench.stage.table.end(index, false);
        bench.select.sync(&mut bench.stage.cx(), index).unwrap();
        bench.select.sync(&mut bench.stage.cx(), index).unwrap();
        assert_eq!(bench.select.status().lengths.hot, left);
    }
    // A child is told everything again.
    bench.select.after_fork(&mut bench.stage.cx()).unwrap();
    bench.select.sync(&mut bench.stage.cx(), bench.keys[0].index()).unwrap();
    assert_eq!(bench.select.status().lengths.hot, 1);
}

#[test]
fn memory_counts_the_list_of_found_descriptors() {
    let mut select = Select::new();
    assert_eq!(select.memory(), Memory::default());
    select.found.reserve_exact(10);
    assert_eq!(select.memory(), Memory { own: 0, mirrors: 80 });
}
