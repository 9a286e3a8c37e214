//! The reaction of a wait to a back-end that returns early, fails, or is overtaken.

use std::collections::VecDeque;
use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use superpoll::backend::{Backend, Context, Deadline, Poll};
use superpoll::{BackendKind, Error, Events, Interest, Mode, Owned, Poller, Readiness, Watch};
use superpoll_test_support::Waiter;

use crate::around::{Around, Surrounded};

const NOW: Option<Duration> = Some(Duration::ZERO);

/// The action of the back-end in one wait.
enum Turn {
    /// Returns at once, without a report.
    Nothing,
    /// Fails with this error number.
    Fail(i32),
    /// Reports the ready descriptors, and then fails.
    FindAndFail(i32),
    /// Reports the ready descriptors, and then its owner is dropped.
    FindAndDrop(Owned<PipeReader>),
}

/// The poll back-end, after the turns that the test has set.
struct Scripted(Arc<Mutex<VecDeque<Turn>>>);

impl Around for Scripted {
    const NAME: &'static str = "scripted";

    fn wait(
        &mut self,
        poll: &mut Poll,
        cx: &mut Context<'_>,
        deadline: Deadline,
    ) -> std::io::Result<()> {
        let turn = self.0.lock().unwrap().pop_front();
        match turn {
            None => poll.finish_wait(cx, deadline, None),
            Some(Turn::Nothing) => Ok(()),
            Some(Turn::Fail(number)) => Err(std::io::Error::from_raw_os_error(number)),
            Some(Turn::FindAndFail(number)) => {
                poll.finish_wait(cx, Deadline::Now, None)?;
                Err(std::io::Error::from_raw_os_error(number))
            }
            Some(Turn::FindAndDrop(owned)) => {
                poll.finish_wait(cx, Deadline::Now, None)?;
                drop(owned);
                Ok(())
            }
        }
    }
}

struct Bench {
    poller: Poller,
    events: Events,
    turns: Arc<Mutex<VecDeque<Turn>>>,
}

impl Bench {
    fn new() -> Bench {
        let turns = Arc::<Mutex<VecDeque<Turn>>>::default();
        let backend = Surrounded::new(Scripted(turns.clone()));
        let poller = Poller::builder().custom(backend).build().unwrap();
        Bench { poller, events: Events::with_limit(8), turns }
    }

    /// A registered pipe with a byte in it.
    fn ready(&mut self) -> (Owned<PipeReader>, PipeWriter) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"x").unwrap();
        (self.poller.own(reader, Interest::READABLE).unwrap(), writer)
    }

    /// Waits without a timeout; first with nothing but the kernel to ask, if `usual`, else with a
    /// change that must be applied before.
    fn wait(&mut self, usual: bool, turns: impl IntoIterator<Item = Turn>) -> Result<usize, Error> {
        let (reader, _writer) = std::io::pipe().unwrap();
        let key = self.poller.register(&reader, Interest::READABLE).unwrap();
        if usual {
            self.poller.wait(&mut self.events, NOW).unwrap();
        }
        self.turns.lock().unwrap().extend(turns);
        let outcome = self.poller.wait(&mut self.events, None);
        assert!(self.turns.lock().unwrap().is_empty(), "it has done all that");
        self.poller.deregister(key).unwrap();
        self.poller.flush();
        outcome
    }
}

#[test]
fn a_back_end_that_returns_early_is_asked_again() {
    for usual in [true, false] {
        let mut bench = Bench::new();
        let (reader, _writer) = bench.ready();
        let turns = [Turn::Nothing, Turn::Nothing, Turn::Nothing];
        assert_eq!(bench.wait(usual, turns).unwrap(), 1, "{usual}");
        assert_eq!(bench.events.iter().next().unwrap().key(), reader.key());
    }
}

#[test]
fn a_signal_does_not_end_a_wait() {
    for usual in [true, false] {
        let mut bench = Bench::new();
        let _pipe = bench.ready();
        let turns = [Turn::Fail(libc::EINTR), Turn::Fail(libc::EINTR)];
        assert_eq!(bench.wait(usual, turns).unwrap(), 1, "{usual}");
    }
}

#[test]
fn a_failure_is_reported_and_no_event_is_lost() {
    for usual in [true, false] {
        let mut bench = Bench::new();
        let _pipe = bench.ready();
        let error = bench.wait(usual, [Turn::Fail(libc::EIO)]).unwrap_err();
        assert!(matches!(error, Error::System { .. }), "{error}");
        assert!(error.to_string().contains("waiting"), "{error}");
        assert!(bench.events.is_empty());
        // Events that were found before the failure are delivered, and the failure is not reported.
        for number in [libc::EIO, libc::EINTR] {
            assert_eq!(bench.wait(usual, [Turn::FindAndFail(number)]).unwrap(), 1);
            assert_eq!(bench.events.len(), 1);
        }
        assert_eq!(bench.wait(usual, []).unwrap(), 1, "it is still registered");
    }
}

