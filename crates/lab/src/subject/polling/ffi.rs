//! The one call of polling that the compiler cannot check.

use std::io;
use std::os::fd::RawFd;

use ::polling::{Event, PollMode, Poller};

/// Adds a reader that [`Polling`](super::Polling) deletes when it is dropped.
pub(super) fn add(poller: &mut Poller, fd: RawFd, key: usize, mode: PollMode) -> io::Result<()> {
    // SAFETY: the source must be deleted before it is closed. The only caller owns the poller
    // together with a borrow of the pairs that own `fd`, and deletes all of them in its drop.
    unsafe { poller.add_with_mode(fd, Event::readable(key), mode) }
}
