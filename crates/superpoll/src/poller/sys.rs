//! Promises about descriptors that the compiler cannot check.
//!
//! The kernel learns of an operation with the next wait, and looks the descriptor's number up then.
//! Had the number been closed in between, another file could have it. See
//! `docs/adr/0031-who-keeps-a-descriptor-open.md`.

use crate::key::Key;
use crate::poller::Poller;

impl Poller {
    /// Lets [operations](Poller::start) be started under a registration whose descriptor the poller
    /// does not keep open itself. [`Poller::share`] is the safe way. A key that is stale is
    /// ignored.
    ///
    /// # Safety
    ///
    /// The descriptor that was registered under this key must stay open, under the number that it
    /// had then, until the registration has ended: by a call of this poller, or by a wait that has
    /// reported its refusal. A [`Registrar`](crate::Registrar), or an [`Owned`](crate::Owned) that
    /// is dropped, only asks for the end: an operation that was started may still reach the kernel
    /// after that.
    pub unsafe fn assume_open(&mut self, key: Key) {
        self.set_owned(key);
    }
}