#[test]
fn an_owner_that_is_dropped_during_a_wait_delivers_nothing() {
    for usual in [true, false] {
        let mut bench = Bench::new();
        let (dropped, _writer) = bench.ready();
        let (kept, _other) = bench.ready();
        assert_eq!(bench.wait(usual, [Turn::FindAndDrop(dropped)]).unwrap(), 1, "{usual}");
        assert_eq!(bench.events.iter().next().unwrap().key(), kept.key());
        assert_eq!(bench.poller.len(), 1);
        // If nothing is left, the wait goes on.
        let (late, mut writer) = std::io::pipe().unwrap();
        let late = bench.poller.own(late, Interest::READABLE).unwrap();
        let key = late.key();
        let waiter = Waiter::this_thread();
        let thread = std::thread::spawn(move || {
            waiter.until_it_sleeps();
            writer.write_all(b"x").unwrap();
            writer
        });
        assert_eq!(bench.wait(usual, [Turn::FindAndDrop(kept)]).unwrap(), 1, "{usual}");
        assert_eq!(bench.events.iter().next().unwrap().key(), key);
        drop((thread.join().unwrap(), late));
    }
}

#[test]
fn events_and_waits_are_counted_whichever_way_they_go() {
    let mut bench = Bench::new();
    let _pipes = [bench.ready(), bench.ready()];
    for (usual, waits, events) in [(false, 1, 2), (false, 2, 4), (true, 4, 8)] {
        assert_eq!(bench.wait(usual, []).unwrap(), 2);
        let stats = bench.poller.stats();
        assert_eq!((stats.waits, stats.events), (waits, events), "{usual}");
    }
}

/// Whether a descriptor is readable.
fn readable(fd: impl AsFd) -> bool {
    let mut slot = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one slot that outlives the call.
    unsafe { libc::poll(&mut slot, 1, 0) == 1 }
}

#[test]
fn a_nested_poller_can_be_woken_after_a_wait_that_found_something() {
    for kind in [BackendKind::Epoll, BackendKind::Adaptive] {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let mut events = Events::with_limit(16);
        let waker = poller.waker().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let watch = Watch::new(Interest::READABLE).mode(Mode::Edge);
        let _reader = poller.own(reader, watch).unwrap();
        let outer = poller.nest().unwrap().try_clone_to_owned().unwrap();
        for _ in 0..3 {
            writer.write_all(b"x").unwrap();
            assert!(readable(&outer));
            assert_eq!(poller.wait(&mut events, NOW).unwrap(), 1);
            assert!(!events.woken() && !readable(&outer), "an edge is reported once");
            waker.wake().unwrap();
            assert!(readable(&outer), "the outer loop sleeps in its stead");
            assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
            assert!(events.woken());
        }
    }
}

#[test]
fn an_outer_loop_is_woken_for_each_thing_that_needs_no_kernel() {
    for kind in [BackendKind::Epoll, BackendKind::Adaptive] {
        let nested = || {
            let mut poller = Poller::builder().backend(kind).build().unwrap();
            let outer = poller.nest().unwrap().try_clone_to_owned().unwrap();
            (poller, outer, Events::with_limit(1))
        };
        // Readiness from the caller.
        let (mut poller, outer, mut events) = nested();
        let (reader, _writer) = std::io::pipe().unwrap();
        let reader = poller.own(reader, Interest::READABLE).unwrap();
        assert!(!readable(&outer), "{kind}");
        poller.mark_ready(reader.key(), Readiness::READABLE).unwrap();
        assert!(readable(&outer), "{kind}");
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 1);
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
        assert!(!readable(&outer), "{kind}");

        // A file that is always ready, until it is not wanted any more.
        let (mut poller, outer, mut events) = nested();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let file = poller.own(file, Interest::READABLE).unwrap();
        assert!(readable(&outer), "{kind}");
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 1);
        assert!(readable(&outer), "{kind}");
        poller.modify(file.key(), Interest::NONE).unwrap();
        poller.wait(&mut events, NOW).unwrap();
        assert!(!readable(&outer), "{kind}");

        // The same with an edge, once.
        let (mut poller, outer, mut events) = nested();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let edge = Watch::new(Interest::READABLE).mode(Mode::Edge);
        let _file = poller.own(file, edge).unwrap();
        assert!(readable(&outer), "{kind}");
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 1);
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
        assert!(!readable(&outer), "{kind}");

        // A refusal: the kernel does not let a set watch itself.
        let (mut poller, outer, mut events) = nested();
        let itself = poller.register(&outer, Interest::READABLE).unwrap();
        assert!(readable(&outer), "{kind}");
        assert_eq!(poller.wait(&mut events, None).unwrap(), 0);
        assert_eq!((events.refusals().len(), events.refusals()[0].0), (1, itself), "{kind}");
        poller.wait(&mut events, NOW).unwrap();
        assert!(!readable(&outer), "{kind}");

        // Events that a limit has cut off.
        let (mut poller, outer, mut events) = nested();
        let edges: Vec<_> = (0..3)
            .map(|_| {
                let (reader, mut writer) = std::io::pipe().unwrap();
                writer.write_all(b"x").unwrap();
                (poller.own(reader, edge).unwrap(), writer)
            })
            .collect();
        for _ in &edges {
            assert!(readable(&outer), "{kind}");
            assert_eq!(poller.wait(&mut events, NOW).unwrap(), 1);
        }
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
        assert!(!readable(&outer), "{kind}");
    }
}

