//! The work of a back-end besides watching: operations.

use std::os::fd::RawFd;

use crate::error::{Error, Result};
use crate::key::Key;
use crate::operation::{self, Operation, Progress, Ticket};
use crate::poller::Poller;

impl Poller {
    /// Notes that the descriptor of a registration stays open until that has ended.
    pub(crate) fn set_owned(&mut self, key: Key) {
        if self.table.get(key).is_some() {
            self.table.slot_mut(key.index()).set_owned();
        }
    }

    /// Whether operations can be [started](Poller::start): `uring` carries them out.
    pub fn has_operations(&mut self) -> bool {
        self.backend.operations().is_some()
    }

    /// Starts an operation of a registered descriptor. The kernel learns of it with the next wait.
    /// The results come in [`Events::progress`](crate::Events::progress) of some wait, under the
    /// caller's token. The registration need have no [interest](crate::Interest::NONE), but must
    /// keep its descriptor open: it was made by [`share`](Poller::share), or its owner has
    /// [promised](Poller::assume_open) that. Ending it cancels the operation; the last progress
    /// comes all the same. [`Operation`] lists the operations.
    ///
    /// ```
    /// use std::io::Write;
    /// use std::sync::Arc;
    /// use superpoll::operation::{Gain, Operation};
    /// use superpoll::{BackendKind, Events, Interest, Poller};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # if !BackendKind::Uring.is_available() { return Ok(()); }
    /// let mut poller = Poller::builder().backend(BackendKind::Uring).build()?;
    /// let (receiver, mut sender) = std::os::unix::net::UnixStream::pair()?;
    /// let receiver = Arc::new(receiver);
    /// let key = poller.share(&receiver, Interest::NONE)?;
    /// let receive = Operation::Receive(Vec::with_capacity(100));
    /// poller.start(key, receive, 7).map_err(|(error, _)| error)?;
    ///
    /// let mut events = Events::with_limit(1);
    /// sender.write_all(b"hello")?;
    /// poller.wait(&mut events, None)?;
    /// let progress = events.progress().next().unwrap();
    /// assert!(progress.token == 7 && matches!(progress.outcome?, Gain::Count(5)));
    /// assert_eq!(progress.memory.unwrap(), b"hello");
    /// # poller.deregister(key)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`]; [`Error::NotOwned`]; [`Error::Unsupported`] if the back-end has no
    /// operations, or the kernel not this one; the kernel's error from registering buffers. The
    /// operation is given back.
    pub fn start(
        &mut self,
        key: Key,
        operation: Operation,
        token: u64,
    ) -> Result<Ticket, (Error, Operation)> {
        if let Err(error) = self.owned_descriptor(key) {
            return Err((error, operation));
        }
        let (backend, mut cx) = self.split();
        let Some(operations) = backend.operations() else {
            return Err((operation::unsupported(backend.status().name), operation));
        };
        let ticket = operations.start(&mut cx, key, operation, token)?;
        self.changed();
        Ok(ticket)
    }

    /// Starts a read, a receive, a write or a send that does not block, as [`start`](Poller::start)
    /// starts one that may. The next wait carries it out and delivers its only progress: an
    /// operation that would block ends with `WouldBlock`. Many of them cost one system call, the
    /// wait's own, which makes each cheaper than a call. For a read or a write the descriptor must
    /// be non-blocking.
    ///
    /// ```
    /// use std::io::{ErrorKind, Write};
    /// use std::sync::Arc;
    /// use superpoll::operation::{Gain, Operation};
    /// use superpoll::{BackendKind, Events, Interest, Poller};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # if !BackendKind::Uring.is_available() { return Ok(()); }
    /// let mut poller = Poller::builder().backend(BackendKind::Uring).build()?;
    /// let (receiver, mut sender) = std::os::unix::net::UnixStream::pair()?;
    /// let key = poller.share(&Arc::new(receiver), Interest::NONE)?;
    /// let mut events = Events::with_limit(1);
    /// for bytes in [&b""[..], b"hello"] {
    ///     sender.write_all(bytes)?;
    ///     let receive = Operation::Receive(Vec::with_capacity(100));
    ///     poller.start_nonblocking(key, receive, 7).map_err(|(error, _)| error)?;
    ///     poller.wait(&mut events, None)?;
    ///     match events.progress().next().unwrap().outcome {
    ///         Ok(gain) => assert!(matches!(gain, Gain::Count(5))),
    ///         Err(error) => assert!(bytes.is_empty() && error.kind() == ErrorKind::WouldBlock),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`start`](Poller::start); [`Error::Unsupported`] for another operation.
    #[inline]
    pub fn start_nonblocking(
        &mut self,
        key: Key,
        operation: Operation,
        token: u64,
    ) -> Result<Ticket, (Error, Operation)> {
        let fd = match self.owned_descriptor(key) {
            Ok(fd) => fd,
            Err(error) => return Err((error, operation)),
        };
        let Some(operations) = self.backend.operations() else {
            return Err((operation::unsupported(self.backend.status().name), operation));
        };
        let ticket = operations.start_nonblocking(key.index(), fd, operation, token)?;
        self.changed();
        Ok(ticket)
    }

    /// The descriptor of a registration that keeps it open.
    #[inline]
    fn owned_descriptor(&self, key: Key) -> Result<RawFd> {
        match self.table.get(key) {
            None => Err(Error::StaleKey { key }),
            Some(slot) if !slot.is_owned() => Err(Error::NotOwned { fd: slot.fd() }),
            Some(slot) => Ok(slot.fd()),
        }
    }

    /// Asks for the end of an operation, with the next wait. Its last progress comes in that wait
    /// or a later one: its result in the meantime, or `ECANCELED`. An operation that is over stays
    /// as it is.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: the operation may go on.
    pub fn cancel(&mut self, ticket: Ticket) -> Result<()> {
        let (backend, mut cx) = self.split();
        let outcome = match backend.operations() {
            Some(operations) => operations.cancel(&mut cx, ticket),
            None => Ok(()),
        };
        self.changed();
        outcome.map_err(|source| Error::system("cancelling an operation", None, source))
    }

    /// Ends an operation now, waits until the kernel is done with it, and returns the progress that
    /// no wait has delivered yet, in order. The last progress is included, so no wait delivers
    /// anything of the operation any more. That takes a system call and, if the kernel has given
    /// the operation to a worker thread, the time until that thread is done.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: the operation may go on, and its progress comes with waits.
    pub fn cancel_now(&mut self, ticket: Ticket) -> Result<Vec<Progress>> {
        let (backend, mut cx) = self.split();
        let outcome = match backend.operations() {
            Some(operations) => operations.reap(&mut cx, ticket),
            None => Ok(Vec::new()),
        };
        self.sync_nested_wakeup();
        outcome.map_err(|source| Error::system("cancelling an operation", None, source))
    }
}
