//! Operations that wait by themselves, for as long as it takes.
//!
//! An [`Action`](super::Action) is over when its wait is. An [`Operation`] is under way until it is
//! done: a receive until there are bytes, an accept until a client connects. Some operations repeat
//! until they are cancelled. Results come as [`Progress`], next to the events. The kernel watches
//! the descriptor for the operation, so there is no event that you must answer with a call.
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

/// An operation has been done, or cannot be.
#[derive(Debug)]
pub struct Progress {
    /// The token that the caller gave.
    pub token: u64,
    /// Whether it is over; else more comes under the same token.
    pub last: bool,
    /// The result. `ECANCELED` if it was cancelled, its registration ended, or its ring was lost to
    /// a fork or to another thread before it was done; `WouldBlock` if the kernel would not wait
    /// for it.
    pub outcome: io::Result<Gain>,
    /// With the last progress, the memory that the operation was given, if any: with the bytes that
    /// were read and no more, or as it was given. With a ring that was lost the memory is gone,
    /// because the kernel might still use it, and it is unknown how far the operation came.
    pub memory: Option<Vec<u8>>,
}

/// The error of a back-end that has no operations, or whose kernel does not know this one.
pub(crate) fn unsupported(backend: &'static str) -> Error {
    Error::Unsupported {
        backend,
        what: "this operation under way across waits",
        instead: "wait until the descriptor is ready and make the call, or choose uring on a newer kernel",
    }
}
