//! Reads and writes that are carried out together, with the next wait, instead of one call each.
//!
//! A read of a few bytes costs less than the way into the kernel and back. A back-end that can hand
//! over many at once (`uring`) takes [`Action`]s with their memory, carries them out when it next
//! asks the kernel for events anyway, and gives the memory back in [`Completion`]s, next to the
//! events. No action waits: an action that would block ends with
//! [`WouldBlock`](std::io::ErrorKind::WouldBlock) in that same wait, as the system call of a
//! non-blocking descriptor does, so nothing is ever under way between two waits and an idle
//! descriptor owns no memory.
//!
//! [`BatchReader`](crate::batch::BatchReader) reads this way; so does a runtime that has several tasks
//! due. The order stays with the caller: two writes to one stream are one after the other only if
//! the second is queued after the first has been completed.
//!
//! A request that may wait is an [`Operation`]: it is [started](crate::Poller::start), stays under
//! way across waits, and brings its [`Progress`] when it is done.

use std::io;

mod lasting;

#[cfg(feature = "uring")]
pub use lasting::Provided;
pub(crate) use lasting::unsupported;
pub use lasting::{Gain, Operation, Progress, Ticket};

/// The work to do with an action's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Fills its capacity from the front, as `read(2)`. For pipes and the like; sockets have
    /// [`Receive`](Action::Receive).
    Read,
    /// Writes its contents, as `write(2)`, perhaps only a part of them.
    Write,
    /// Fills its capacity from the front, as `recv(2)` with `MSG_DONTWAIT`.
    Receive,
    /// As [`Receive`](Action::Receive), at most this many bytes.
    ReceiveAtMost(u32),
    /// Sends its contents, as `send(2)` with `MSG_DONTWAIT` and `MSG_NOSIGNAL`, perhaps only a part
    /// of them.
    Send,
}

impl Action {
    /// Whether it fills the memory.
    pub(crate) const fn fills(self) -> bool {
        matches!(self, Action::Read | Action::Receive | Action::ReceiveAtMost(_))
    }
}

/// An action that was carried out, or refused.
#[derive(Debug)]
pub struct Completion {
    /// The token that the caller gave.
    pub token: u64,
    /// The memory: with the bytes that were read and no more, or as it was given.
    pub buffer: Vec<u8>,
    /// How many bytes were read or written; for a read zero is the end.
    pub outcome: io::Result<usize>,
    /// For a receive that gave less than it could have: whether there may be more, because the
    /// kernel says that there is or does not say (it does for TCP since Linux 5.19). A receive ends
    /// early at an urgent byte, for example.
    pub more: bool,
}
