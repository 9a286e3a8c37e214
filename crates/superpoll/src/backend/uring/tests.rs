//! Faults that only this back-end can have. Each test is left out where there is no io_uring.

use std::collections::HashMap;
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{ARMINGS, Uring, name};
use crate::backend::tests::stage::{Stage, few_or_many};
use crate::backend::{Backend, BackendKind, BatchReads, Deadline, Lifecycle, ReadCall};
use crate::event::{Events, Readiness};
use crate::interest::{Interest, Mode, Watch};
use crate::key::Key;
use crate::poller::Poller;
use crate::sys::eventfd::replace;
use crate::sys::uring::Completion;

const NOW: Option<Duration> = Some(Duration::ZERO);

fn poller() -> Option<Poller> {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return None;
    }
    Some(Poller::builder().backend(BackendKind::Uring).build().unwrap())
}

fn found(poller: &mut Poller) -> Vec<(Key, Readiness)> {
    let mut events = Events::with_limit(10_000);
    poller.wait(&mut events, NOW).unwrap();
    assert!(events.refusals().is_empty(), "{:?}", events.refusals());
    events.iter().map(|event| (event.key(), event.readiness())).collect()
}

fn ready_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(b"x").unwrap();
    (reader, writer)
}

#[test]
fn changes_and_the_wait_are_one_call() {
    let Some(mut poller) = poller() else { return };
    let pipes: Vec<_> = (0..100).map(|_| ready_pipe()).collect();
    for (reader, _) in &pipes {
        poller.register(reader, Interest::READABLE).unwrap();
    }
    let before = poller.stats().calls;
    assert_eq!(found(&mut poller).len(), 100);
    let calls = poller.stats().calls.since(&before);
    assert_eq!(calls.epoll_ctl() + calls.poll, 0);
    // The ring is set up by its first use, and the kernel works off this many completions at a
    // time.
    assert!((1..=8).contains(&calls.io_uring_enter), "{calls}");
    // A level is looked at again, by the same call that waits.
    let before = poller.stats().calls;
    assert_eq!(found(&mut poller).len(), 100);
    assert!(poller.stats().calls.since(&before).io_uring_enter <= 8);
}

#[test]
fn an_arrival_that_was_read_before_the_wait_is_reported_with_auto_at_most() {
    let Some(mut poller) = poller() else { return };
    for mode in [Mode::Level, Mode::Edge, Mode::Auto, Mode::OneShot] {
        let (mut reader, mut writer) = pipe().unwrap();
        let key = poller.register(&reader, Watch::new(Interest::READABLE).mode(mode)).unwrap();
        assert_eq!(found(&mut poller), []);
        writer.write_all(b"x").unwrap();
        reader.read_exact(&mut [0]).unwrap();
        let past = found(&mut poller);
        let reported = [(key, Readiness::READABLE)];
        assert!(past.is_empty() || (mode == Mode::Auto && past == reported), "{mode:?}: {past:?}");
        writer.write_all(b"x").unwrap();
        assert_eq!(found(&mut poller), [(key, Readiness::READABLE)], "{mode:?}");
        poller.deregister(key).unwrap();
    }
}

#[test]
fn several_arrivals_are_one_event() {
    let Some(mut poller) = poller() else { return };
    let (reader, mut writer) = pipe().unwrap();
    let key = poller.register(&reader, Watch::new(Interest::READABLE).mode(Mode::Edge)).unwrap();
    assert_eq!(found(&mut poller), []);
    for _ in 0..50 {
        writer.write_all(b"x").unwrap();
        // A command that makes the kernel report the arrivals so far.
        poller.flush();
    }
    assert_eq!(found(&mut poller), [(key, Readiness::READABLE)]);
    assert_eq!(found(&mut poller), []);
}

