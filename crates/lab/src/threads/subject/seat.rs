//! What a subject is given, and what it does.

use std::os::fd::{OwnedFd, RawFd};

use crate::channel::Kind;
use crate::error::Result;
use crate::threads::desk::Desk;

/// What a subject is given.
#[derive(Clone, Copy, Debug)]
pub struct Seat<'a> {
    /// What they are.
    pub kind: Kind,
    /// The numbers of the readers.
    pub readers: &'a [RawFd],
    /// The readers.
    pub handles: &'a [OwnedFd],
    /// Where bytes go.
    pub desk: &'a Desk,
    /// Processors that it may run on.
    pub processors: usize,
}

/// A subject that is set up.
pub trait Reading {
    /// Threads it has, the calling one included.
    fn threads(&self) -> usize {
        1
    }

    /// Reads until a writer is gone.
    fn read_on(self: Box<Self>) -> Result<()>;
}
