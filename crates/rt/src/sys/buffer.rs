//! Reading to buffers whose memory is not initialised.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
#[cfg(feature = "hyper")]
use std::task::{Poll, ready};

/// `read(2)`. That many bytes at the front of `room` are initialised then.
fn read(fd: BorrowedFd<'_>, room: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
    // SAFETY: the descriptor is open as long as it is borrowed, and `room` is memory to write to, of the
    // length given.
    let done = unsafe { libc::read(fd.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// `read(2)` to what hyper lends. Returns how many bytes were read.
#[cfg(feature = "hyper")]
pub(crate) fn read_to_cursor(
    fd: BorrowedFd<'_>,
    cursor: &mut hyper::rt::ReadBufCursor<'_>,
) -> io::Result<usize> {
    // SAFETY: the kernel writes bytes to it, which leaves initialised what was so.
    let room = unsafe { cursor.as_mut() };
    let done = read(fd, room)?;
    // SAFETY: that many bytes were written.
    unsafe { cursor.advance(done) };
    Ok(done)
}

/// Has `read` fill the front of what hyper lends, at most `limit` bytes, which are initialised first.
/// `read` returns how many it has filled.
#[cfg(feature = "hyper")]
pub(crate) fn read_initialised(
    cursor: &mut hyper::rt::ReadBufCursor<'_>,
    limit: usize,
    read: impl FnOnce(&mut [u8]) -> Poll<io::Result<usize>>,
) -> Poll<io::Result<()>> {
    let room = cursor.initialize_unfilled_to(limit.min(cursor.remaining()));
    let len = room.len();
    let done = ready!(read(room))?;
    assert!(done <= len, "a reader says that it has filled {done} bytes of {len}");
    // SAFETY: so many bytes are initialised, as was just checked.
    unsafe { cursor.advance(done) };
    Poll::Ready(Ok(()))
}

/// `read(2)` to what tokio lends. Returns how many bytes were read.
#[cfg(feature = "tokio")]
pub(crate) fn read_to_buf(
    fd: BorrowedFd<'_>,
    buffer: &mut tokio::io::ReadBuf<'_>,
) -> io::Result<usize> {
    // SAFETY: the kernel writes bytes to it, which leaves initialised what was so.
    let room = unsafe { buffer.unfilled_mut() };
    let done = read(fd, room)?;
    // SAFETY: that many bytes were written.
    unsafe { buffer.assume_init(done) };
    buffer.advance(done);
    Ok(done)
}
