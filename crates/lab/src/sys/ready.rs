//! The interface between a loop and the receiver of what it finds ready.

use std::os::fd::RawFd;

/// The action for a ready descriptor. Loops are compiled for each type that implements it, so that
/// a callback costs no more than it would in C.
pub(crate) trait Ready {
    /// Handles a ready descriptor, given by its place among the watched ones. Returns whether to go
    /// on: the loops of the C rivals stop watching this descriptor otherwise, and ours end.
    fn ready(&mut self, place: usize, fd: RawFd) -> bool;
}
