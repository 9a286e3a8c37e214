//! Operations that wait by themselves, for as long as it takes.
//!
//! An [`Action`](super::Action) is over when its wait is. An [`Operation`] is under way until it is done: a receive
//! until there are bytes, an accept until somebody connects; some go on and are done again and again. What is
//! done comes as [`Progress`] beside the events. The kernel watches the descriptor for it, so there is
//! no event to answer with a call.
//!
//! Everything that the kernel may write to or read from belongs to the poller until the last progress: bytes,
//! addresses, and descriptors that were accepted and that nobody has taken. Cancelling takes effect in
//! the kernel's own time, and what was done before is told all the same.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::error::Error;
pub use crate::sys::buffers::Provided;

/// What is to be done, and with what memory. The man pages are those of the calls that it stands for; the
/// versions are those of the kernel that `uring` needs for it beyond its own 5.19.
#[derive(Debug)]
#[non_exhaustive]
pub enum Operation {
    /// Accepts a connection, which is non-blocking and closed on exec (`accept4(2)`). Its gain is
    /// [`Gain::Socket`], with the peer's address if that is one of IP.
    Accept,
    /// Accepts connections, one after the other, until it is cancelled or fails; without their addresses.
    AcceptMany,
    /// Connects a socket (`connect(2)`). Its gain is [`Gain::Nothing`].
    Connect(SocketAddr),
    /// Fills the capacity from the front with what there is, at least a byte (`recv(2)`). Its gain is
    /// [`Gain::Count`], zero at the end of the stream.
    Receive(Vec<u8>),
    /// Receives into [buffers](Provided) that the poller provides, again and again (Linux 6.0): each gain is
    /// [`Gain::Bytes`], the last one [`Gain::Nothing`] at the end of the stream. While nothing arrives it owns no
    /// buffer. When all are in use it waits until some are given back, with what arrives in the socket.
    ReceiveMany,
    /// Sends what is in `bytes` from a place on, perhaps a part only (`send(2)` with `MSG_NOSIGNAL`).
    Send {
        /// The memory.
        bytes: Vec<u8>,
        /// How many at its front to leave out.
        from: usize,
    },
    /// The same to the last byte, unless it fails in between: then it gains what was sent before.
    SendAll {
        /// The memory.
        bytes: Vec<u8>,
        /// How many at its front to leave out.
        from: usize,
    },
    /// As [`SendAll`](Operation::SendAll); when all is sent, and only then, it ends the writing direction
    /// (`shutdown(2)`), in that order without coming back in between. A connection that is gone by then has no
    /// direction to end, which is no failure.
    SendAllAndShutdown {
        /// The memory.
        bytes: Vec<u8>,
        /// How many at its front to leave out.
        from: usize,
    },
    /// Fills the capacity from the front with what there is (`read(2)`), of a pipe or the like.
    Read(Vec<u8>),
    /// Writes what is in `bytes` from a place on, perhaps a part only (`write(2)`), to a pipe or the like.
    Write {
        /// The memory.
        bytes: Vec<u8>,
        /// How many at its front to leave out.
        from: usize,
    },
}

impl Operation {
    /// The memory it was given, if it was.
    pub fn into_memory(self) -> Option<Vec<u8>> {
        match self {
            Operation::Receive(bytes)
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

    /// Whether it fills its memory.
    pub(crate) const fn fills(&self) -> bool {
        matches!(self, Operation::Receive(_) | Operation::Read(_))
    }
}

/// Names an operation that was started. No other of the same poller has it within 2^27 operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(pub(crate) u64);

/// What an operation has brought.
#[derive(Debug)]
pub enum Gain {
    /// So many bytes.
    Count(usize),
    /// A connection, and where it comes from if that is known.
    Socket(OwnedFd, Option<SocketAddr>),
    /// What was received.
    Bytes(Provided),
    /// It is done, or at its end, and there is nothing more to say.
    Nothing,
}

/// An operation has been done, or cannot be.
#[derive(Debug)]
pub struct Progress {
    /// What the caller gave to know it by.
    pub token: u64,
    /// Whether it is over; else more comes under the same token.
    pub last: bool,
    /// What it has brought. `ECANCELED` if it was cancelled, its registration ended, or its ring was lost to a fork
    /// or to another thread before it was done; `WouldBlock` if the kernel would not wait for it.
    pub outcome: io::Result<Gain>,
    /// With the last one its memory, if it was given any: with the bytes that were read and no others, or as it was
    /// given. With a ring that was lost it is gone, because the kernel might still use it, and it cannot be said
    /// how far the operation came.
    pub memory: Option<Vec<u8>>,
}

/// What a back-end says that has no operations, or whose kernel does not know this one.
pub(crate) fn unsupported(backend: &'static str) -> Error {
    Error::Unsupported {
        backend,
        what: "this operation under way across waits",
        instead: "wait until the descriptor is ready and make the call, or choose uring on a newer kernel",
    }
}
