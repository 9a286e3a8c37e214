//! Moving bytes from descriptor to descriptor within the kernel, without a copy through the
//! program.
//!
//! `splice(2)` returns `EAGAIN` without saying which side it means: the source is empty, or the
//! target is full. Mistaking one for the other would mean waiting indefinitely, because a source
//! that still holds bytes is not reported again. So one `poll(2)` of both sides follows the refused
//! call, and the operation waits only for the side that is not ready.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, ready};

use superpoll::call;

use crate::io_ref::{AsIoRef, IoRef};
use crate::io_registration::IoRegistration;
use crate::pipe;
use crate::short_reads::IoState;
use crate::sources::Direction;
use crate::sys::transfer;

/// The number of times that a refused call is repeated at once because both sides are ready after
/// all.
const TRIES: u32 = 8;

/// The most bytes that [`copy`] asks for at once. The size of the pipe, 64 KiB unless the system
/// says otherwise, is a limit too.
const MOST_AT_ONCE: usize = 1 << 20;

/// The most bytes that are moved over an urgent byte at once, which are copied.
const MOST_OVER_MARK: usize = 4096;

/// A source or target of moved bytes: a stream, a pipe, or any [`AsyncFd`](crate::AsyncFd).
pub trait Endpoint: AsIoRef {}

impl<T: AsIoRef> Endpoint for T {}

/// Moves up to `length` bytes from one descriptor to another, at least one of them a pipe
/// (`splice(2)`, Linux 2.6.17), and returns how many: as many as the source has, and the target has
/// room for. Zero is the end of the source, or a `length` of zero.
///
/// Cancel safe: while it is pending, nothing was moved.
///
/// # Errors
///
/// On an error nothing was moved: the source still has its bytes. A target that has no room on its
/// disk takes the bytes that it can, which is a smaller number, and fails the next time
/// (`StorageFull`, or `FileTooLarge` at the process's limit, where `SIGXFSZ` ends a program that
/// does not catch or ignore it).
///
/// `InvalidInput` (`EINVAL`) if neither is a pipe or one cannot be spliced, `BrokenPipe` if the
/// target has no reader, or any other error of `splice(2)`. A socket as a target that its peer has
/// closed raises `SIGPIPE`, which programs in Rust ignore from their start.
pub async fn splice(from: &impl Endpoint, to: &impl Endpoint, length: usize) -> io::Result<usize> {
    poll_fn(|cx| poll_splice(cx, from, to, length)).await
}

