//! Limits, refusals and the counters that record them.

use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use superpoll::backend::policy::{Fixed, Set};
use superpoll::{
    BackendKind, Error, Events, Hint, Interest, Key, Mode, Owned, Poller, Readiness, Watch,
};
use superpoll_test_support::Waiter;

const NOW: Option<Duration> = Some(Duration::ZERO);

fn each(test: impl Fn(&str, &mut Poller)) {
    for kind in BackendKind::available() {
        test(kind.name(), &mut Poller::builder().backend(kind).build().unwrap());
    }
    let hot = Poller::builder().policy(Fixed::new(Set::Hot));
    test("adaptive, all hot", &mut hot.build().unwrap());
    // Each second pipe is expected to be busy.
    let split = Poller::builder().policy(Fixed::new(Set::Cold));
    test("adaptive, half hot", &mut split.build().unwrap());
}

type Pipe = (Owned<PipeReader>, PipeWriter);

fn ready_pipes(poller: &mut Poller, count: usize, watch: Watch) -> Vec<Pipe> {
    (0..count)
        .map(|n| {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(b"x").unwrap();
            let hint = if n % 2 == 1 { Hint::Busy } else { Hint::None };
            (poller.own(reader, watch.hint(hint)).unwrap(), writer)
        })
        .collect()
}

fn wait(poller: &mut Poller, limit: usize) -> Vec<Key> {
    let mut events = Events::with_limit(limit);
    poller.wait(&mut events, NOW).unwrap();
    assert!(events.len() <= limit);
    events.iter().map(|event| event.key()).collect()
}

/// Each key comes up in every run of ceil(keys / limit) waits, and never twice in one wait.
fn check_shares(name: &str, poller: &mut Poller, keys: &[Key], limit: usize) {
    let batches: Vec<_> = (0..40).map(|_| wait(poller, limit)).collect();
    for run in batches.windows(keys.len().div_ceil(limit)) {
        for key in keys {
            assert!(run.iter().any(|batch| batch.contains(key)), "{name}: {key:?} in {batches:?}");
        }
    }
    for mut batch in batches {
        batch.sort();
        batch.dedup();
        assert_eq!(batch.len(), limit.min(keys.len()), "{name}: each once");
    }
}

#[test]
fn a_limit_serves_all_in_turn() {
    for mode in [Mode::Level, Mode::Auto] {
        for (count, limit) in [(5, 1), (5, 2), (6, 3), (7, 6)] {
            each(|name, poller| {
                let pipes = ready_pipes(poller, count, Watch::new(Interest::READABLE).mode(mode));
                let keys: Vec<_> = pipes.iter().map(|(reader, _)| reader.key()).collect();
                if mode == Mode::Level {
                    check_shares(name, poller, &keys, limit);
                }
                // With room for all again, all come at once.
                wait(poller, count);
                for (_, writer) in &pipes {
                    (&*writer).write_all(b"x").unwrap();
                }
                let mut all = wait(poller, count + 1);
                all.sort();
                assert_eq!(all, keys, "{name}");
            });
        }
    }
}

#[test]
fn files_take_turns_with_the_rest() {
    each(|name, poller| {
        let pipes = ready_pipes(poller, 3, Watch::new(Interest::READABLE));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let file = poller.own(file, Interest::READABLE).unwrap();
        let mut keys: Vec<_> = pipes.iter().map(|(reader, _)| reader.key()).collect();
        keys.push(file.key());
        check_shares(name, poller, &keys, 1);
        check_shares(name, poller, &keys, 3);
        check_shares(name, poller, &keys, 9);
    });
}

#[test]
fn one_shots_come_once_through_a_limit() {
    each(|name, poller| {
        let watch = Watch::new(Interest::READABLE).mode(Mode::OneShot);
        let pipes = ready_pipes(poller, 5, watch);
        let mut seen: Vec<_> = (0..6).flat_map(|_| wait(poller, 2)).collect();
        seen.sort();
        let keys: Vec<_> = pipes.iter().map(|(reader, _)| reader.key()).collect();
        assert_eq!(seen, keys, "{name}");
        poller.modify(keys[3], Interest::READABLE).unwrap();
        assert_eq!(wait(poller, 2), [keys[3]], "{name}");
        assert_eq!(wait(poller, 2), [], "{name}");
    });
}

#[test]
fn a_descriptor_drained_while_it_waits_for_its_turn_is_not_reported() {
    each(|name, poller| {
        let mut pipes = ready_pipes(poller, 4, Watch::new(Interest::READABLE));
        let first = wait(poller, 1);
        for (reader, _) in &mut pipes {
            if reader.key() != first[0] {
                std::io::Read::read_exact(reader.get_mut(), &mut [0]).unwrap();
            }
        }
        for _ in 0..3 {
            assert_eq!(wait(poller, 1), first, "{name}");
        }
    });
}

