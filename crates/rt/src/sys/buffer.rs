//! Reading to buffers whose memory is not initialised.

use std::io;
use std::os::fd::BorrowedFd;
#[cfg(feature = "hyper")]
use std::task::{Poll, ready};

use superpoll::call;

/// Reads (`read(2)`) into the buffer that hyper lends. Returns how many bytes were read.
#[cfg(feature = "hyper")]
pub(crate) fn read_to_cursor(
    fd: BorrowedFd<'_>,
    cursor: &mut hyper::rt::ReadBufCursor<'_>,
) -> io::Result<usize> {
    // SAFETY: the kernel writes bytes to it, so bytes that were initialised stay initialised.
    let room = unsafe { cursor.as_mut() };
    let done = call::read_to(fd, room)?.len();
    // SAFETY: that many bytes were written.
    unsafe { cursor.advance(done) };
    Ok(done)
}

/// Makes `read` fill the front of the buffer that hyper lends, at most `limit` bytes, which are
/// initialised first. `read` returns how many bytes it has filled.
#[cfg(feature = "hyper")]
pub(crate) fn read_initialised(
    cursor: &mut hyper::rt::ReadBufCursor<'_>,
    limit: usize,
    read: impl FnOnce(&mut [u8]) -> Poll<io::Result<usize>>,
) -> Poll<io::Result<()>> {
    let room = cursor.initialize_unfilled_to(limit.min(cursor.remaining()));
    let len = room.len();
    let done = ready!(read(room))?;
    assert!(done <= len, "a reader claims to have filled {done} bytes of a buffer of {len}");
    // SAFETY: that many bytes are initialised, as was just checked.
    unsafe { cursor.advance(done) };
    Poll::Ready(Ok(()))
}

/// Reads (`read(2)`) into the buffer that tokio lends. Returns how many bytes were read.
#[cfg(feature = "tokio")]
pub(crate) fn read_to_buf(
    fd: BorrowedFd<'_>,
    buffer: &mut tokio::io::ReadBuf<'_>,
) -> io::Result<usize> {
    // SAFETY: the kernel writes bytes to it, so bytes that were initialised stay initialised.
    let room = unsafe { buffer.unfilled_mut() };
    let done = call::read_to(fd, room)?.len();
    // SAFETY: that many bytes were written.
    unsafe { buffer.assume_init(done) };
    buffer.advance(done);
    Ok(done)
}
