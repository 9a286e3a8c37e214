//! Moving bytes from descriptor to descriptor within the kernel.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// The most bytes that one call moves (`MAX_RW_COUNT` of the kernel).
const MOST: usize = 0x7fff_f000;

fn outcome(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Calls `splice(2)` (Linux 2.6.17) without offsets and without blocking on the pipe.
pub(crate) fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
    // SAFETY: both offsets are null, so that the call touches no memory of ours.
    let result = unsafe {
        libc::splice(
            from.as_raw_fd(),
            ptr::null_mut(),
            to.as_raw_fd(),
            ptr::null_mut(),
            length.min(MOST),
            libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE,
        )
    };
    outcome(result)
}

/// Calls `recv(2)` and leaves the bytes where they are (`MSG_PEEK`).
pub(crate) fn peek(socket: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    let (start, flags) = (room.as_mut_ptr().cast(), libc::MSG_PEEK | libc::MSG_DONTWAIT);
    // SAFETY: the kernel writes into the buffer, and not beyond its length.
    outcome(unsafe { libc::recv(socket.as_raw_fd(), start, room.len(), flags) })
}

/// Calls `sendfile(2)` from an offset; the file's own position stays.
pub(crate) fn sendfile(
    from: &File,
    offset: u64,
    to: BorrowedFd<'_>,
    length: usize,
) -> io::Result<usize> {
    let mut offset = libc::off64_t::try_from(offset).map_err(|_| {
        let text = format!("sending a file from offset {offset}: no file is that long");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    // SAFETY: `offset` may be written to for the length of the call.
    let result = unsafe {
        libc::sendfile64(to.as_raw_fd(), from.as_raw_fd(), &raw mut offset, length.min(MOST))
    };
    outcome(result)
}

/// Returns whether one descriptor can be read and the other written without blocking (`poll(2)`).
pub(crate) fn ready(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<(bool, bool)> {
    let slot = |fd: BorrowedFd<'_>, events| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let mut slots = [slot(from, libc::POLLIN), slot(to, libc::POLLOUT)];
    // SAFETY: the array has as many slots as its length says, and lives for the length of the call.
    let result = unsafe { libc::poll(slots.as_mut_ptr(), slots.len() as libc::nfds_t, 0) };
    outcome(result as isize).map(|_| (slots[0].revents != 0, slots[1].revents != 0))
}
