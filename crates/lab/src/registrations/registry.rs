//! Something that descriptors are registered with.

use std::ops::Range;

use crate::channel::Pairs;
use crate::error::Result;

/// Something that descriptors are registered with.
pub trait Registry {
    /// Registers the readers of these pairs, to be told of priority data, which never comes. The kernel knows it
    /// when this returns, as with all that follows.
    fn register(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()>;

    /// Has it tell when there is something to read instead.
    fn modify(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()>;

    /// Ends these registrations; the readers stay open.
    fn deregister(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()>;

    /// Adds the pairs that it reports now, without waiting. Whatever the changes have left to be done by the
    /// next wait is done by this.
    fn look(&mut self, found: &mut Vec<usize>) -> Result<()>;

    /// System calls so far.
    fn calls(&self) -> u64;
}
