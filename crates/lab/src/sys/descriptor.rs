//! Descriptors: pairs of them, and reading and writing them.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, setsockopt, socketpair,
    sockopt::{Linger, TcpCongestion},
};
use nix::sys::stat::fstat;

/// Returns a pipe: the end to read and the end to write, both non-blocking.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(nix::unistd::pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)?)
}

/// Returns a pair of connected Unix-domain stream sockets, both non-blocking.
pub(crate) fn unix_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    Ok(socketpair(AddressFamily::Unix, SockType::Stream, None, flags)?)
}

/// Chooses the congestion control of a TCP socket by name.
pub(crate) fn set_congestion(fd: &OwnedFd, name: &str) -> io::Result<()> {
    Ok(setsockopt(fd, TcpCongestion, &OsString::from(name))?)
}

/// Makes a close reset the connection, so that no port stays occupied for a minute after it.
pub(crate) fn reset_on_close(fd: &OwnedFd) -> io::Result<()> {
    Ok(setsockopt(fd, Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?)
}

/// Moves a descriptor to the lowest free number that is not below `floor`.
pub(crate) fn move_to(fd: OwnedFd, floor: RawFd) -> io::Result<OwnedFd> {
    duplicate_from(fd.as_raw_fd(), floor)
}

fn duplicate_from(fd: RawFd, floor: RawFd) -> io::Result<OwnedFd> {
    let made = fcntl(borrowed(fd), FcntlArg::F_DUPFD_CLOEXEC(floor))?;
    // SAFETY: the call has made the descriptor, and it has no owner yet.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Borrows a descriptor for a call.
fn borrowed<'call>(fd: RawFd) -> BorrowedFd<'call> {
    // SAFETY: the callers here pass numbers of descriptors that are open, and keep the borrow for
    // one call only.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Reads one byte; `None` if there is none.
#[inline(always)]
pub(crate) fn read_byte(fd: RawFd) -> Option<u8> {
    let mut byte = [0];
    (read(fd, &mut byte) == 1).then_some(byte[0])
}

/// Writes one byte; returns whether it was taken.
#[inline(always)]
pub(crate) fn write_byte(fd: RawFd, byte: u8) -> bool {
    write(fd, &[byte]) == 1
}

/// Reads eight bytes that were written at once; `None` if they are not there.
pub(crate) fn read_word(fd: RawFd) -> Option<u64> {
    let mut word = [0; 8];
    (read(fd, &mut word) == 8).then(|| u64::from_ne_bytes(word))
}

/// Writes eight bytes at once; returns whether they were taken.
pub(crate) fn write_word(fd: RawFd, word: u64) -> bool {
    write(fd, &word.to_ne_bytes()) == 8
}

/// Duplicates a descriptor under the lowest free number.
pub(crate) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    duplicate_from(fd, 0)
}

/// Sets whether reads of a descriptor block.
pub(crate) fn set_blocking(fd: RawFd, blocking: bool) -> io::Result<()> {
    let mut flags = OFlag::from_bits_retain(fcntl(borrowed(fd), FcntlArg::F_GETFL)?);
    flags.set(OFlag::O_NONBLOCK, !blocking);
    fcntl(borrowed(fd), FcntlArg::F_SETFL(flags))?;
    Ok(())
}

/// Leaves a descriptor open in the program that this process becomes or starts.
pub(crate) fn keep_on_exec(fd: RawFd) -> io::Result<()> {
    fcntl(borrowed(fd), FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
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

/// Whether a descriptor is a pipe or a socket.
pub(crate) fn is_pipe_or_socket(fd: RawFd) -> bool {
    let kind = |mode| mode & libc::S_IFMT;
    fstat(borrowed(fd))
        .is_ok_and(|stat| matches!(kind(stat.st_mode), libc::S_IFIFO | libc::S_IFSOCK))
}

/// Returns how many bytes can be read.
pub(crate) fn readable_bytes(fd: RawFd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one integer, which outlives the call.
    Errno::result(unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut count) })?;
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
    let _ = nix::unistd::close(fd);
}
