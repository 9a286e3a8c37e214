//! The input of a subject, and its interface.

use std::os::fd::{OwnedFd, RawFd};

use crate::channel::Kind;
use crate::error::Result;
use crate::threads::counters::SharedCounters;

/// The input of a subject.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    /// Kind of the readers.
    pub kind: Kind,
    /// The numbers of the readers.
    pub readers: &'a [RawFd],
    /// The readers.
    pub handles: &'a [OwnedFd],
    /// The counters that record the bytes.
    pub counters: &'a SharedCounters,
    /// Processors that the subject may run on.
    pub processors: usize,
}

/// A subject that is set up.
pub(crate) trait Reading {
    /// Returns the number of its threads, including the calling one.
    fn threads(&self) -> usize {
        1
    }

    /// Reads until a writer is gone.
    fn read_on(self: Box<Self>) -> Result<()>;
}
