//! Certificates that the server gets by itself: from pebble, an authority of ACME for tests, with
//! rejected nonces and delays; from an authority of our own that is down, slow or lies; and from
//! the server's own authority.
//!
//! pebble asks pebble-challtestsrv for addresses, so every name leads to this machine, and
//! validates on ports of the tests' choice. Nothing needs permissions or a network.

mod authority;
mod client;
mod internal;
mod lies;
mod pebble;
mod storage;
mod suggestions;