#[test]
fn completions_for_an_earlier_interest_are_dropped() {
    let Some(mut poller) = poller() else { return };
    let (reader, mut writer) = pipe().unwrap();
    let edge = Watch::new(Interest::READABLE).mode(Mode::Edge);
    let key = poller.register(&reader, edge).unwrap();
    assert_eq!(found(&mut poller), []);
    writer.write_all(b"x").unwrap();
    poller.modify(key, Interest::NONE).unwrap();
    assert_eq!(found(&mut poller), []);
    poller.deregister(key).unwrap();
    let again = poller.register(&reader, edge).unwrap();
    assert_eq!(found(&mut poller), [(again, Readiness::READABLE)]);
}

#[test]
fn an_end_of_a_registration_reaches_the_peer_before_the_next_wait() {
    let Some(mut poller) = poller() else { return };
    for closing in [false, true] {
        let (reader, mut writer) = pipe().unwrap();
        let key = poller.register(&reader, Interest::READABLE).unwrap();
        assert_eq!(found(&mut poller), []);
        if closing {
            poller.deregister_for_close(key).unwrap();
        } else {
            poller.deregister(key).unwrap();
        }
        drop(reader);
        wait_until_reader_is_closed(&writer);
        let error = writer.write_all(b"x").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    }
    let (reader, mut writer) = pipe().unwrap();
    let owned = poller.own(reader, Interest::READABLE).unwrap();
    assert_eq!(found(&mut poller), []);
    drop(owned);
    poller.flush();
    wait_until_reader_is_closed(&writer);
    assert!(writer.write_all(b"x").is_err());
}

#[test]
fn more_completions_than_there_is_room_for_lose_nothing() {
    const COUNT: usize = 6_000;
    let Some(mut poller) = poller() else { return };
    let _apart = few_or_many();
    let limit = crate::limits::raise_descriptors().unwrap();
    if limit < COUNT as u64 + 100 {
        eprintln!("skipped: {limit} descriptors are too few (ulimit -n)");
        return;
    }
    let (reader, mut writer) = pipe().unwrap();
    let watch = Watch::new(Interest::READABLE).mode(Mode::Edge);
    let readers: Vec<OwnedFd> =
        (0..COUNT).map(|_| OwnedFd::from(reader.try_clone().unwrap())).collect();
    for reader in &readers {
        poller.register(reader, watch).unwrap();
    }
    assert_eq!(found(&mut poller), []);
    for _ in 0..3 {
        // Each arrival completes all of them.
        writer.write_all(b"x").unwrap();
        let mut times: HashMap<Key, usize> = HashMap::new();
        for _ in 0..4 {
            for (key, readiness) in found(&mut poller) {
                assert!(readiness.contains(Readiness::READABLE));
                *times.entry(key).or_default() += 1;
            }
        }
        assert_eq!(times.len(), COUNT);
        assert!(times.values().all(|&times| times <= 2), "an edge reported three times");
    }
}

#[test]
fn a_direction_that_the_peer_has_closed_does_not_keep_a_wait_awake() {
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;
    let Some(mut poller) = poller() else { return };
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    while (&one).write(&[0; 4096]).is_ok() {}
    for mode in [Mode::Level, Mode::OneShot] {
        let key = poller.register(&one, Watch::new(Interest::WRITABLE).mode(mode)).unwrap();
        assert_eq!(found(&mut poller), []);
        other.shutdown(Shutdown::Write).unwrap();
        let before = poller.stats().calls;
        let mut events = Events::with_limit(4);
        poller.wait(&mut events, Some(Duration::from_millis(20))).unwrap();
        assert!(events.is_empty());
        let calls = poller.stats().calls.since(&before);
        assert!(calls.io_uring_enter < 10, "it spins: {calls}");
        poller.deregister(key).unwrap();
    }
}

