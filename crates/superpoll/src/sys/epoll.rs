//! `epoll_create1`, `epoll_ctl`, `epoll_wait` and `epoll_pwait2`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::stats::Calls;
use crate::sys::call;
use crate::sys::wait_call::WaitCall;

/// One event as the kernel writes it.
pub(crate) type Raw = libc::epoll_event;

/// The change to make for a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Add,
    Modify,
    Delete,
}

/// A new epoll instance, close-on-exec.
pub(crate) fn create(calls: &mut Calls) -> io::Result<OwnedFd> {
    calls.epoll_create += 1;
    // SAFETY: takes a flag, touches no memory.
    let fd = super::check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the kernel just made this descriptor for us; no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds, changes or removes a descriptor.
pub(crate) fn control(
    calls: &mut Calls,
    epoll: BorrowedFd<'_>,
    operation: Operation,
    fd: RawFd,
    events: u32,
    data: u64,
) -> io::Result<()> {
    let operation = match operation {
        Operation::Add => {
            calls.epoll_ctl_add += 1;
            libc::EPOLL_CTL_ADD
        }
        Operation::Modify => {
            calls.epoll_ctl_mod += 1;
            libc::EPOLL_CTL_MOD
        }
        Operation::Delete => {
            calls.epoll_ctl_del += 1;
            libc::EPOLL_CTL_DEL
        }
    };
    let mut event = libc::epoll_event { events, u64: data };
    let event_at = &raw mut event as usize;
    let arguments = [epoll.as_raw_fd() as usize, operation as usize, fd as usize, event_at, 0, 0];
    // SAFETY: the kernel reads one epoll_event, which outlives the call.
    call::result(unsafe { call::call(libc::SYS_epoll_ctl, arguments) }).map(drop)
}

/// Whether this kernel was found not to know `epoll_pwait2` (Linux 5.11).
static WITHOUT_NANOSECONDS: AtomicBool = AtomicBool::new(false);

/// The contents of the buffer before the kernel has written anything.
const NOTHING: Raw = Raw { events: 0, u64: 0 };

/// The call that waits until the timeout (`None`: no limit) and writes at most `room` events to the
/// front of the buffer, which is made large enough.
#[inline(always)]
pub(crate) fn wait_call<'a>(
    calls: &mut Calls,
    epoll: BorrowedFd<'a>,
    buffer: &'a mut Vec<Raw>,
    room: usize,
    timeout: Option<Duration>,
) -> WaitCall<'a> {
    let room = acceptable(room);
    if buffer.len() < room {
        buffer.resize(room, NOTHING);
    }
    let buffer = &mut buffer[..room];
    match timeout {
        Some(timeout) if !timeout.is_zero() => timed(calls, epoll, buffer, timeout),
        timeout => WaitCall::epoll(calls, epoll, buffer, timeout),
    }
}

fn timed<'a>(
    calls: &mut Calls,
    epoll: BorrowedFd<'a>,
    buffer: &'a mut [Raw],
    timeout: Duration,
) -> WaitCall<'a> {
    if WITHOUT_NANOSECONDS.load(Ordering::Relaxed) {
        WaitCall::epoll_in_milliseconds(calls, epoll, buffer, Some(timeout))
    } else {
        WaitCall::epoll(calls, epoll, buffer, Some(timeout))
    }
}

/// Whether this answer only says that the kernel, or a seccomp profile (`EPERM`), does not know the
/// call with nanoseconds. The next wait then uses another call.
#[inline]
pub(crate) fn should_retry(answer: &io::Result<usize>) -> bool {
    match answer {
        Ok(_) => false,
        Err(error) => is_unknown_call(error) && !WITHOUT_NANOSECONDS.swap(true, Ordering::Relaxed),
    }
}

/// Asks and waits for the answer: how many events there are.
#[inline(always)]
pub(crate) fn wait(
    calls: &mut Calls,
    epoll: BorrowedFd<'_>,
    buffer: &mut Vec<Raw>,
    room: usize,
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let answer = wait_call(calls, epoll, buffer, room, timeout).issue();
    if should_retry(&answer) {
        return wait_call(calls, epoll, buffer, room, timeout).issue();
    }
    answer
}

