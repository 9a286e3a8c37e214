//! Registrations that own their descriptor, so that they are detached before it is closed.

use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::error::Error;
use crate::key::Key;
use crate::shared::{Command, Shared};

/// A descriptor together with its registration.
///
/// Dropping it tells the poller first and closes then, so the poller never watches a stranger's
/// file under a number that was reused. No system call is needed for epoll, which forgets a closed
/// file by itself; should a duplicate keep the file open, and events of the ended registration
/// with it, the poller drops them and builds its epoll set again, once.
///
/// There is no `DerefMut`, so that no code exchanges the descriptor for another one
/// unintentionally; see [`get_mut`](Owned::get_mut).
///
/// ```compile_fail,E0596
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut poller = superpoll::Poller::new()?;
/// # let (reader, _writer) = std::io::pipe()?;
/// # let (other, _other_writer) = std::io::pipe()?;
/// let mut reader = poller.own(reader, superpoll::Interest::READABLE)?;
/// drop(std::mem::replace(&mut *reader, other));
/// # Ok(())
/// # }
/// ```
///
/// It may be dropped on any thread, before or after the poller. A poller that blocks in `poll`
/// holds on to the file until it wakes, so dropping on another thread wakes it, if a
/// [`Waker`](crate::Waker) or [`Registrar`](crate::Registrar) was ever made.
pub struct Owned<T: AsFd> {
    // Fields are dropped in this order: detached first, closed then.
    detach: Detach,
    io: T,
}

/// Tells the poller, when dropped, that the descriptor is about to be closed.
struct Detach {
    key: Key,
    shared: Option<Arc<Shared>>,
}

impl Drop for Detach {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.push(Command::Closed { key: self.key });
            // A poller that cannot be woken does not sleep on this descriptor.
            let _ = shared.sleep.kick();
        }
    }
}

impl<T: AsFd> Owned<T> {
    pub(crate) fn new(io: T, key: Key, shared: Arc<Shared>) -> Owned<T> {
        Owned { detach: Detach { key, shared: Some(shared) }, io }
    }

    /// The registration's key.
    pub fn key(&self) -> Key {
        self.detach.key
    }

    /// The descriptor, to change it: to read or write through `&mut`. It must stay the same open
    /// file. If it is exchanged for another one, the old file is closed without the knowledge of
    /// the poller. The poller may then report any file that gets its number, under this key.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.io
    }

    /// Whether it is registered with the poller that shares this.
    pub(crate) fn belongs_to(&self, shared: &Arc<Shared>) -> bool {
        self.detach.shared.as_ref().is_some_and(|own| Arc::ptr_eq(own, shared))
    }

    /// Ends the registration and gives the descriptor back, open, on any thread. The poller learns
    /// of it before its next wait, or at once if it is waiting;
    /// [`Poller::disown`](crate::Poller::disown) is the direct way.
    pub fn into_inner(self) -> T {
        if let Some(shared) = &self.detach.shared {
            shared.push(Command::Deregister { key: self.detach.key });
            // A poller that cannot be woken does not sleep on this descriptor.
            let _ = shared.sleep.kick();
        }
        self.into_io()
    }

    /// Takes the descriptor out and leaves it registered.
    pub(crate) fn into_io(self) -> T {
        let Owned { mut detach, io } = self;
        detach.shared = None;
        io
    }
}

impl<T: AsFd> Deref for Owned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.io
    }
}

impl<T: AsFd> AsFd for Owned<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned").field("io", &self.io).field("key", &self.key()).finish()
    }
}

/// A descriptor that could not be registered, given back with the reason.
#[derive(Debug)]
pub struct Rejected<T> {
    /// The descriptor.
    pub io: T,
    /// Why it was not registered.
    pub error: Error,
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: fmt::Debug> std::error::Error for Rejected<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<T> From<Rejected<T>> for Error {
    fn from(rejected: Rejected<T>) -> Error {
        rejected.error
    }
}
