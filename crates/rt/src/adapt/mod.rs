//! Other libraries' traits for our streams, tasks and timers, each behind a feature.
//!
//! What speaks futures-io needs nothing from here. Streams of this crate have hyper's and tokio's traits
//! themselves: both lend memory that is not initialised, to which the kernel may read without anybody
//! having cleared it, which a wrapper around a futures-io stream cannot do. Everything else with futures-io
//! traits, such as a TLS stream, is wrapped, and pays for clearing. So do Unix sockets, which read with
//! `recvmsg(2)` because descriptors may come along.

#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "tokio")]
pub mod tokio;