#[test]
fn a_poller_that_goes_to_another_thread_goes_on_there() {
    let Some(mut one) = poller() else { return };
    let (reader, mut writer) = pipe().unwrap();
    let waker = one.waker().unwrap();
    let mut keys = vec![one.register(&reader, Interest::READABLE).unwrap()];
    assert_eq!(found(&mut one), []);
    writer.write_all(b"x").unwrap();
    let thread = std::thread::spawn(move || {
        // There it meets another one, whose ring may go by the same name.
        let mut two = poller().unwrap();
        assert_eq!(found(&mut two), []);
        assert_eq!(found(&mut one), [(keys[0], Readiness::READABLE)]);
        let (other, other_writer) = ready_pipe();
        keys.push(one.register(&other, Interest::READABLE).unwrap());
        assert_eq!(found(&mut one).len(), 2);
        (one, keys, other, other_writer)
    });
    let (mut one, keys, other, _writer) = thread.join().unwrap();
    // Submitted on this thread before it waits here again.
    one.deregister(keys[1]).unwrap();
    drop(other);
    assert_eq!(found(&mut one), [(keys[0], Readiness::READABLE)]);
    waker.wake().unwrap();
    let mut events = Events::with_limit(4);
    one.wait(&mut events, None).unwrap();
    assert!(events.woken());
}

/// Waits until no reader is left. If another test starts a program meanwhile, that program has a
/// copy of the reader for a moment.
fn wait_until_reader_is_closed(writer: &PipeWriter) {
    let mut poller = Poller::builder().backend(BackendKind::Poll).build().unwrap();
    poller.register(writer, Interest::PRIORITY).unwrap();
    let mut events = Events::with_limit(1);
    poller.wait(&mut events, Some(Duration::from_secs(20))).unwrap();
    assert!(events.iter().any(|event| event.is_error()), "the reader stays open");
}

#[test]
fn a_dropped_poller_releases_its_descriptors() {
    // A thread may give names to sixteen rings at a time.
    for _ in 0..20 {
        let Some(mut poller) = poller() else { return };
        let (reader, writer) = pipe().unwrap();
        poller.register(&reader, Interest::READABLE).unwrap();
        assert_eq!(found(&mut poller), []);
        drop((reader, poller));
        wait_until_reader_is_closed(&writer);
    }
}

#[test]
fn a_poller_that_stays_on_its_thread_has_a_name_and_gives_it_back() {
    // A thread may give names to sixteen rings at a time.
    for promised_first in [false, true].repeat(20) {
        let Some(mut poller) = poller() else { return };
        if promised_first {
            poller.stay_on_thread();
        }
        let (reader, writer) = pipe().unwrap();
        poller.register(&reader, Interest::READABLE).unwrap();
        assert_eq!(found(&mut poller), []);
        poller.stay_on_thread();
        assert_eq!(found(&mut poller), []);
        drop((reader, poller));
        wait_until_reader_is_closed(&writer);
    }
}

#[test]
fn a_promise_to_stay_that_is_broken_loses_no_events() {
    let Some(mut one) = poller() else { return };
    one.stay_on_thread();
    let (reader, _writer) = ready_pipe();
    let key = one.register(&reader, Interest::READABLE).unwrap();
    assert_eq!(found(&mut one), [(key, Readiness::READABLE)]);
    std::thread::spawn(move || {
        // Its ring goes by the same name in this thread.
        let mut two = poller().unwrap();
        two.stay_on_thread();
        assert_eq!(found(&mut two), []);
        assert_eq!(found(&mut one), [(key, Readiness::READABLE)]);
    })
    .join()
    .unwrap();
}

