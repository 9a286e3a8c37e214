//! The findings of the contract's checks in mio.
//!
//! Each test asserts observed behaviour, so that it fails when mio changes; its name states the
//! behaviour. `docs/rivals.md` sorts the findings into defects and documented differences.

use std::io::{Write, pipe};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use superpoll_conformance::sys;

const ZERO: Option<Duration> = Some(Duration::ZERO);

fn setup() -> (Poll, Events) {
    (Poll::new().unwrap(), Events::with_capacity(16))
}

fn register(poll: &Poll, fd: RawFd, token: usize, interest: Interest) -> std::io::Result<()> {
    poll.registry().register(&mut SourceFd(&fd), Token(token), interest)
}

fn tokens(poll: &mut Poll, events: &mut Events) -> Vec<usize> {
    poll.poll(events, ZERO).unwrap();
    events.iter().map(|event| event.token().0).collect()
}

#[test]
fn arrivals_are_reported_and_states_are_not() {
    let (mut poll, mut events) = setup();
    let (reader, mut writer) = pipe().unwrap();
    register(&poll, reader.as_raw_fd(), 1, Interest::READABLE).unwrap();
    writer.write_all(b"x").unwrap();
    assert_eq!(tokens(&mut poll, &mut events), [1]);
    assert_eq!(tokens(&mut poll, &mut events), [], "there is no level-triggered mode");
    writer.write_all(b"x").unwrap();
    assert_eq!(tokens(&mut poll, &mut events), [1], "an arrival counts while still readable");
}

#[test]
fn two_sources_may_share_a_token() {
    let (mut poll, mut events) = setup();
    let (first, mut first_writer) = pipe().unwrap();
    let (second, mut second_writer) = pipe().unwrap();
    register(&poll, first.as_raw_fd(), 1, Interest::READABLE).unwrap();
    register(&poll, second.as_raw_fd(), 1, Interest::READABLE).unwrap();
    first_writer.write_all(b"x").unwrap();
    second_writer.write_all(b"x").unwrap();
    assert_eq!(tokens(&mut poll, &mut events), [1, 1]);
}

#[test]
fn regular_files_are_refused() {
    let (poll, _) = setup();
    let file = sys::regular_file().unwrap();
    let refused = register(&poll, file.as_raw_fd(), 1, Interest::READABLE);
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EPERM));
}

#[test]
fn short_timeouts_are_rounded_up_to_a_millisecond() {
    let (mut poll, mut events) = setup();
    let begin = Instant::now();
    poll.poll(&mut events, Some(Duration::from_micros(100))).unwrap();
    // On any machine, a timer of a millisecond does not end before.
    assert!(begin.elapsed() >= Duration::from_millis(1));
}

#[test]
fn a_signal_ends_a_wait_with_an_error() {
    sys::handle_interrupts().unwrap();
    let (mut poll, mut events) = setup();
    let over = AtomicBool::new(false);
    let waiter = sys::this_thread();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                sys::interrupt(waiter);
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let outcome = poll.poll(&mut events, Some(Duration::from_secs(20)));
        over.store(true, Ordering::Release);
        outcome
    });
    assert_eq!(outcome.unwrap_err().kind(), std::io::ErrorKind::Interrupted);
}

