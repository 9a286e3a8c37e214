//! Registering from other threads.
//!
//! The poller itself has no lock: its owner has `&mut`. Other threads put commands into a queue and
//! wake the poller, which takes them over before its next wait, or at once if it is waiting. A
//! registration has its key from the start, so later commands and data structures can refer to it
//! before the poller has seen it. Fresh indices come from a counter that both sides share, used
//! ones from a list that the poller fills with indices of ended registrations of the registrar.
//!
//! Dropped owners use the same queue, so the order between "this descriptor is detached" and "its
//! number is registered again" is the order in which the threads did it.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::interest::{Interest, Watch};
use crate::key::Key;
use crate::owned::{Owned, Rejected};
use crate::shared::{Command, Shared};
use crate::stats::Calls;
use crate::sys;

/// Registers, changes and deregisters from any thread.
///
/// Commands are carried out in the order in which they were given, before the poller's next wait
/// or, if it is waiting, at once. A registration that the kernel refuses then appears in
/// [`Events::refusals`](crate::Events::refusals) of that wait. Cloning is cheap.
#[derive(Clone)]
pub struct Registrar(pub(crate) Arc<Shared>);

impl Registrar {
    /// Registers a descriptor. The descriptor must stay open until it is deregistered;
    /// [`Registrar::own`] sees to that by itself.
    ///
    /// # Errors
    ///
    /// [`Error::BadDescriptor`] if it is not open. Any other error, a duplicate registration among
    /// them, is reported by the wait that carries the command out.
    pub fn register(&self, fd: impl AsFd, watch: impl Into<Watch>) -> Result<Key> {
        let fd = fd.as_fd().as_raw_fd();
        if !sys::descriptor::is_open(&mut Calls::default(), fd) {
            return Err(Error::BadDescriptor { fd });
        }
        let key = self.0.push_registration(fd, watch.into());
        self.0.sleep.kick()?;
        Ok(key)
    }

    /// Registers a descriptor and takes it over, see [`Poller::own`](crate::Poller::own).
    ///
    /// # Errors
    ///
    /// As [`register`](Registrar::register); the descriptor is given back.
    pub fn own<T: AsFd>(&self, io: T, watch: impl Into<Watch>) -> Result<Owned<T>, Rejected<T>> {
        match self.register(&io, watch) {
            Ok(key) => Ok(Owned::new(io, key, self.0.clone())),
            Err(error) => Err(Rejected { io, error }),
        }
    }

    /// Changes the interest, and arms a one-shot registration again. A key that has become stale
    /// when the command is carried out is ignored.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the poller cannot be woken.
    pub fn modify(&self, key: Key, interest: Interest) -> Result<()> {
        self.send(Command::Modify { key, interest })
    }

    /// Changes interest and mode. A change that the back-end cannot make ends the registration and
    /// is reported among the refusals.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the poller cannot be woken.
    pub fn modify_watch(&self, key: Key, watch: impl Into<Watch>) -> Result<()> {
        self.send(Command::ModifyWatch { key, watch: watch.into() })
    }

    /// Ends a registration. Until the poller has carried it out, events of this key may still be
    /// delivered.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the poller cannot be woken.
    pub fn deregister(&self, key: Key) -> Result<()> {
        self.send(Command::Deregister { key })
    }

    /// Ends a registration whose descriptor the caller closes right after, see
    /// [`Poller::deregister_for_close`](crate::Poller::deregister_for_close).
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the poller cannot be woken.
    pub fn deregister_for_close(&self, key: Key) -> Result<()> {
        self.send(Command::Closed { key })
    }

    /// Wakes the poller, as [`Waker::wake`](crate::Waker::wake) does.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the poller cannot be woken.
    pub fn wake(&self) -> Result<()> {
        self.0.sleep.wake()
    }

    fn send(&self, command: Command) -> Result<()> {
        self.0.push(command);
        self.0.sleep.kick()
    }
}

crate::debug_fields!(Registrar);
