//! Operations that are done when they come back, instead of being tried until they are done.
//!
//! An async read elsewhere in this crate waits until a descriptor is ready and reads then. The
//! functions here hand the whole operation over, with its memory, and take it back when it is done.
//! On `uring` the kernel carries it out: one call of the engine begins many operations and fetches
//! many results, and no operation takes a call of its own. Every other back-end does the same by
//! readiness, and so does `uring` where io_uring is refused or the kernel does not know an
//! operation: with the same results, in the same order, with the same errors.
//!
//! ```
//! use superpoll_rt::completion::{recv, send_all};
//! use superpoll_rt::net::unix::UnixStream;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! superpoll_rt::Runtime::new()?.block_on(async {
//!     let (one, other) = UnixStream::pair()?;
//!     let (sent, _) = send_all(&one, b"hello".to_vec()).await;
//!     assert_eq!(sent?, 5);
//!     let (received, buffer) = recv(&other, Vec::with_capacity(100)).await;
//!     assert_eq!((received?, &buffer[..]), (5, &b"hello"[..]));
//!     std::io::Result::Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! # Memory
//!
//! A buffer goes along as a `Vec<u8>` and comes back with the result, because the kernel may use it
//! at any time in between. A future that is dropped makes the kernel end the operation and waits
//! for that, which is one system call; until then the engine owns the buffer. So nothing is ever
//! written to memory that was given back.
//!
//! # Giving up
//!
//! Each function documents the fate of an operation whose future is dropped. In short: nothing that
//! has arrived is lost. Bytes that were received already belong to the stream, and come first in
//! its next read, of whatever kind. A connection that was accepted already belongs to the listener,
//! and comes with its next accept. Bytes that were sent cannot be taken back: a send that is given
//! up may have been made, in part or completely.
//!
//! Make only one receive of a stream at a time. Of two, each gets a part of the bytes, and their
//! order cannot be determined afterwards.
//!
//! # Engines
//!
//! An operation belongs to the engine on which it was first polled. A future that is polled on
//! another engine, or whose engine has ended, goes on where it is polled.
//!
//! # Operations left to readiness
//!
//! There is no [`splice`](crate::transfer::splice) here. The kernel gives each splice that comes
//! through a ring to a worker thread, which does not wait for non-blocking descriptors, and all of
//! this crate's are. Listeners that [wait exclusively](crate::net::ListenOptions::exclusive) accept
//! by readiness, because taking turns is a matter of waiting. A
//! [`UnixStream`](crate::net::unix::UnixStream) connects at once or not at all.

mod accept;
mod chunks;
mod connect;
mod incoming;
mod multishot;
mod receive;
mod send;
mod socket;

pub use accept::{Listener, accept};
pub use chunks::{Chunk, Chunks};
pub use connect::connect;
pub use incoming::Incoming;
pub use receive::{read, recv};
pub use send::{send, send_all, send_all_and_shutdown, write};
pub use socket::{Sink, Socket, Source};
