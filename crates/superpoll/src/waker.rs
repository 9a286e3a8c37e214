//! The handle that wakes a poller from another thread.

use std::sync::Arc;

use crate::error::Result;
use crate::shared::Shared;

/// Makes a [`Poller::wait`](crate::Poller::wait) return, from any thread.
///
/// Cloning is cheap. A wake that comes while no wait blocks makes the next wait return at once; any
/// number of wakes between two waits make one wait return, and
/// [`Events::woken`](crate::Events::woken) says so. A wake costs a system call only if the poller
/// sleeps and has not been woken yet.
#[derive(Clone)]
pub struct Waker(pub(crate) Arc<Shared>);

impl Waker {
    /// Wakes the poller.
    ///
    /// # Errors
    ///
    /// [`Error::System`](crate::Error::System) if the eventfd cannot be written to, which the
    /// kernel does not do to an open one.
    pub fn wake(&self) -> Result<()> {
        self.0.sleep.wake()
    }
}

crate::debug_fields!(Waker);
