//! The interface of everything that descriptors are registered with.

use std::ops::Range;

use crate::channel::Pairs;
use crate::error::Result;

/// An object that descriptors are registered with.
pub(super) trait Registry {
    /// Registers the readers of these pairs for priority data, which never comes. The kernel knows
    /// of it when this method returns, as with all methods below.
    fn register(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()>;

    /// Changes the interest to readable data.
    fn modify(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()>;

    /// Ends these registrations; the readers stay open.
    fn deregister(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()>;

    /// Adds the pairs that the registry reports now, without waiting. This method also does any
    /// work that the changes have left for the next wait.
    fn look(&mut self, found: &mut Vec<usize>) -> Result<()>;

    /// System calls so far.
    fn calls(&self) -> u64;
}
