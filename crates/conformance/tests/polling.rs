//! The findings of the contract's checks in polling.
//!
//! Each test asserts observed behaviour, so that it fails when polling changes; its name states
//! the behaviour. `docs/rivals.md` sorts the findings into defects and documented differences.

use std::io::{Write, pipe};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polling::{Event, Events, PollMode, Poller};
use superpoll_conformance::sys;

const ZERO: Option<Duration> = Some(Duration::ZERO);

fn setup() -> (Poller, Events) {
    (Poller::new().unwrap(), Events::new())
}

fn add(poller: &Poller, fd: &impl AsFd, event: Event, mode: PollMode) -> std::io::Result<()> {
    crate::ffi::add(poller, fd, event, mode)
}

fn keys(poller: &Poller, events: &mut Events) -> Vec<usize> {
    events.clear();
    poller.wait(events, ZERO).unwrap();
    events.iter().map(|event| event.key).collect()
}

/// Registering is unsafe in polling: a source must be removed before it is closed.
mod ffi {
    use std::os::fd::{AsFd, AsRawFd};

    use polling::{Event, PollMode, Poller};

    pub(crate) fn add(
        poller: &Poller,
        fd: &impl AsFd,
        event: Event,
        mode: PollMode,
    ) -> std::io::Result<()> {
        let raw = fd.as_fd().as_raw_fd();
        // SAFETY: the tests remove each source, or drop the poller, before they close it. A test
        // that closes first on purpose examines the kernel's registration, and the poller on epoll
        // keeps no reference to the source itself.
        unsafe { poller.add_with_mode(raw, event, mode) }
    }
}

#[test]
fn modes_behave_as_with_epoll() {
    let (poller, mut events) = setup();
    let (reader, mut writer) = pipe().unwrap();
    add(&poller, &reader, Event::readable(1), PollMode::Level).unwrap();
    writer.write_all(b"x").unwrap();
    assert_eq!(keys(&poller, &mut events), [1]);
    assert_eq!(keys(&poller, &mut events), [1], "level");
    poller.modify_with_mode(&reader, Event::readable(1), PollMode::Edge).unwrap();
    assert_eq!(keys(&poller, &mut events), [1], "edge");
    assert_eq!(keys(&poller, &mut events), []);
    poller.modify_with_mode(&reader, Event::readable(1), PollMode::Oneshot).unwrap();
    assert_eq!(keys(&poller, &mut events), [1], "one-shot");
    assert_eq!(keys(&poller, &mut events), []);
}

#[test]
fn a_full_buffer_is_an_invalid_argument() {
    let (poller, _) = setup();
    let mut events = Events::with_capacity(NonZeroUsize::new(1).unwrap());
    let (reader, mut writer) = pipe().unwrap();
    add(&poller, &reader, Event::readable(1), PollMode::Level).unwrap();
    writer.write_all(b"x").unwrap();
    assert_eq!(poller.wait(&mut events, ZERO).unwrap(), 1);
    // A wait appends, and asks the kernel for as many events as there is room for: none.
    let second = poller.wait(&mut events, ZERO);
    assert_eq!(second.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    events.clear();
    assert_eq!(poller.wait(&mut events, ZERO).unwrap(), 1, "a cleared buffer works");
}

#[test]
fn two_sources_may_share_a_key() {
    let (poller, mut events) = setup();
    let (first, mut first_writer) = pipe().unwrap();
    let (second, mut second_writer) = pipe().unwrap();
    add(&poller, &first, Event::readable(1), PollMode::Level).unwrap();
    add(&poller, &second, Event::readable(1), PollMode::Level).unwrap();
    first_writer.write_all(b"x").unwrap();
    second_writer.write_all(b"x").unwrap();
    assert_eq!(keys(&poller, &mut events), [1, 1]);
}

#[test]
fn regular_files_are_refused() {
    let (poller, _) = setup();
    let file = sys::regular_file().unwrap();
    let refused = add(&poller, &file, Event::readable(1), PollMode::Level);
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EPERM));
}

