//! Sockets: TCP, UDP and the three kinds of the Unix domain.
//!
//! Every type here is a non-blocking socket, registered with an engine when an operation would
//! block for the first time. You can send a socket to another thread and continue there. Threads
//! cannot share a socket, so operations take `&self` without a lock and their futures stay on the
//! thread. Where a future has to be `Send`, as with [`Handle::spawn`](crate::Handle::spawn), use
//! the `futures-io` traits on a socket that the future owns, or spawn on the other engine with
//! [`Handle::call_on`](crate::Handle::call_on).
//!
//! Two tasks of an engine may use a stream at the same time, one for each direction: through two
//! references, or with the halves of [`split`].
//!
//! # The limit of descriptors
//!
//! A function that makes a socket fails when the process (`EMFILE`) or the system (`ENFILE`) has no
//! descriptor left. It leaves nothing behind, and its error names the operation that needed a
//! descriptor and how many there may be: the error holds a [`superpoll::Error::DescriptorLimit`],
//! whose source is the kernel's error. Pipes, signals and child processes do the same. Listeners
//! [shed load](TcpListener#out-of-descriptors) instead of failing to accept. Watching a descriptor
//! needs no further descriptor, so open sockets work on.
//!
//! # Urgent data
//!
//! TCP's and Unix streams' urgent data (`MSG_OOB`) is not supported: a read stops at the urgent
//! mark, which looks like a drained stream, and the rest may wait until more arrives (RFC 6093
//! advises against urgent data). If you must live with urgent data, use
//! [`AsyncFd::perform`](crate::AsyncFd::perform), which draws no conclusion from a short count.

pub(crate) mod accept;
mod address;
pub(crate) mod descriptor;
mod listeners;
mod reserve;
pub mod split;
pub(crate) mod stream;
mod tcp_listener;
mod tcp_stream;
mod udp;
pub mod unix;

pub use address::{ToSocketAddrs, lookup_host};
pub use listeners::{Listeners, Spread};
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use stream::StreamSocket;
pub use tcp_listener::{ListenOptions, TcpListener};
pub use tcp_stream::TcpStream;
pub use udp::UdpSocket;
