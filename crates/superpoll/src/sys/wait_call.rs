//! The one system call of a wait, prepared in one place and made in another.
//!
//! Each function that is returned from after a system call, and was called before it, costs a
//! mispredicted return (`returns.rs` says more). So a back-end does not make the call. It describes
//! the call as a [`WaitCall`]. The poller makes the call from a function that is inlined into the
//! loop of the caller, and then calls the back-end again with the answer, which is predicted.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::stats::Calls;
use crate::sys::call;
use crate::sys::epoll::Raw;
use crate::sys::poll::{Slot, round_up};
#[cfg(feature = "uring")]
use crate::sys::uring;

#[derive(Clone, Copy, Debug)]
enum Name {
    EpollWait,
    EpollPwait2,
    Poll,
    Ppoll,
    /// With the numbers of changes and completions, flags, and the time to gather, in microseconds.
    #[cfg(feature = "uring")]
    Ring(u32, u32, u32, u32),
}

/// `struct io_uring_getevents_arg`.
#[cfg(feature = "uring")]
#[derive(Default)]
#[repr(C)]
pub(super) struct RingArgument {
    pub signal_mask: u64,
    pub signal_mask_size: u32,
    /// Microseconds, before Linux 6.12 reserved.
    pub min_wait: u32,
    /// The address of a `struct timespec`, or zero.
    pub time: u64,
}

/// A system call that waits for descriptors, with its arguments: `epoll_wait(2)` or `poll(2)`.
#[derive(Debug)]
#[must_use = "a call that is not issued leaves the back-end without an answer"]
pub struct WaitCall<'a> {
    name: Name,
    /// The epoll set, or nothing.
    set: libc::c_int,
    /// Where the kernel writes, and how many entries there are.
    memory: *mut libc::c_void,
    room: usize,
    milliseconds: libc::c_int,
    time: libc::timespec,
    borrowed: PhantomData<(BorrowedFd<'a>, &'a mut ())>,
}

/// Newer machines have only the call with a signal mask; a null one leaves the mask as it is.
#[cfg(target_arch = "x86_64")]
const EPOLL_WAIT: libc::c_long = libc::SYS_epoll_wait;
#[cfg(not(target_arch = "x86_64"))]
const EPOLL_WAIT: libc::c_long = libc::SYS_epoll_pwait;

const NO_TIME: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