#[test]
fn a_registration_for_nothing_rings_when_the_peer_hangs_up() {
    let (poller, mut events) = setup();
    let (reader, writer) = pipe().unwrap();
    add(&poller, &reader, Event::none(1), PollMode::Level).unwrap();
    assert_eq!(keys(&poller, &mut events), []);
    drop(writer);
    for _ in 0..3 {
        assert_eq!(keys(&poller, &mut events), [1], "in every wait: a loop on it spins");
        let event = events.iter().next().unwrap();
        assert!(event.readable && event.writable, "and claims both directions, asked for or not");
    }
}

#[test]
fn a_one_shot_hang_up_does_not_ring_again() {
    let (poller, mut events) = setup();
    let (reader, writer) = pipe().unwrap();
    add(&poller, &reader, Event::readable(1), PollMode::Oneshot).unwrap();
    drop(writer);
    assert_eq!(keys(&poller, &mut events), [1]);
    assert_eq!(keys(&poller, &mut events), []);
}

#[test]
fn a_signal_is_retried_with_the_deadline_kept() {
    sys::handle_interrupts().unwrap();
    let (poller, mut events) = setup();
    let over = AtomicBool::new(false);
    let waiter = sys::this_thread();
    let timeout = Duration::from_millis(20);
    let begin = Instant::now();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                sys::interrupt(waiter);
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let outcome = poller.wait(&mut events, Some(timeout));
        over.store(true, Ordering::Release);
        outcome
    });
    assert_eq!(outcome.unwrap(), 0);
    assert!(begin.elapsed() >= timeout);
}

#[test]
fn a_duplicate_keeps_a_closed_registration_alive() {
    let (poller, mut events) = setup();
    let (reader, mut writer) = pipe().unwrap();
    let reader = sys::duplicate_from(&reader, 820).unwrap();
    let kept_open = reader.try_clone().unwrap();
    let fd = reader.as_raw_fd();
    add(&poller, &reader, Event::readable(1), PollMode::Level).unwrap();
    drop(reader);
    writer.write_all(b"x").unwrap();
    for _ in 0..3 {
        assert_eq!(keys(&poller, &mut events), [1], "events of the closed descriptor, without end");
    }
    assert!(!sys::is_open(fd));
    drop(kept_open);
}

#[test]
fn a_half_closed_stream_is_no_hang_up() {
    let (poller, mut events) = setup();
    let (left, right) = std::os::unix::net::UnixStream::pair().unwrap();
    add(&poller, &left, Event::writable(1), PollMode::Level).unwrap();
    right.shutdown(std::net::Shutdown::Write).unwrap();
    events.clear();
    poller.wait(&mut events, ZERO).unwrap();
    let event = events.iter().next().unwrap();
    // There is no way to ask for the read-closed condition by itself.
    assert!(event.writable && !event.readable && !event.is_interrupt());
}

#[test]
fn the_checks_that_polling_passes() {
    let (poller, mut events) = setup();
    let (reader, _writer) = pipe().unwrap();
    add(&poller, &reader, Event::readable(1), PollMode::Level).unwrap();
    let twice = add(&poller, &reader, Event::readable(2), PollMode::Level);
    assert_eq!(twice.unwrap_err().raw_os_error(), Some(libc::EEXIST), "duplicate registration");
    for _ in 0..3 {
        poller.notify().unwrap();
    }
    events.clear();
    let begin = Instant::now();
    poller.wait(&mut events, Some(Duration::from_secs(20))).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(20), "notifications before a wait end it");
    let begin = Instant::now();
    poller.wait(&mut events, Some(Duration::from_millis(2))).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(2), "once, and a timeout is not early");
    let mut small = Events::with_capacity(NonZeroUsize::new(1).unwrap());
    let mut pipes = Vec::new();
    for key in 10..15 {
        let (reader, mut writer) = pipe().unwrap();
        add(&poller, &reader, Event::readable(key), PollMode::Level).unwrap();
        writer.write_all(b"x").unwrap();
        pipes.push((reader, writer));
    }
    let mut seen: Vec<usize> = (0..5).flat_map(|_| keys(&poller, &mut small)).collect();
    seen.sort_unstable();
    assert_eq!(seen, [10, 11, 12, 13, 14], "each comes within its share of waits");
}
