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
    // The kernel refuses more than this (EINVAL), and zero.
    const MOST: usize = i32::MAX as usize / size_of::<Raw>();
    buffer.clear();
    let room = room.clamp(1, MOST);
    if buffer.capacity() < room {
        buffer.reserve(room);
    }
    let epoll = epoll.as_raw_fd();
    let milliseconds = match timeout {
        None => -1,
        Some(Duration::ZERO) => 0,
        Some(timeout) => return wait_nanoseconds(calls, epoll, buffer, room, timeout),
    };
    wait_milliseconds(calls, epoll, buffer, room, milliseconds)
}

fn wait_nanoseconds(
    calls: &mut Calls,
    epoll: RawFd,
    buffer: &mut Vec<Raw>,
    room: usize,
    timeout: Duration,
) -> io::Result<usize> {
    static NO_PWAIT2: AtomicBool = AtomicBool::new(false);
    if !NO_PWAIT2.load(Ordering::Relaxed) {
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
            // EPERM is what some seccomp profiles answer for calls they do not know.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                NO_PWAIT2.store(true, Ordering::Relaxed);
            }
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