#[test]
fn lasting_failures_to_watch_are_refusals_and_transient_ones_are_retried() {
    if poller().is_none() {
        return;
    }
    for (error, again) in [
        (libc::EINVAL, false),
        (libc::EACCES, false),
        (libc::ENOMEM, true),
        (libc::EAGAIN, true),
        (libc::ECANCELED, true),
    ] {
        let mut uring = Uring::new().unwrap();
        let mut stage = Stage::new(4);
        let (reader, _writer) = pipe().unwrap();
        let key = stage.add(reader.as_raw_fd(), Interest::READABLE);
        uring.sync(&mut stage.cx(), key.index()).unwrap();
        let arming = stage.table.slot(key.index()).place().unwrap();
        let data = name(key.index(), arming as u32);
        uring.collect(
            &mut stage.cx(),
            Completion { data, answer: -error, armed: false, more: false },
            false,
        );
        let refused: &[(Key, i32)] = if again { &[] } else { &[(key, error)] };
        assert_eq!(stage.delivery.unwatched, refused);
        assert_eq!(uring.again == [key.index()], again, "{error}");
        assert_eq!((uring.armed, stage.table.slot(key.index()).place()), (0, None));
    }
}

/// A poller whose back-end was prepared by hand.
fn poller_on(uring: Uring) -> Poller {
    Poller::builder().custom(uring).build().unwrap()
}

#[test]
fn a_ring_that_takes_no_more_for_now_ends_no_registration() {
    if poller().is_none() {
        return;
    }
    const COUNT: usize = 600;
    let _apart = few_or_many();
    crate::limits::raise_descriptors().unwrap();
    for error in [libc::EAGAIN, libc::ENOMEM, libc::EBUSY, libc::EINTR, libc::EBADR] {
        let mut uring = Uring::new().unwrap();
        // More changes than the queue has room for, which is not worked off at first.
        uring.ring.failing = (error, 350);
        let mut poller = poller_on(uring);
        let waker = poller.waker().unwrap();
        let (reader, writer) = ready_pipe();
        let readers: Vec<OwnedFd> =
            (0..COUNT).map(|_| OwnedFd::from(reader.try_clone().unwrap())).collect();
        let mut keys: Vec<Key> = readers
            .iter()
            .map(|reader| poller.register(reader, Interest::READABLE).unwrap())
            .collect();
        let mut reported = std::collections::HashSet::new();
        for _ in 0..8 {
            reported.extend(found(&mut poller).into_iter().map(|(key, _)| key));
        }
        assert_eq!(reported.len(), COUNT, "{error}");
        waker.wake().unwrap();
        let mut events = Events::with_limit(COUNT + 1);
        poller.wait(&mut events, None).unwrap();
        assert!(events.woken(), "{error}");
        // Nor does it keep files that it must let go of.
        for key in keys.drain(..) {
            poller.deregister(key).unwrap();
        }
        assert_eq!(found(&mut poller), []);
        drop((readers, reader));
        let mut writer = writer;
        while writer.write(b"x").is_ok() {
            poller.flush();
        }
    }
}

#[test]
fn a_removal_that_the_ring_does_not_take_is_submitted_later() {
    if poller().is_none() {
        return;
    }
    const COUNT: usize = 300;
    let _apart = few_or_many();
    crate::limits::raise_descriptors().unwrap();
    let mut uring = Uring::new().unwrap();
    let mut stage = Stage::new(COUNT);
    let pipes: Vec<_> = (0..COUNT).map(|_| pipe().unwrap()).collect();
    let edge = Watch::new(Interest::READABLE).mode(Mode::Edge);
    let keys: Vec<Key> =
        pipes.iter().map(|(reader, _)| stage.add(reader.as_raw_fd(), edge)).collect();
    for key in &keys {
        uring.sync(&mut stage.cx(), key.index()).unwrap();
    }
    uring.finish_wait(&mut stage.cx(), Deadline::Now, None).unwrap();
    uring.ring.failing = (libc::EAGAIN, u32::MAX);
    for key in &keys {
        stage.table.end(key.index(), false);
        uring.sync(&mut stage.cx(), key.index()).unwrap();
        assert_eq!(stage.table.slot(key.index()).place(), None);
    }
    assert!(!uring.leaving.is_empty(), "the queue is larger than this test believes");
    assert!(uring.is_behind());
    uring.ring.failing = (0, 0);
    uring.flush(&mut stage.cx()).unwrap();
    assert!(!uring.is_behind());
    for (reader, mut writer) in pipes {
        drop(reader);
        wait_until_reader_is_closed(&writer);
        assert!(writer.write_all(b"x").is_err(), "the ring holds a reader");
    }
}

