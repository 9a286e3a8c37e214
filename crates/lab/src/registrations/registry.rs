//! The interface of everything that descriptors are registered with.

use std::ops::Range;

use crate::channel::Pairs;
use crate::error::Result;
use crate::sys::epoll::Change;

/// An object that descriptors are registered with.
pub(super) trait Registry {
    /// Changes the registrations of the readers of these pairs, as [`interest`] says; the readers
    /// stay open. The kernel knows of it when this method returns.
    fn change(&mut self, pairs: &Pairs, batch: Range<usize>, change: Change) -> Result<()>;

    /// Adds the pairs that the registry reports now, without waiting. This method also does any
    /// work that the changes have left for the next wait.
    fn look(&mut self, found: &mut Vec<usize>) -> Result<()>;

    /// System calls so far.
    fn calls(&self) -> u64;
}

/// Returns the interest after a change, as events of `epoll`: at first priority data, which never
/// arrives, then readable data.
pub(super) const fn interest(change: Change) -> u32 {
    match change {
        Change::Add => libc::EPOLLPRI as u32,
        Change::Modify => libc::EPOLLIN as u32,
        Change::Delete => 0,
    }
}