impl<'a> WaitCall<'a> {
    /// `epoll_wait` with all of the buffer, which must not be empty; with whole nanoseconds
    /// (`epoll_pwait2`, Linux 5.11) if there is a timeout and it is not zero.
    #[inline(always)]
    pub(crate) fn epoll(
        calls: &mut Calls,
        set: BorrowedFd<'a>,
        buffer: &'a mut [Raw],
        timeout: Option<Duration>,
    ) -> WaitCall<'a> {
        let (name, milliseconds, time) = match timeout {
            Some(timeout) if !timeout.is_zero() => {
                calls.epoll_pwait2 += 1;
                (Name::EpollPwait2, 0, super::timespec(timeout))
            }
            timeout => {
                calls.epoll_wait += 1;
                (Name::EpollWait, round_up(timeout), NO_TIME)
            }
        };
        let (memory, room) = (buffer.as_mut_ptr().cast(), buffer.len());
        let set = set.as_raw_fd();
        WaitCall { name, set, memory, room, milliseconds, time, borrowed: PhantomData }
    }

    /// As [`epoll`](WaitCall::epoll), for kernels without `epoll_pwait2`: the timeout is rounded up
    /// to milliseconds.
    pub(crate) fn epoll_in_milliseconds(
        calls: &mut Calls,
        set: BorrowedFd<'a>,
        buffer: &'a mut [Raw],
        timeout: Option<Duration>,
    ) -> WaitCall<'a> {
        let call = WaitCall::epoll(calls, set, buffer, None);
        WaitCall { milliseconds: round_up(timeout), ..call }
    }

    /// `poll`, or `ppoll` if there is a timeout and it is not zero.
    #[inline(always)]
    pub(crate) fn poll(
        calls: &mut Calls,
        slots: &'a mut [Slot],
        timeout: Option<Duration>,
    ) -> WaitCall<'a> {
        let (name, milliseconds, time) = match timeout {
            Some(timeout) if !timeout.is_zero() => {
                calls.ppoll += 1;
                (Name::Ppoll, 0, super::timespec(timeout))
            }
            timeout => {
                calls.poll += 1;
                (Name::Poll, round_up(timeout), NO_TIME)
            }
        };
        let (memory, room) = (slots.as_mut_ptr().cast(), slots.len());
        WaitCall { name, set: -1, memory, room, milliseconds, time, borrowed: PhantomData }
    }

    /// `io_uring_enter`: submits `changes`, and waits for completions until the timeout; after
    /// `min_wait` microseconds, if they are not zero, for one.
    #[cfg(feature = "uring")]
    #[inline]
    pub(crate) fn ring<R>(
        calls: &mut Calls,
        name: libc::c_int,
        ring: &'a mut R,
        (changes, completions): (u32, u32),
        flags: u32,
        (min_wait, timeout): (u32, Option<Duration>),
    ) -> WaitCall<'a> {
        calls.io_uring_enter += 1;
        let _borrowed = ring;
        let timeout = timeout.filter(|timeout| completions > 0 || !timeout.is_zero());
        let (room, time) = match timeout {
            Some(timeout) => (1, super::timespec(timeout)),
            None => (0, NO_TIME),
        };
        WaitCall {
            name: Name::Ring(changes, completions, flags, min_wait),
            set: name,
            memory: std::ptr::null_mut(),
            room,
            milliseconds: 0,
            time,
            borrowed: PhantomData,
        }
    }

    /// Makes the call. Returns the kernel's count of ready entries.
    ///
    /// # Errors
    ///
    /// The kernel's error, `EINTR` included.
    #[inline(always)]
    pub fn issue(mut self) -> io::Result<usize> {
        // SAFETY: the constructors have borrowed the memory, with its room, for as long as this
        // lives; the set is an open descriptor for as long.
        let answer = unsafe { self.call() };
        call::result(answer)
    }

    #[inline(always)]
    unsafe fn call(&mut self) -> isize {
        let time = &raw mut self.time as usize;
        let (memory, room) = (self.memory as usize, self.room);
        let (set, milliseconds) = (self.set as usize, self.milliseconds as usize);
        let (number, arguments) = match self.name {
            Name::EpollWait => (EPOLL_WAIT, [set, memory, room, milliseconds, 0, 0]),
            Name::EpollPwait2 => (libc::SYS_epoll_pwait2, [set, memory, room, time, 0, 0]),
            #[cfg(feature = "uring")]
            Name::Ring(changes, completions, flags, min_wait) => {
                let time = if room == 0 { 0 } else { time as u64 };
                let argument = RingArgument { min_wait, time, ..RingArgument::default() };
                let (flags, argument, size) = match (room, min_wait) {
                    (0, 0) => (flags, 0, 0),
                    _ => (
                        flags | uring::ENTER_EXT_ARG,
                        &raw const argument as usize,
                        size_of::<RingArgument>(),
                    ),
                };
                let (changes, completions) = (changes as usize, completions as usize);
                let arguments = [set, changes, completions, flags as usize, argument, size];
                // SAFETY: the argument and the time outlive the call; the ring is borrowed.
                return unsafe { call::call(libc::SYS_io_uring_enter, arguments) };
            }
            #[cfg(target_arch = "x86_64")]
            Name::Poll => (libc::SYS_poll, [memory, room, milliseconds, 0, 0, 0]),
            #[cfg(not(target_arch = "x86_64"))]
            Name::Poll if self.milliseconds < 0 => (libc::SYS_ppoll, [memory, room, 0, 0, 0, 0]),
            #[cfg(not(target_arch = "x86_64"))]
            Name::Poll => (libc::SYS_ppoll, [memory, room, time, 0, 0, 0]),
            Name::Ppoll => (libc::SYS_ppoll, [memory, room, time, 0, 0, 0]),
        };
        // SAFETY: as the caller promises.
        unsafe { call::call(number, arguments) }
    }
}