#[test]
fn reads_from_before_a_failing_wait_are_not_lost() {
    if poller().is_none() {
        return;
    }
    let mut uring = Uring::new().unwrap();
    let mut stage = Stage::new(4);
    let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
    let keys: Vec<Key> =
        pairs.iter().map(|(one, _)| stage.add(one.as_raw_fd(), Interest::NONE)).collect();
    for ((one, other), &key) in pairs.iter().zip(&keys) {
        (&*other).write_all(b"bytes").unwrap();
        uring.start(key, one.as_raw_fd(), ReadCall::Receive, Vec::with_capacity(9));
    }
    // One of them ends before the wait, which then fails.
    uring.disengage(&mut stage.cx(), keys[0].index());
    uring.ring.failing = (libc::EIO, 1);
    let _ = uring.perform(&mut stage.cx());
    uring.finish_wait(&mut stage.cx(), Deadline::Now, None).unwrap();
    let mut reads: Vec<_> = stage.events.reads.drain(..).collect();
    reads.sort_by_key(|read| read.key);
    let cancelled = reads[0].outcome.as_ref().unwrap_err().raw_os_error();
    assert_eq!((reads[0].key, cancelled), (keys[0], Some(libc::ECANCELED)));
    for (read, &key) in reads[1..].iter().zip(&keys[1..]) {
        assert_eq!((read.key, &read.room[..]), (key, &b"bytes"[..]));
    }
    assert_eq!(reads.len(), 3);
}

#[test]
fn registrations_whose_completions_the_kernel_dropped_move_to_another_ring() {
    if poller().is_none() {
        return;
    }
    for mode in [Mode::Level, Mode::Edge, Mode::Auto, Mode::OneShot] {
        let mut uring = Uring::new().unwrap();
        let mut stage = Stage::new(4);
        let (reader, _writer) = ready_pipe();
        let watch = Watch::new(Interest::READABLE).mode(mode);
        let key = stage.add(reader.as_raw_fd(), watch);
        uring.sync(&mut stage.cx(), key.index()).unwrap();
        uring.flush(&mut stage.cx()).unwrap();
        // Its completion is lost.
        while uring.ring.fetch().is_some() {}
        let dropped = io::Error::from_raw_os_error(libc::EBADR);
        uring.finish_wait(&mut stage.cx(), Deadline::Now, Some(Err(dropped))).unwrap();
        assert_eq!(stage.delivered(), []);
        uring.finish_wait(&mut stage.cx(), Deadline::Now, None).unwrap();
        assert_eq!(stage.delivered(), [(key, Readiness::READABLE)], "{mode:?}");
    }
}