/// How many events the kernel lets itself be asked for: not none, and not more than it can count
/// in bytes (`EINVAL`).
#[inline(always)]
fn acceptable(room: usize) -> usize {
    room.clamp(1, i32::MAX as usize / size_of::<Raw>())
}

fn is_unknown_call(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, PipeWriter, Write};
    use std::os::fd::AsFd;

    fn set() -> (OwnedFd, PipeReader, PipeWriter) {
        let mut calls = Calls::default();
        let (reader, writer) = io::pipe().unwrap();
        let set = create(&mut calls).unwrap();
        let (fd, bits) = (reader.as_raw_fd(), libc::EPOLLIN as u32);
        control(&mut calls, set.as_fd(), Operation::Add, fd, bits, 7).unwrap();
        assert_eq!((calls.epoll_create, calls.epoll_ctl_add, calls.total()), (1, 1, 2));
        (set, reader, writer)
    }

    #[test]
    fn the_kernel_is_asked_for_what_it_accepts() {
        assert_eq!((acceptable(0), acceptable(1), acceptable(5000)), (1, 1, 5000));
        let most = acceptable(usize::MAX);
        assert!(most * size_of::<Raw>() <= i32::MAX as usize);
        assert!((most + 1) * size_of::<Raw>() > i32::MAX as usize);
        let (set, _reader, _writer) = set();
        let mut buffer = Vec::new();
        let now = Some(Duration::ZERO);
        for room in [0, 1, 100, 3] {
            wait(&mut Calls::default(), set.as_fd(), &mut buffer, room, now).unwrap();
            assert!(buffer.len() >= room.max(1));
        }
    }

    #[test]
    fn a_wait_for_ever_ends_with_an_event() {
        let (set, _reader, mut writer) = set();
        let (mut calls, mut buffer) = (Calls::default(), Vec::new());
        let writing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            writer.write_all(b"x").unwrap();
            writer
        });
        assert_eq!(wait(&mut calls, set.as_fd(), &mut buffer, 4, None).unwrap(), 1);
        let data = buffer[0].u64;
        assert_eq!((data, calls.epoll_wait, calls.total()), (7, 1, 1));
        writing.join().unwrap();
    }

    #[test]
    fn only_an_unknown_call_is_asked_again_and_only_once() {
        let (set, reader, _writer) = set();
        let mut buffer = Vec::new();
        let soon = Duration::from_micros(1);
        let mut wait = |fd: BorrowedFd<'_>| {
            let mut calls = Calls::default();
            let outcome = wait(&mut calls, fd, &mut buffer, 1, Some(soon));
            (outcome, calls.epoll_pwait2, calls.epoll_wait)
        };
        let (outcome, exact, coarse) = wait(set.as_fd());
        assert_eq!(outcome.unwrap(), 0);
        assert!(exact + coarse >= 1);
        // Another failure is reported, and is no reason to do without from now on.
        let before = WITHOUT_NANOSECONDS.load(Ordering::Relaxed);
        let (outcome, ..) = wait(reader.as_fd());
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(WITHOUT_NANOSECONDS.load(Ordering::Relaxed), before);
        for number in [libc::EINTR, libc::EINVAL, libc::EBADF] {
            assert!(!should_retry(&Err(io::Error::from_raw_os_error(number))));
        }
        assert!(!should_retry(&Ok(1)));
        for number in [libc::ENOSYS, libc::EPERM] {
            WITHOUT_NANOSECONDS.store(false, Ordering::Relaxed);
            let refused = || Err(io::Error::from_raw_os_error(number));
            assert!(should_retry(&refused()));
            assert!(!should_retry(&refused()), "asked for ever");
        }
        let (outcome, exact, coarse) = wait(set.as_fd());
        assert_eq!((outcome.unwrap(), exact, coarse), (0, 0, 1));
        WITHOUT_NANOSECONDS.store(before, Ordering::Relaxed);
    }
}
