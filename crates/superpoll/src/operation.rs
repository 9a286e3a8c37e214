//! Operations that the kernel carries out: reads, writes, accepts and connects.
//!
//! An [`Operation`] goes to the kernel with the next wait, together with its memory, and is under
//! way until it is done: a receive until there are bytes, an accept until a client connects. Some
//! operations repeat until they are cancelled. Results come as [`Progress`], next to the events.
//! The kernel watches the descriptor for the operation, so there is no event that you must answer
//! with a call.
//!
//! Reads and writes can be [nonblocking](crate::Poller::start_nonblocking): they are done in the
//! next wait, or end there with [`WouldBlock`](std::io::ErrorKind::WouldBlock) as the system call
//! on a non-blocking descriptor does. A read of a few bytes costs less than the way into the kernel
//! and back, so a back-end that hands over many at once (`uring`) saves that way for all but one.
//! [`BatchReader`](crate::batch::BatchReader) reads like this; so does a runtime that has several
//! tasks due. No such operation is under way between two waits, and an idle descriptor owns no
//! memory.
//!
//! The order stays with the caller: two writes to one stream happen one after the other only if the
//! second is started after the first is done.
//!
//! All memory that the kernel may write to or read from belongs to the poller until the last
//! progress: bytes, addresses, and accepted descriptors that the caller has not taken. Cancelling
//! takes effect in the kernel's own time, and progress from before is reported all the same.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::error::Error;
#[cfg(feature = "uring")]
pub use crate::sys::uring::provided::Provided;

/// A request to the kernel, and the memory for it. The man pages are those of the calls that it
/// stands for; the versions are those of the kernel that `uring` needs for it beyond its own 5.19.
#[derive(Debug)]
#[non_exhaustive]
pub enum Operation {
    /// Accepts a connection, which is non-blocking and closed on exec (`accept4(2)`). Its gain is
    /// [`Gain::Socket`], with the peer's address if that is one of IP.
    Accept,
    /// Accepts connections, one after the other, until it is cancelled or fails; without their
    /// addresses.
    AcceptMany,
    /// Connects a socket (`connect(2)`). Its gain is [`Gain::Nothing`].
    Connect(SocketAddr),
    /// Fills the capacity from the front with the bytes that are there, at least one (`recv(2)`).
    /// Its gain is [`Gain::Count`], zero at the end of the stream.
    Receive(Vec<u8>),
    /// As [`Receive`](Operation::Receive), at most this many bytes.
    ReceiveAtMost {
        /// The memory.
        bytes: Vec<u8>,
        /// The number of bytes, if the memory has room for them.
        most: usize,
    },
    /// Receives into [buffers](Provided) that the poller provides, again and again (Linux 6.0):
    /// each gain is [`Gain::Bytes`], the last one [`Gain::Nothing`] at the end of the stream. While
    /// nothing arrives it owns no buffer. When all buffers are in use it waits until some are given
    /// back; meanwhile the bytes that arrive stay in the socket.
    ReceiveMany,
    /// Sends `bytes` from the offset `from` on, perhaps only a part of them (`send(2)` with
    /// `MSG_NOSIGNAL`).
    Send {
        /// The memory.
        bytes: Vec<u8>,
        /// The number of bytes at the front to leave out.
        from: usize,
    },
    /// The same to the last byte, unless it fails in between: then it gains the bytes that were
    /// sent before.
    SendAll {
        /// The memory.
        bytes: Vec<u8>,
        /// The number of bytes at the front to leave out.
        from: usize,
    },
    /// As [`SendAll`](Operation::SendAll); when all is sent, and only then, it ends the writing
    /// direction (`shutdown(2)`), in that order without coming back in between. A connection that
    /// is gone by then has no direction to end, which is no failure.
    SendAllAndShutdown {
        /// The memory.
        bytes: Vec<u8>,
        /// The number of bytes at the front to leave out.
        from: usize,
    },
    /// Fills the capacity from the front with the bytes that are there (`read(2)`), from a pipe or
    /// the like.
    Read(Vec<u8>),
    /// Writes `bytes` from the offset `from` on, perhaps only a part of them (`write(2)`), to a
    /// pipe or the like.
    Write {
        /// The memory.
        bytes: Vec<u8>,
        /// The number of bytes at the front to leave out.
        from: usize,
    },
}

impl Operation {
    /// Returns the operation's memory, if it was given any.
    pub fn into_memory(self) -> Option<Vec<u8>> {
        match self {
            Operation::Receive(bytes)
            | Operation::ReceiveAtMost { bytes, .. }
            | Operation::Read(bytes)
            | Operation::Send { bytes, .. }
            | Operation::SendAll { bytes, .. }
            | Operation::SendAllAndShutdown { bytes, .. }
            | Operation::Write { bytes, .. } => Some(bytes),
            Operation::Accept
            | Operation::AcceptMany
            | Operation::Connect(_)
            | Operation::ReceiveMany => None,
        }
    }
}

/// Names an operation that was started. No other of the same poller has it within 2^27 operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(pub(crate) u64);

/// The result of an operation.
#[derive(Debug)]
pub enum Gain {
    /// This many bytes.
    Count(usize),
    /// A connection, and where it comes from if that is known.
    Socket(OwnedFd, Option<SocketAddr>),
    /// The bytes that were received.
    #[cfg(feature = "uring")]
    Bytes(Provided),
    /// The operation is done, or at its end, and there is nothing more to report.
    Nothing,
}

impl Gain {
    /// The number of bytes that were read or written; zero for a gain of another kind.
    #[inline]
    pub fn count(self) -> usize {
        let Gain::Count(count) = self else { return 0 };
        // It owns nothing, and is not asked what there is to drop.
        std::mem::forget(self);
        count
    }
}

/// An operation has been done, or cannot be.
#[derive(Debug)]
pub struct Progress {
    /// The token that the caller gave.
    pub token: u64,
    /// Whether it is over; else more comes under the same token.
    pub last: bool,
    /// The result. `ECANCELED` if it was cancelled, its registration ended, or its ring was lost to
    /// a fork or to another thread before it was done; `WouldBlock` if it is nonblocking and would
    /// block, or if the kernel would not wait for it.
    pub outcome: io::Result<Gain>,
    /// With the last progress, the memory that the operation was given, if any: with the bytes that
    /// were read and no more, or as it was given. With a ring that was lost the memory is gone,
    /// because the kernel might still use it, and it is unknown how far the operation came. Only a
    /// nonblocking operation gets it back even then.
    pub memory: Option<Vec<u8>>,
    /// For a receive that gave less than it could have: whether there may be more, because the
    /// kernel says that there is or does not say (it does for TCP since Linux 5.19). A receive ends
    /// early at an urgent byte, for example.
    pub more: bool,
}

/// The error of a back-end that has no operations, or whose kernel does not know this one.
#[cold]
pub(crate) fn unsupported(backend: &'static str) -> Error {
    Error::Unsupported {
        backend,
        what: "this operation",
        instead: "wait until the descriptor is ready and make the call, or choose uring on a newer kernel",
    }
}

/// The error of an operation that cannot be nonblocking.
#[cold]
pub(crate) fn always_waits(backend: &'static str) -> Error {
    Error::Unsupported {
        backend,
        what: "this operation as a nonblocking one",
        instead: "start a read, a write, a receive or a send, or let the operation wait",
    }
}
