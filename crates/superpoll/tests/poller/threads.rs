//! Wakers, registrars and owners on other threads; nesting.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use superpoll::backend::{Backend, Context, Deadline, Poll};
use superpoll::{BackendKind, Events, Interest, Poller, Readiness, Waker};
use superpoll_test_support::{Waiter, find};

use crate::around::{Around, Surrounded};

fn each(test: impl Fn(&mut Poller, &mut Events)) {
    for kind in BackendKind::available() {
        eprintln!("back-end {kind}");
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        test(&mut poller, &mut Events::with_limit(16));
    }
}

const LONG: Option<Duration> = Some(Duration::from_secs(20));
const NOW: Option<Duration> = Some(Duration::ZERO);

#[test]
fn wakes_before_a_wait_count_as_one_and_cost_nothing() {
    each(|poller, events| {
        let waker = poller.waker().unwrap();
        for _ in 0..5 {
            waker.wake().unwrap();
        }
        assert_eq!(poller.stats().calls.waker_write, 0);
        assert_eq!(poller.wait(events, None).unwrap(), 0);
        assert!(events.woken());
        assert_eq!(poller.wait(events, NOW).unwrap(), 0);
        assert!(!events.woken());
    });
}

/// The poll back-end, woken in the last moment: after the poller has looked for wakes, before the
/// back-end announces its sleep.
struct WokenLate(Arc<Mutex<Option<Waker>>>);

impl Around for WokenLate {
    const NAME: &'static str = "woken late";

    fn wait(
        &mut self,
        poll: &mut Poll,
        cx: &mut Context<'_>,
        deadline: Deadline,
    ) -> std::io::Result<()> {
        if let Some(waker) = &*self.0.lock().unwrap() {
            waker.wake().unwrap();
        }
        poll.finish_wait(cx, deadline, None)
    }
}

#[test]
fn a_wake_in_the_last_moment_finds_nothing_that_the_last_sleep_left_behind() {
    let late = Arc::new(Mutex::new(None));
    let backend = Surrounded::new(WokenLate(late.clone()));
    let mut poller = Poller::builder().custom(backend).build().unwrap();
    let mut events = Events::with_limit(4);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let reader = poller.own(reader, Interest::READABLE).unwrap();
    let waker = poller.waker().unwrap();
    let theirs = waker.clone();
    let waiter = Waiter::this_thread();
    let thread = std::thread::spawn(move || {
        waiter.until_it_sleeps();
        theirs.wake().unwrap();
    });
    assert_eq!(poller.wait(&mut events, LONG).unwrap(), 0);
    assert!(events.woken());
    thread.join().unwrap();

    *late.lock().unwrap() = Some(waker);
    assert_eq!(poller.wait(&mut events, LONG).unwrap(), 0);
    assert!(events.woken());
    writer.write_all(b"x").unwrap();
    assert_eq!(poller.wait(&mut events, LONG).unwrap(), 1, "ready all the same");
    assert_eq!(events.iter().next().unwrap().key(), reader.key());
}

#[test]
fn a_wake_ends_a_sleep_with_one_write() {
    each(|poller, events| {
        let waker = poller.waker().unwrap();
        for round in 1..=20 {
            let theirs = waker.clone();
            let waiter = Waiter::this_thread();
            let thread = std::thread::spawn(move || {
                waiter.until_it_sleeps();
                for _ in 0..3 {
                    theirs.wake().unwrap();
                }
            });
            let start = Instant::now();
            assert_eq!(poller.wait(events, LONG).unwrap(), 0);
            assert!(events.woken());
            assert!(start.elapsed() < Duration::from_secs(10), "woken, not timed out");
            thread.join().unwrap();
            poller.wait(events, NOW).unwrap();
            assert!(poller.stats().calls.waker_write <= round, "at most one write per sleep");
        }
    });
}

#[test]
fn a_registrar_registers_while_the_poller_waits() {
    each(|poller, events| {
        let registrar = poller.registrar().unwrap();
        let waiter = Waiter::this_thread();
        let thread = std::thread::spawn(move || {
            waiter.until_it_sleeps();
            let (reader, mut writer) = std::io::pipe().unwrap();
            let owned = registrar.own(reader, Interest::READABLE).unwrap();
            waiter.until_it_sleeps();
            writer.write_all(b"x").unwrap();
            (owned, writer)
        });
        assert_eq!(poller.wait(events, LONG).unwrap(), 1);
        assert!(!events.woken());
        let (owned, _writer) = thread.join().unwrap();
        assert_eq!(events.iter().next().unwrap().key(), owned.key());
        drop(owned);
        assert_eq!(poller.wait(events, NOW).unwrap(), 0);
        assert_eq!(poller.len(), 0);
    });
}