#[test]
fn events_that_need_no_kernel_do_not_let_a_wait_sleep() {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build().unwrap();
    let mut events = Events::with_limit(8);
    let (reader, _writer) = std::io::pipe().unwrap();
    let reader = poller.own(reader, Interest::READABLE).unwrap();
    assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
    let soon = Some(Duration::from_millis(5));
    let before = poller.stats().calls;
    // Injected by the caller, and always ready.
    poller.mark_ready(reader.key(), Readiness::READABLE).unwrap();
    assert_eq!(poller.wait(&mut events, soon).unwrap(), 1);
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let file = poller.own(file, Interest::READABLE).unwrap();
    assert_eq!(poller.wait(&mut events, soon).unwrap(), 1);
    assert_eq!(events.iter().next().unwrap().key(), file.key());
    let calls = poller.stats().calls.since(&before);
    // A wait with a time limit is another call.
    assert_eq!((calls.epoll_wait, calls.waits()), (2, 2), "{calls}");
}

#[test]
fn a_one_shot_that_was_marked_ready_is_disarmed_in_the_kernel() {
    for (mode, told) in [(Mode::OneShot, 1), (Mode::Level, 0), (Mode::Edge, 0)] {
        let mut poller = Poller::builder().backend(BackendKind::Epoll).build().unwrap();
        let mut events = Events::with_limit(8);
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = poller.own(reader, Watch::new(Interest::READABLE).mode(mode)).unwrap();
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
        poller.mark_ready(reader.key(), Readiness::READABLE).unwrap();
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 1, "{mode:?}");
        let before = poller.stats().calls;
        writer.write_all(b"x").unwrap();
        let again = usize::from(mode != Mode::OneShot);
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), again, "{mode:?}");
        assert_eq!(poller.stats().unwanted, 0, "{mode:?}: the kernel does not even report it");
        assert_eq!(poller.stats().calls.since(&before).epoll_ctl(), told, "{mode:?}");
        assert_eq!(poller.stats().changes_saved, 0, "{mode:?}: there was no other change");
    }
}

#[test]
fn a_file_is_ready_as_asked_for_and_with_an_edge_once_for_each_change() {
    for kind in [BackendKind::Epoll, BackendKind::Adaptive] {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let mut events = Events::with_limit(8);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let readable = Interest::READABLE | Interest::PRIORITY;
        let key = poller.register(&file, readable).unwrap();
        let mut found = |poller: &mut Poller| {
            poller.wait(&mut events, NOW).unwrap();
            events.iter().map(|event| event.readiness()).collect::<Vec<_>>()
        };
        for _ in 0..3 {
            assert_eq!(found(&mut poller), [Readiness::READABLE], "{kind}");
        }
        poller.modify(key, Interest::WRITABLE).unwrap();
        assert_eq!(found(&mut poller), [Readiness::WRITABLE], "{kind}");
        poller.modify(key, Interest::NONE).unwrap();
        assert_eq!(found(&mut poller), [], "{kind}");
        for mode in [Mode::Edge, Mode::Auto] {
            for interest in [Interest::READABLE, Interest::WRITABLE] {
                poller.modify_watch(key, Watch::new(interest).mode(mode)).unwrap();
                assert_eq!(found(&mut poller).len(), 1, "{kind} {mode:?}");
                assert_eq!(found(&mut poller), [], "{kind} {mode:?}");
            }
        }
        poller.modify_watch(key, Watch::new(Interest::NONE).mode(Mode::Edge)).unwrap();
        assert_eq!(found(&mut poller), [], "{kind}");
        poller.deregister(key).unwrap();
    }
}
