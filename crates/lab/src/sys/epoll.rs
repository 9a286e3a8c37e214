//! `epoll(7)`.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// One event as the kernel writes it.
pub(crate) type Raw = libc::epoll_event;

/// Creates an epoll set.
pub(crate) fn create() -> io::Result<OwnedFd> {
    Ok(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?.0)
}

/// Adds a descriptor to a set under a number of the caller's.
pub(crate) fn add(set: &OwnedFd, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
    change(set.as_raw_fd(), Change::Add, fd, events, data)
}

/// A change of a descriptor in a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Adds the descriptor.
    Add,
    /// Watches it for other events.
    Modify,
    /// Removes it.
    Delete,
}

impl Change {
    /// Its number.
    pub(crate) const fn operation(self) -> i32 {
        match self {
            Change::Add => libc::EPOLL_CTL_ADD,
            Change::Modify => libc::EPOLL_CTL_MOD,
            Change::Delete => libc::EPOLL_CTL_DEL,
        }
    }
}

/// Makes one change of a set.
#[inline(always)]
pub(crate) fn change(
    set: RawFd,
    change: Change,
    fd: RawFd,
    events: u32,
    data: u64,
) -> io::Result<()> {
    let mut event = Raw { events, u64: data };
    // SAFETY: the kernel reads one event, which outlives the call.
    let returned = unsafe { libc::epoll_ctl(set, change.operation(), fd, &raw mut event) };
    Ok(Errno::result(returned).map(drop)?)
}

/// Fetches the ready descriptors, without waiting, and returns how many events were written.
pub(crate) fn look(set: RawFd, events: &mut [Raw]) -> io::Result<usize> {
    usize::try_from(wait_for(set, events, 0)).map_err(|_| io::Error::last_os_error())
}

/// Waits indefinitely and returns how many events were written; negative for an error, as the
/// kernel returns it.
#[inline(always)]
pub(crate) fn wait(set: RawFd, events: &mut [Raw]) -> i32 {
    wait_for(set, events, -1)
}

/// Like [`wait`], but for at most this many milliseconds.
#[inline(always)]
pub(crate) fn wait_for(set: RawFd, events: &mut [Raw], milliseconds: i32) -> i32 {
    // SAFETY: the kernel writes at most as many events as the slice has.
    unsafe { libc::epoll_wait(set, events.as_mut_ptr(), events.len() as i32, milliseconds) }
}

/// Tries to map a set, as is possible for a descriptor whose driver shares memory with a program.
pub(crate) fn map(set: &OwnedFd) -> io::Result<()> {
    const LENGTH: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
    // SAFETY: a new mapping at an address that the kernel chooses; it is never read and is unmapped
    // at once.
    unsafe {
        let mapped = mmap(None, LENGTH, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, set, 0)?;
        Ok(munmap(mapped, LENGTH.get())?)
    }
}