#[test]
fn a_registrar_reuses_its_slots() {
    each(|poller, events| {
        let registrar = poller.registrar().unwrap();
        let mut keys = Vec::new();
        for _ in 0..50 {
            let (reader, _writer) = std::io::pipe().unwrap();
            let owned = registrar.own(reader, Interest::READABLE).unwrap();
            poller.wait(events, NOW).unwrap();
            keys.push(owned.key());
            drop(owned);
            poller.wait(events, NOW).unwrap();
        }
        assert!(keys.iter().all(|key| key.index() < 3), "{keys:?}");
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 50, "each registration has a key of its own");
    });
}

#[test]
fn a_duplicate_of_a_registrar_is_refused_and_loses_nothing() {
    each(|poller, events| {
        let registrar = poller.registrar().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let key = poller.register(&reader, Interest::READABLE).unwrap();
        let second = registrar.register(&reader, Interest::READABLE).unwrap();
        writer.write_all(b"x").unwrap();
        assert_eq!(poller.wait(events, NOW).unwrap(), 1);
        assert_eq!(events.iter().next().unwrap().key(), key);
        assert_eq!(events.refusals().len(), 1);
        assert_eq!(events.refusals()[0].0, second);
        poller.deregister(key).unwrap();
    });
}

#[test]
fn a_registrar_takes_over_a_number_whose_removal_is_not_applied_yet() {
    each(|poller, events| {
        let registrar = poller.registrar().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let old = poller.register(&reader, Interest::READABLE).unwrap();
        assert_eq!(poller.wait(events, NOW).unwrap(), 0);
        poller.deregister(old).unwrap();
        let new = registrar.register(&reader, Interest::READABLE).unwrap();
        writer.write_all(b"x").unwrap();
        for _ in 0..2 {
            assert_eq!(poller.wait(events, NOW).unwrap(), 1);
            assert_eq!(events.iter().next().unwrap().key(), new);
        }
        poller.deregister(new).unwrap();
        assert_eq!(poller.wait(events, NOW).unwrap(), 0);
    });
}

#[test]
fn an_owner_dropped_elsewhere_delivers_nothing_more() {
    each(|poller, events| {
        let waker = poller.waker().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let owned = poller.own(reader, Interest::READABLE).unwrap();
        assert_eq!(poller.wait(events, NOW).unwrap(), 0);
        let waiter = Waiter::this_thread();
        let thread = std::thread::spawn(move || {
            waiter.until_it_sleeps();
            drop(owned);
            // A poll in progress holds the file until the drop has woken it.
            let error = find("the file is closed", || writer.write_all(b"x").err());
            assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
            waker.wake().unwrap();
        });
        assert_eq!(poller.wait(events, LONG).unwrap(), 0);
        thread.join().unwrap();
        assert_eq!(poller.wait(events, NOW).unwrap(), 0);
        assert_eq!(poller.len(), 0);
    });
}

/// Whether a descriptor is readable within a time, in milliseconds.
fn readable(fd: impl AsFd, milliseconds: i32) -> bool {
    let mut slot = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one slot that outlives the call.
    unsafe { libc::poll(&mut slot, 1, milliseconds) == 1 }
}

#[test]
fn a_nested_poller_is_readable_when_it_has_something_to_deliver() {
    for kind in [BackendKind::Epoll, BackendKind::Adaptive] {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let mut events = Events::with_limit(16);
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = poller.own(reader, Interest::READABLE).unwrap();
        let outer = poller.nest().unwrap().try_clone_to_owned().unwrap();
        assert!(!readable(&outer, 0));

        writer.write_all(b"x").unwrap();
        assert!(readable(&outer, 1000));
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 1);
        std::io::Read::read_exact(&mut &*reader, &mut [0]).unwrap();
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
        assert!(!readable(&outer, 0));

        poller.mark_ready(reader.key(), Readiness::READABLE).unwrap();
        assert!(readable(&outer, 1000));
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 1);
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
        assert!(!readable(&outer, 0));

        let waker = poller.waker().unwrap();
        waker.wake().unwrap();
        assert!(readable(&outer, 1000));
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
        assert!(events.woken());
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
        assert!(!events.woken());
        assert!(!readable(&outer, 0));

        // A change is applied at once.
        let (second, mut other) = std::io::pipe().unwrap();
        other.write_all(b"x").unwrap();
        let second = poller.own(second, Interest::READABLE).unwrap();
        assert!(readable(&outer, 1000));
        drop(second);
        poller.wait(&mut events, NOW).unwrap();
        assert!(!readable(&outer, 0));

        // From another thread as well.
        let registrar = poller.registrar().unwrap();
        let (third, mut other) = std::io::pipe().unwrap();
        let third = registrar.own(third, Interest::READABLE).unwrap();
        assert!(readable(&outer, 1000));
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 0);
        other.write_all(b"x").unwrap();
        assert!(readable(&outer, 1000));
        assert_eq!(poller.wait(&mut events, NOW).unwrap(), 1);
        drop(third);
    }
}

#[test]
fn back_ends_without_a_kernel_object_cannot_be_nested() {
    for kind in [BackendKind::Select, BackendKind::Poll] {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let error = poller.nest().unwrap_err().to_string();
        assert!(error.contains(kind.name()) && error.contains("use epoll or adaptive"), "{error}");
    }
}