#[test]
fn a_buffer_without_room_is_an_invalid_argument() {
    let (mut poll, _) = setup();
    let outcome = poll.poll(&mut Events::with_capacity(0), ZERO);
    assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn a_duplicate_keeps_a_closed_registration_alive() {
    let (mut poll, mut events) = setup();
    let (reader, mut writer) = pipe().unwrap();
    let reader = sys::duplicate_from(&reader, 840).unwrap();
    let kept_open = reader.try_clone().unwrap();
    let fd = reader.as_raw_fd();
    register(&poll, fd, 1, Interest::READABLE).unwrap();
    drop(reader);
    for _ in 0..3 {
        writer.write_all(b"x").unwrap();
        assert_eq!(tokens(&mut poll, &mut events), [1], "events of the closed descriptor");
    }
    let gone = poll.registry().deregister(&mut SourceFd(&fd));
    assert_eq!(
        gone.unwrap_err().raw_os_error(),
        Some(libc::EBADF),
        "no call can end the registration"
    );
    drop(kept_open);
}

#[test]
fn an_event_outlives_deregistration_and_reuse_of_the_token() {
    let (mut poll, mut events) = setup();
    let (reader, mut writer) = pipe().unwrap();
    register(&poll, reader.as_raw_fd(), 1, Interest::READABLE).unwrap();
    writer.write_all(b"x").unwrap();
    poll.poll(&mut events, ZERO).unwrap();
    poll.registry().deregister(&mut SourceFd(&reader.as_raw_fd())).unwrap();
    let (other, _other_writer) = pipe().unwrap();
    register(&poll, other.as_raw_fd(), 1, Interest::READABLE).unwrap();
    // A token has no generation: an event that was fetched before is taken for the new source's.
    let late: Vec<usize> = events.iter().map(|event| event.token().0).collect();
    assert_eq!(late, [1]);
}

#[test]
fn read_closed_is_reported_without_being_asked_for() {
    let (mut poll, mut events) = setup();
    let (left, right) = UnixStream::pair().unwrap();
    register(&poll, left.as_raw_fd(), 1, Interest::READABLE).unwrap();
    right.shutdown(std::net::Shutdown::Write).unwrap();
    poll.poll(&mut events, ZERO).unwrap();
    assert!(events.iter().next().unwrap().is_read_closed());
}

#[test]
fn an_unchanged_interest_is_applied_again_and_repeats_the_edge() {
    let (mut poll, mut events) = setup();
    let (reader, mut writer) = pipe().unwrap();
    register(&poll, reader.as_raw_fd(), 1, Interest::READABLE).unwrap();
    writer.write_all(b"x").unwrap();
    assert_eq!(tokens(&mut poll, &mut events), [1]);
    let fd = reader.as_raw_fd();
    poll.registry().reregister(&mut SourceFd(&fd), Token(1), Interest::READABLE).unwrap();
    assert_eq!(tokens(&mut poll, &mut events), [1]);
}

#[test]
fn the_checks_that_mio_passes() {
    let (mut poll, mut events) = setup();
    let (reader, writer) = pipe().unwrap();
    let fd = reader.as_raw_fd();
    register(&poll, fd, 1, Interest::READABLE).unwrap();
    let twice = register(&poll, fd, 2, Interest::READABLE);
    assert_eq!(twice.unwrap_err().raw_os_error(), Some(libc::EEXIST), "duplicate registration");
    let negative = register(&poll, -1, 3, Interest::READABLE);
    assert_eq!(negative.unwrap_err().raw_os_error(), Some(libc::EBADF), "negative descriptor");
    drop(writer);
    poll.poll(&mut events, ZERO).unwrap();
    assert!(events.iter().next().unwrap().is_read_closed(), "a hang-up alone is reported");
    assert_eq!(tokens(&mut poll, &mut events), [], "and does not spin");
    let mut small = Events::with_capacity(1);
    let mut pipes = Vec::new();
    for token in 10..15 {
        let (reader, mut writer) = pipe().unwrap();
        register(&poll, reader.as_raw_fd(), token, Interest::READABLE).unwrap();
        writer.write_all(b"x").unwrap();
        pipes.push((reader, writer));
    }
    let mut seen: Vec<usize> = (0..5).flat_map(|_| tokens(&mut poll, &mut small)).collect();
    seen.sort_unstable();
    assert_eq!(seen, [10, 11, 12, 13, 14], "edges survive the limit");
    let waker = mio::Waker::new(poll.registry(), Token(99)).unwrap();
    for _ in 0..3 {
        waker.wake().unwrap();
    }
    assert_eq!(tokens(&mut poll, &mut events), [99], "wakes before a wait count as one");
    assert_eq!(tokens(&mut poll, &mut events), [], "once");
}
