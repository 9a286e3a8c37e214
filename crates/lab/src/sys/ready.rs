//! What the loops of the C rivals call back.

use std::os::fd::RawFd;

/// What is to be done for a descriptor that is ready. Loops are compiled for each type that does it, so that a callback
/// costs no more than it would in C.
pub trait Ready {
    /// One is ready, by its place among those that are watched. Says whether it is to be watched on.
    fn ready(&mut self, place: usize, fd: RawFd) -> bool;
}