#[test]
fn the_order_of_armings_outlasts_their_numbers() {
    if poller().is_none() {
        return;
    }
    let now = Deadline::Now;
    // The edge is armed here, and a level there: long after, in the next round, right before the
    // numbers begin again.
    for (first, second) in [
        (0, ARMINGS / 2),
        (0, ARMINGS / 2 + 7),
        (7, ARMINGS - 40),
        (ARMINGS - 3, ARMINGS - 1),
        (ARMINGS - 2, 0),
        (ARMINGS / 2 + 1, 5),
        (ARMINGS - 9, ARMINGS / 2 - 40),
    ] {
        let mut uring = Uring::new().unwrap();
        let mut stage = Stage::new(4);
        let (mut edge, mut edge_writer) = pipe().unwrap();
        let (mut level, mut level_writer) = pipe().unwrap();
        uring.armings = first;
        let watch = Watch::new(Interest::READABLE).mode(Mode::Edge);
        let key = stage.add(edge.as_raw_fd(), watch);
        uring.sync(&mut stage.cx(), key.index()).unwrap();
        if second <= first {
            uring.armings = ARMINGS - 1;
            assert!(uring.next_arming(&mut stage.table) == 1);
        }
        uring.armings = uring.armings.max(second);
        let other = stage.add(level.as_raw_fd(), Interest::READABLE);
        uring.sync(&mut stage.cx(), other.index()).unwrap();
        let mut reported = 0;
        for _ in 0..20 {
            // One more arming in each round, and an arrival that is over before the wait.
            level_writer.write_all(b"x").unwrap();
            uring.flush(&mut stage.cx()).unwrap();
            uring.finish_wait(&mut stage.cx(), now, None).unwrap();
            level.read_exact(&mut [0]).unwrap();
            edge_writer.write_all(b"x").unwrap();
            edge.read_exact(&mut [0]).unwrap();
            stage.events.empty();
            uring.finish_wait(&mut stage.cx(), now, None).unwrap();
            reported += usize::from(stage.delivered().iter().any(|&(reported, _)| reported == key));
            stage.events.empty();
        }
        assert_eq!(reported, 0, "of armings from {first} and {second} on");
        edge_writer.write_all(b"x").unwrap();
        uring.finish_wait(&mut stage.cx(), now, None).unwrap();
        assert_eq!(stage.delivered(), [(key, Readiness::READABLE)]);
    }
}

#[test]
fn files_that_cannot_be_waited_for_are_recognised() {
    use crate::sys::descriptor::can_wait;
    let calls = &mut crate::stats::Calls::default();
    let (reader, _writer) = pipe().unwrap();
    let can = |path: &str| {
        std::fs::File::open(path)
            .map(|file| can_wait(&mut crate::stats::Calls::default(), file.as_raw_fd()))
    };
    assert!(can_wait(calls, reader.as_raw_fd()));
    assert_eq!((calls.fstat, calls.total()), (1, 1));
    assert_eq!(can("/dev/null").ok(), Some(false));
    assert_eq!(can("/").ok(), Some(false));
    assert_eq!(can("/proc/self/exe").ok(), Some(false));
    assert_eq!(can("/proc/self/mounts").ok(), Some(true), "it reports each mount");
}

/// The kernel has not taken a read when its registration ends, and the number becomes another
/// file's.
#[test]
fn a_read_that_stayed_in_the_queue_never_reaches_the_successor_of_its_descriptor() {
    if poller().is_none() {
        return;
    }
    // The kernel takes the queue when it is asked again, or not at all.
    for refusals in [1, 4, u32::MAX] {
        let mut uring = Uring::new().unwrap();
        let mut stage = Stage::new(8);
        let (socket, _peer) = UnixStream::pair().unwrap();
        let key = stage.add(socket.as_raw_fd(), Watch::new(Interest::NONE));
        let index = key.index();
        uring.sync(&mut stage.cx(), index).unwrap();
        uring.finish_wait(&mut stage.cx(), Deadline::Now, None).unwrap();
        for _ in 0..3 {
            uring.start(key, socket.as_raw_fd(), ReadCall::Receive, Vec::with_capacity(9));
        }
        uring.ring.failing = (libc::EAGAIN, refusals);
        let _ = uring.perform(&mut stage.cx());
        uring.disengage(&mut stage.cx(), index);
        uring.ring.failing = (0, 0);
        stage.table.end(index, false);

        let (stranger, mut writer) = UnixStream::pair().unwrap();
        replace(socket.as_fd(), stranger.try_clone().unwrap().into()).unwrap();
        writer.write_all(b"secret").unwrap();
        stranger.set_nonblocking(true).unwrap();
        for _ in 0..3 {
            uring.finish_wait(&mut stage.cx(), Deadline::Now, None).unwrap();
        }
        let mut got = [0; 9];
        let count = (&stranger).read(&mut got).unwrap();
        assert_eq!(&got[..count], b"secret", "{refusals}");
    }
}
