//! The input of a subject, and its interface.

use crate::channel::{Kind, Pairs};
use crate::error::Result;
use crate::threads::counters::SharedCounters;

/// The input of a subject.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    /// Kind of the readers.
    pub kind: Kind,
    /// The pairs; the subject owns their readers.
    pub pairs: &'a Pairs,
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
