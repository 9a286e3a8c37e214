//! `epoll_create1`, `epoll_ctl`, `epoll_wait` and `epoll_pwait2`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::stats::Calls;

/// One event as the kernel writes it.
pub type Raw = libc::epoll_event;

/// What to do with a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Add,
    Modify,
    Delete,
}

/// A new epoll instance, close-on-exec.
pub fn create(calls: &mut Calls) -> io::Result<OwnedFd> {
    calls.epoll_create += 1;
    // SAFETY: takes a flag, touches no memory.
    let fd = super::check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the kernel just made this descriptor for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds, changes or removes a descriptor.
pub fn control(
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
    // SAFETY: the kernel reads one epoll_event, which outlives the call.
    super::check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd, &mut event) }).map(drop)
}

/// Waits until the timeout (`None`: for ever) and appends at most `room` events to the buffer,
/// which is emptied first. Returns how many there are.
// Inlined, as is what calls it: what some processors do against speculation at the entry to the
// kernel makes them mispredict the return from each function that a system call was made in.
#[inline(always)]
pub fn wait(
    calls: &mut Calls,
    epoll: BorrowedFd<'_>,
    buffer: &mut Vec<Raw>,
    room: usize,
    timeout: Option<Duration>,
) -> io::Result<usize> {
    buffer.clear();
    let room = acceptable(room);
    buffer.reserve(room);
    let epoll = epoll.as_raw_fd();
    let milliseconds = match timeout {
        None => -1,
        Some(Duration::ZERO) => 0,
        Some(timeout) => {
            static UNKNOWN: AtomicBool = AtomicBool::new(false);
            return wait_nanoseconds(calls, epoll, buffer, room, timeout, &UNKNOWN);
        }
    };
    wait_milliseconds(calls, epoll, buffer, room, milliseconds)
}

/// How many events the kernel lets itself be asked for: not none, and not more than it can count
/// in bytes (`EINVAL`).
#[inline(always)]
fn acceptable(room: usize) -> usize {
    room.clamp(1, i32::MAX as usize / size_of::<Raw>())
}

/// `unknown`: whether this kernel was found not to know `epoll_pwait2`.
fn wait_nanoseconds(
    calls: &mut Calls,
    epoll: RawFd,
    buffer: &mut Vec<Raw>,
    room: usize,
    timeout: Duration,
    unknown: &AtomicBool,
) -> io::Result<usize> {
    if !unknown.load(Ordering::Relaxed) {
        calls.epoll_pwait2 += 1;
        let time = super::timespec(timeout);
        // SAFETY: the buffer has room for `room` events, the timespec outlives the call, and a
        // null signal mask is allowed.
        let count = super::check(unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                epoll,
                buffer.as_mut_ptr(),
                room as libc::c_int,
                &raw const time,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            ) as libc::c_int
        });
        match count {
            Err(error) if is_unknown_call(&error) => unknown.store(true, Ordering::Relaxed),
            count => {
                let count = count? as usize;
                // SAFETY: the kernel has written `count` events.
                unsafe { buffer.set_len(count) };
                return Ok(count);
            }
        }
    }
    wait_milliseconds(calls, epoll, buffer, room, super::poll::round_up(Some(timeout)))
}

/// Whether this is the answer to a call that the kernel, or a seccomp profile (`EPERM`), does not
/// know.
fn is_unknown_call(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

#[inline(always)]
fn wait_milliseconds(
    calls: &mut Calls,
    epoll: RawFd,
    buffer: &mut Vec<Raw>,
    room: usize,
    milliseconds: libc::c_int,
) -> io::Result<usize> {
    calls.epoll_wait += 1;
    // SAFETY: the caller has reserved room for `room` events.
    let count = super::check(unsafe {
        libc::epoll_wait(epoll, buffer.as_mut_ptr(), room as libc::c_int, milliseconds)
    })? as usize;
    // SAFETY: the kernel has written `count` events.
    unsafe { buffer.set_len(count) };
    Ok(count)
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
            assert!(buffer.is_empty() && buffer.capacity() >= room.max(1));
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
    fn nanoseconds_are_waited_for_unless_the_kernel_does_not_know_how() {
        let (set, reader, _writer) = set();
        let mut buffer = Vec::with_capacity(1);
        let soon = Duration::from_micros(1);
        let mut wait = |fd: RawFd, unknown: &AtomicBool| {
            let mut calls = Calls::default();
            let outcome = wait_nanoseconds(&mut calls, fd, &mut buffer, 1, soon, unknown);
            (outcome, calls.epoll_pwait2, calls.epoll_wait)
        };
        let unknown = AtomicBool::new(false);
        let (outcome, exact, _) = wait(set.as_raw_fd(), &unknown);
        assert_eq!((outcome.unwrap(), exact), (0, 1));
        let known = !unknown.into_inner();
        let (outcome, exact, coarse) = wait(set.as_raw_fd(), &AtomicBool::new(true));
        assert_eq!((outcome.unwrap(), exact, coarse), (0, 0, 1));
        // Another failure is told, and is no reason to do without from now on.
        let unknown = AtomicBool::new(false);
        let (outcome, exact, coarse) = wait(reader.as_raw_fd(), &unknown);
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!((exact, coarse), (1, u64::from(!known)));
        assert_eq!(unknown.into_inner(), !known);
        let errors = [libc::ENOSYS, libc::EPERM, libc::EINTR, libc::EINVAL, libc::EBADF];
        let unknown = errors.map(|number| is_unknown_call(&io::Error::from_raw_os_error(number)));
        assert_eq!(unknown, [true, true, false, false, false]);
    }
}