/// Like [`splice`], for futures written by hand.
///
/// # Errors
///
/// The same errors as [`splice`].
pub fn poll_splice(
    cx: &mut Context<'_>,
    from: &impl Endpoint,
    to: &impl Endpoint,
    length: usize,
) -> Poll<io::Result<usize>> {
    if length == 0 {
        return IoRegistration::poll_empty(cx, || Ok(0));
    }
    let IoRef { fd: source, registration: source_registration } = from.as_io_ref();
    let IoRef { fd: target, registration: target_registration } = to.as_io_ref();
    for _ in 0..TRIES {
        let source_tick = ready!(source_registration.poll_ready(cx, source, Direction::Read))?;
        let target_tick = ready!(target_registration.poll_ready(cx, target, Direction::Write))?;
        let mut outcome = transfer::splice(source, target, length);
        if is_blocked(&outcome) {
            let (readable, writable) = transfer::ready(source, target)?;
            if !readable {
                source_registration.clear(Direction::Read, source_tick);
            }
            if !writable {
                target_registration.clear(Direction::Write, target_tick);
            }
            if readable && writable && call::is_at_mark(source) {
                outcome = move_over_mark(source, target, length);
            }
        }
        match outcome {
            Ok(moved) => {
                source_registration.mark_used();
                target_registration.mark_used();
                if moved > 0 {
                    source_registration.finish(
                        source,
                        Direction::Read,
                        source_tick,
                        IoState::Ready,
                    );
                    target_registration.finish(
                        target,
                        Direction::Write,
                        target_tick,
                        IoState::Ready,
                    );
                }
                return Poll::Ready(Ok(moved));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Copies all bytes from one descriptor to another within the kernel, through a pipe of its own,
/// and returns how many when the source ends. The target stays open. For both directions of a
/// connection, await two copies at once, and end the writing direction of each target when its copy
/// is done.
///
/// ```
/// # use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// # use superpoll_rt::net::unix::UnixStream;
/// use superpoll_rt::transfer;
///
/// # superpoll_rt::Runtime::new()?.block_on(async {
/// # let (mut client, incoming) = UnixStream::pair()?;
/// # let (outgoing, mut server) = UnixStream::pair()?;
/// # client.write_all(b"through the kernel").await?;
/// # drop(client);
/// let copied = transfer::copy(&incoming, &outgoing).await?;
/// drop(outgoing);
/// # let mut text = String::new();
/// # server.read_to_string(&mut text).await?;
/// # assert_eq!((text.as_str(), copied), ("through the kernel", 18));
/// # std::io::Result::Ok(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Not cancel safe: bytes that were taken from the source and have not reached the target, at most
/// the capacity of a pipe, are lost with the future.
///
/// # Errors
///
/// Those of [`pipe`](crate::pipe::pipe), and of [`splice`] on either side. Bytes that were taken
/// from the source before an error of the target are lost.
pub async fn copy(from: &impl Endpoint, to: &impl Endpoint) -> io::Result<u64> {
    let (reader, writer) = pipe::pipe()?;
    let mut copied = 0;
    loop {
        let mut held = splice(from, &writer, MOST_AT_ONCE).await?;
        if held == 0 {
            return Ok(copied);
        }
        while held > 0 {
            let moved = splice(&reader, to, held).await?;
            if moved == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            held -= moved;
            copied += moved as u64;
        }
    }
}

fn is_blocked<T>(outcome: &io::Result<T>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Moves bytes over an urgent byte, through the program. `splice(2)` stops before an urgent byte of
/// TCP, though the bytes after it are reported; a read leaves that byte out. The source keeps the
/// bytes until the target has taken them, so none is lost where the target takes fewer.
#[cold]
fn move_over_mark(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    length: usize,
) -> io::Result<usize> {
    let mut bytes = vec![0; length.min(MOST_OVER_MARK)];
    let seen = transfer::peek(source, &mut bytes)?;
    let moved = if seen == 0 { 0 } else { call::write(target, &bytes[..seen])? };
    // At the end of the stream, a read of a byte that does not come takes the urgent one.
    let mut rest = &mut bytes[..moved.max(1)];
    loop {
        let taken = call::read(source, rest)?;
        rest = &mut rest[taken..];
        if taken == 0 || rest.is_empty() {
            return Ok(moved);
        }
    }
}

/// Sends up to `length` bytes of a file from an offset (`sendfile(2)`) and returns how many: as
/// many as there is room for. Zero is the end of the file, or a `length` of zero. The file's
/// position stays as it is.
///
/// Reading the file blocks the engine if its pages are not in memory; where that matters, read
/// ahead on the [blocking](crate::blocking) pool (`posix_fadvise(2)`).
///
/// Cancel safe: while it is pending, nothing was sent.
///
/// # Errors
///
/// On an error nothing was sent. A file as a target is filled up before it fails, as with
/// [`splice`].
///
/// `InvalidInput` for a source that cannot be mapped into memory, such as a pipe, or for an offset
/// beyond the largest that a file can have; any other error of `sendfile(2)`.
pub async fn sendfile(
    file: &File,
    offset: u64,
    to: &impl Endpoint,
    length: usize,
) -> io::Result<usize> {
    poll_fn(|cx| poll_sendfile(cx, file, offset, to, length)).await
}

/// Like [`sendfile`], for futures written by hand.
///
/// # Errors
///
/// The same errors as [`sendfile`].
pub fn poll_sendfile(
    cx: &mut Context<'_>,
    file: &File,
    offset: u64,
    to: &impl Endpoint,
    length: usize,
) -> Poll<io::Result<usize>> {
    let IoRef { fd: target, registration } = to.as_io_ref();
    if length == 0 {
        return IoRegistration::poll_empty(cx, || transfer::sendfile(file, offset, target, 0));
    }
    registration.poll(cx, target, Direction::Write, || {
        transfer::sendfile(file, offset, target, length).map(|sent| (sent, IoState::Ready))
    })
}
