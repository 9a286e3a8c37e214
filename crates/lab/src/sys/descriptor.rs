//! Descriptors: pairs of them, and reading and writing them.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

fn both([reader, writer]: [RawFd; 2]) -> (OwnedFd, OwnedFd) {
    // SAFETY: both numbers came from a successful call that made them, and have no other owner.
    unsafe { (OwnedFd::from_raw_fd(reader), OwnedFd::from_raw_fd(writer)) }
}

/// Returns a pipe: the end to read and the end to write, both non-blocking.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors into an array of two.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) })?;
    Ok(both(ends))
}

/// Returns a pair of connected Unix-domain stream sockets, both non-blocking.
pub(crate) fn unix_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two descriptors into an array of two.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    Ok(both(ends))
}

fn set_option(fd: &OwnedFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: the kernel reads `length` bytes of `value`, which outlives the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), length) })
        .map(drop)
}

/// Chooses the congestion control of a TCP socket by name.
pub(crate) fn set_congestion(fd: &OwnedFd, name: &str) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())
}

/// Makes a close reset the connection, so that no port stays occupied for a minute after it.
pub(crate) fn reset_on_close(fd: &OwnedFd) -> io::Result<()> {
    let linger = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
    set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

/// Moves a descriptor to the lowest free number that is not below `floor`.
pub(crate) fn move_to(fd: OwnedFd, floor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes and returns numbers; the new one has no owner yet.
    unsafe {
        let moved = check(libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, floor))?;
        Ok(OwnedFd::from_raw_fd(moved))
    }
}

/// Reads one byte; `None` if there is none.
#[inline(always)]
pub(crate) fn read_byte(fd: RawFd) -> Option<u8> {
    let mut byte = 0u8;
    // SAFETY: the kernel writes at most one byte into one byte.
    let count = unsafe { libc::read(fd, (&raw mut byte).cast(), 1) };
    (count == 1).then_some(byte)
}

/// Writes one byte; returns whether it was taken.
#[inline(always)]
pub(crate) fn write_byte(fd: RawFd, byte: u8) -> bool {
    // SAFETY: the kernel reads one byte of one byte.
    unsafe { libc::write(fd, (&raw const byte).cast(), 1) == 1 }
}

/// Reads eight bytes that were written at once; `None` if they are not there.
pub(crate) fn read_word(fd: RawFd) -> Option<u64> {
    let mut word = [0u8; 8];
    // SAFETY: the kernel writes at most eight bytes into eight.
    let count = unsafe { libc::read(fd, word.as_mut_ptr().cast(), 8) };
    (count == 8).then(|| u64::from_ne_bytes(word))
}

/// Writes eight bytes at once; returns whether they were taken.
pub(crate) fn write_word(fd: RawFd, word: u64) -> bool {
    let word = word.to_ne_bytes();
    // SAFETY: the kernel reads eight bytes of eight.
    unsafe { libc::write(fd, word.as_ptr().cast(), 8) == 8 }
}

/// Duplicates a descriptor under the lowest free number.
pub(crate) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes and returns numbers; the new one has no owner yet.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0))?)) }
}

/// Sets whether reads of a descriptor block.
pub(crate) fn set_blocking(fd: RawFd, blocking: bool) -> io::Result<()> {
    // SAFETY: both calls take and return integers.
    unsafe {
        let flags = check(libc::fcntl(fd, libc::F_GETFL))?;
        let flags = if blocking { flags & !libc::O_NONBLOCK } else { flags | libc::O_NONBLOCK };
        check(libc::fcntl(fd, libc::F_SETFL, flags)).map(drop)
    }
}

/// Leaves a descriptor open in the program that this process becomes or starts.
pub(crate) fn keep_on_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: the call takes and returns integers.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }).map(drop)
}

/// Reads up to as many bytes as the buffer has and returns how many; negative for an error, as the
/// kernel returns it.
#[inline(always)]
pub(crate) fn read(fd: RawFd, buffer: &mut [u8]) -> isize {
    // SAFETY: the kernel writes at most the length of the slice into it.
    unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) }
}

/// Writes bytes and returns how many were taken; negative for an error, as the kernel returns it.
#[inline(always)]
pub(crate) fn write(fd: RawFd, bytes: &[u8]) -> isize {
    // SAFETY: the kernel reads at most the length of the slice from it.
    unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) }
}

/// Returns how many bytes can be read.
pub(crate) fn readable_bytes(fd: RawFd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one integer, which outlives the call.
    check(unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Closes all descriptors above standard error but these, which it sorts: for a forked child, which
/// owns them.
pub(crate) fn close_all_but(kept: &mut [RawFd]) {
    kept.sort_unstable();
    let mut first = 3;
    for &fd in kept.iter().chain([&RawFd::MAX]) {
        if first < fd {
            // SAFETY: the call takes integers; the caller guarantees that the child does not use
            // the closed descriptors. Where the kernel lacks the call, the copies stay open, which
            // does no harm.
            unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) };
        }
        first = first.max(fd.saturating_add(1));
    }
}

/// Closes a descriptor by number: for a forked child that has no other use of its copy.
pub(crate) fn close_number(fd: RawFd) {
    // SAFETY: the call takes an integer; the caller guarantees that the number is no longer used.
    unsafe { libc::close(fd) };
}