#[test]
fn a_descriptor_closed_too_early_is_refused_and_nothing_else_is_lost() {
    superpoll::limits::raise_descriptors().unwrap();
    each(|name, poller| {
        let pipes = ready_pipes(poller, 1, Watch::new(Interest::READABLE));
        // Numbers that other tests do not reuse while this one looks at them.
        let (reader, _writer) = std::io::pipe().unwrap();
        let high = if name == "select" { 1000 } else { 5000 };
        // SAFETY: duplicates to a number at or above `high`; nothing else is touched.
        let number = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_DUPFD_CLOEXEC, high) };
        assert!(number >= high);
        let key = poller.register_raw(number, Interest::READABLE).unwrap();
        // SAFETY: the number was made above and has no other owner.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
        let mut events = Events::with_limit(8);
        poller.wait(&mut events, NOW).unwrap();
        assert_eq!(events.refusals().len(), 1, "{name}");
        let (refused, error) = &events.refusals()[0];
        assert_eq!(*refused, key, "{name}");
        assert!(matches!(error, Error::BadDescriptor { fd } if *fd == number), "{name}: {error}");
        assert_eq!(poller.stats().refused, 1, "{name}");
        assert!(matches!(poller.modify(key, Interest::READABLE), Err(Error::StaleKey { .. })));
        poller.wait(&mut events, NOW).unwrap();
        assert!(events.refusals().is_empty(), "{name}: reported once");
        assert_eq!(wait(poller, 8), [pipes[0].0.key()], "{name}");
        assert_eq!(poller.len(), 1, "{name}");
    });
}

#[test]
fn counters_include_undelivered_events() {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build().unwrap();
    let mut pipes = ready_pipes(&mut poller, 2, Watch::new(Interest::READABLE));
    assert_eq!(wait(&mut poller, 8).len(), 2);
    let before = poller.stats();
    assert_eq!((before.waits, before.events, before.calls.epoll_ctl_add), (1, 2, 2));

    // Unwanted: narrowed lazily, applied when it comes up.
    poller.modify(pipes[0].0.key(), Interest::NONE).unwrap();
    assert_eq!(wait(&mut poller, 8), [pipes[1].0.key()]);
    let stats = poller.stats();
    assert_eq!((stats.unwanted, stats.stale, stats.calls.epoll_ctl_mod), (1, 0, 1), "{stats:?}");
    assert_eq!(stats.changes_saved, before.changes_saved + 1);

    // Stale: closed while a duplicate keeps the file open.
    let (reader, writer) = pipes.remove(1);
    let duplicate = reader.try_clone().unwrap();
    drop(reader);
    assert_eq!(wait(&mut poller, 8), []);
    let stats = poller.stats();
    assert_eq!((stats.unwanted, stats.stale, stats.rebuilds), (1, 1, 1), "{stats:?}");
    assert_eq!(wait(&mut poller, 8), []);
    assert_eq!(poller.stats().stale, 1, "built anew without it");
    drop((duplicate, writer));
}

#[test]
fn an_unwanted_event_does_not_end_a_wait() {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build().unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let reader = poller.own(reader, Interest::READABLE).unwrap();
    assert_eq!(wait(&mut poller, 8), []);
    poller.modify(reader.key(), Interest::NONE).unwrap();
    // The kernel still watches for it, and so the wait begins with it.
    writer.write_all(b"x").unwrap();
    let (start, timeout) = (Instant::now(), Duration::from_millis(40));
    assert_eq!(poller.wait(&mut Events::with_limit(8), Some(timeout)).unwrap(), 0);
    assert!(start.elapsed() >= timeout);
    assert_eq!(poller.stats().unwanted, 1, "it did come");
}

#[test]
fn marked_readiness_of_an_ended_registration_is_stale() {
    each(|name, poller| {
        let (reader, _writer) = std::io::pipe().unwrap();
        let key = poller.register(&reader, Interest::READABLE).unwrap();
        poller.mark_ready(key, Readiness::READABLE).unwrap();
        poller.mark_ready(key, Readiness::WRITABLE).unwrap();
        poller.deregister(key).unwrap();
        assert_eq!(wait(poller, 8), [], "{name}");
        assert_eq!((poller.stats().stale, poller.stats().unwanted), (1, 0), "{name}");
        let key = poller.register(&reader, Interest::READABLE).unwrap();
        poller.mark_ready(key, Readiness::WRITABLE).unwrap();
        assert_eq!(wait(poller, 8), [], "{name}: not asked for");
        assert_eq!((poller.stats().stale, poller.stats().unwanted), (1, 1), "{name}");
        poller.deregister(key).unwrap();
    });
}

#[test]
fn a_poll_array_reads_the_waker_once_for_each_sleep_it_ended() {
    for kind in [BackendKind::Select, BackendKind::Poll] {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let mut events = Events::with_limit(1);
        let waker = poller.waker().unwrap();
        for _ in 0..3 {
            let theirs = waker.clone();
            let waiter = Waiter::this_thread();
            let thread = std::thread::spawn(move || {
                waiter.until_it_sleeps();
                theirs.wake().unwrap();
            });
            poller.wait(&mut events, Some(Duration::from_secs(20))).unwrap();
            assert!(events.woken());
            thread.join().unwrap();
            poller.wait(&mut events, NOW).unwrap();
            let calls = poller.stats().calls;
            assert_eq!(calls.waker_read, calls.waker_write, "{kind}");
        }
    }
}

#[test]
fn an_owner_that_outlives_its_poller_just_closes() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut poller = Poller::new().unwrap();
    let owned = poller.own(reader, Interest::READABLE).unwrap();
    drop(poller);
    let reader = owned.into_inner();
    writer.write_all(b"x").unwrap();
    let mut byte = [0];
    std::io::Read::read_exact(&mut &reader, &mut byte).unwrap();
    assert_eq!(&byte, b"x");
}
