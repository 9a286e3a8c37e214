//! Moving bytes from descriptor to descriptor within the kernel, without a copy through the
//! program.
//!
//! `splice(2)` says `EAGAIN` without saying which side it means: the source is empty, or the target
//! is full. Taking the one for the other would be a wait for ever, because a source that still
//! holds bytes is not reported again. So the refused call is followed by one look at both
//! (`poll(2)`), and only what is not ready is waited for.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, ready};

use superpoll::call;

use crate::fetch::AT_MOST;
use crate::link::{After, Link};
use crate::sources::Direction;
use crate::sys::{buffer, transfer};
use crate::tie::{Tie, Tied};

/// How often a refused call is repeated at once because both sides are ready after all.
const TRIES: u32 = 8;

/// What bytes can be moved from and to: streams, pipes, and any
/// [`AsyncFd`](crate::AsyncFd).
pub trait Endpoint: Tied {}

impl<T: Tied> Endpoint for T {}

/// Moves up to `length` bytes from one descriptor to another, at least one of which is a pipe
/// (`splice(2)`, Linux 2.6.17), and says how many: what there is, and what there is room for. Zero
/// is the end of the source, or a `length` of zero.
///
/// Cancel safe: while it is pending, nothing was moved.
///
/// # Errors
///
/// On an error nothing was moved: what was in the source still is. A target that has no room on its
/// disk takes what it can, which is a smaller number, and fails the next time (`StorageFull`, or
/// `FileTooLarge` at the process's limit, where `SIGXFSZ` ends a program that does not catch or
/// ignore it).
///
/// `InvalidInput` (`EINVAL`) if neither is a pipe or one cannot be spliced, `BrokenPipe` if nobody
/// reads the target, and what else `splice(2)` says. A socket as a target that its peer has closed
/// raises `SIGPIPE`, which programs in Rust ignore from their start.
pub async fn splice(from: &impl Endpoint, to: &impl Endpoint, length: usize) -> io::Result<usize> {
    poll_fn(|cx| poll_splice(cx, from, to, length)).await
}

/// Like [`splice`], for what implements `Future` by hand.
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
    let Tie { fd: source, link: source_link } = from.tie();
    let Tie { fd: target, link: target_link } = to.tie();
    for _ in 0..TRIES {
        let source_tick = ready!(source_link.poll_ready(cx, source, Direction::Read))?;
        let target_tick = ready!(target_link.poll_ready(cx, target, Direction::Write))?;
        if let Some(fetched) = source_link.fetched() {
            // What was read for a read that was given up comes first.
            let outcome = fetched
                .give_to(|bytes| superpoll::call::write(target, &bytes[..bytes.len().min(length)]));
            match outcome.map(|(outcome, _)| outcome) {
                Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    target_link.clear(Direction::Write, target_tick);
                    continue;
                }
                Some(outcome) => return Poll::Ready(outcome),
                None => {}
            }
        }
        match transfer::splice(source, target, length) {
            Ok(moved) => {
                source_link.acted();
                target_link.acted();
                if moved > 0 {
                    source_link.finish(source, Direction::Read, source_tick, After::Ready);
                    target_link.finish(target, Direction::Write, target_tick, After::Ready);
                }
                return Poll::Ready(Ok(moved));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let (readable, writable) = transfer::ready(source, target)?;
                if readable && call::is_at_mark(source) {
                    read_over_mark(source, source_link, length)?;
                    continue;
                }
                if !readable {
                    source_link.clear(Direction::Read, source_tick);
                }
                if !writable {
                    target_link.clear(Direction::Write, target_tick);
                }
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// `splice(2)` does not pass an urgent byte of TCP, though what is behind it is reported: a read
/// leaves that byte out, and what it takes of the stream comes first from then on.
#[cold]
fn read_over_mark(source: BorrowedFd<'_>, link: &Link, length: usize) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(length.clamp(1, AT_MOST));
    match buffer::read_to_vec(source, &mut bytes) {
        Ok(0) => Ok(()),
        Ok(_) => {
            link.put_back(Ok(bytes));
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sends up to `length` bytes of a file from an offset (`sendfile(2)`) and says how many: what
/// there is room for. Zero is the end of the file, or a `length` of zero. The file's position stays
/// as it is.
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
/// `InvalidInput` for what cannot be mapped into memory, such as a pipe, or for an offset beyond
/// what a file can have; what else `sendfile(2)` says.
pub async fn sendfile(
    file: &File,
    offset: u64,
    to: &impl Endpoint,
    length: usize,
) -> io::Result<usize> {
    poll_fn(|cx| poll_sendfile(cx, file, offset, to, length)).await
}

/// Like [`sendfile`], for what implements `Future` by hand.
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
    let Tie { fd: target, link } = to.tie();
    link.poll(cx, target, Direction::Write, || {
        transfer::sendfile(file, offset, target, length).map(|sent| (sent, After::Ready))
    })
}
