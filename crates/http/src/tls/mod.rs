//! TLS below HTTP: connections whose encryption is a few bytes of state.
//!
//! rustls does the handshake. A connection leaves rustls when its handshake is over (`handshake`):
//! its secrets and the numbers of its next records are taken from rustls, and a record layer of our
//! own continues with them (`records`). It has no cryptography of its own either: HKDF and the
//! ciphers are ring's, as rustls' are.
//!
//! The reason is idleness. An object of rustls can neither be small nor go elsewhere. A record
//! layer between two records is two secrets and two numbers (`PooledKeys`), so a connection on
//! which nothing happens is parked with 136 bytes more than one that is not encrypted. A connection
//! of HTTP/2 is not parked, but its stream has no buffers either while nothing happens.
//!
//! ```text
//!   HANDSHAKE
//!       |
//!       | secrets and numbers leave rustls
//!       v          nothing read or written is under way
//!   TlsStream ----------------------------------------> ParkedKeys
//!       ^                                                 |   | a message of a channel
//!       |      readable, time is over, or no room         |   +--> sealed and written
//!       +-------------------------------------------------+        where it is parked
//! ```
//!
//! A number is spent before a record is sealed with it, and whoever seals owns the only copy of the
//! keys: `TlsStream::park` and
//! [`ParkedStream::resume`](crate::parked_stream::ParkedStream::resume) consume the stream that
//! they are called on. Two records with one number would give away both texts, and with AES-GCM the
//! key that authenticates.
//!
//! The rules are those of RFC 8446 (TLS 1.3, section 5 and 4.6.3) and RFC 5246 (TLS 1.2), and the
//! limits are those of rustls.

pub(crate) mod handshake;
mod keys;
mod parked;
mod pool;
mod records;
mod sealer;
mod stream;
#[cfg(test)]
pub mod tests;
mod traffic_keys;

pub use handshake::{Accepted, accept, cipher_of, prepare};
pub use parked::KeysRecord;
pub use parked::{Cut, ParkedKeys};
pub(crate) use pool::PooledKeys;
pub use records::MOST_TEXT;
pub use stream::TlsStream;
pub(crate) use traffic_keys::telling;
