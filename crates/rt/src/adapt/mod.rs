//! Other libraries' traits for our streams, tasks and timers, each behind a feature.
//!
//! A library that speaks futures-io needs nothing from this module. Streams of this crate implement
//! hyper's and tokio's traits directly. Both traits lend memory that is not initialised, and the
//! kernel may read into that memory without clearing it first, which a wrapper around a futures-io
//! stream cannot do. Everything else with futures-io traits, such as a TLS stream, is wrapped, and
//! pays for clearing. So do Unix sockets, which read with `recvmsg(2)` because descriptors may come
//! along.

#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "tokio")]
pub mod tokio;
