//! The work of a back-end besides watching: reads and writes carried out together, and operations
//! under way.

use crate::error::{Error, Result};
use crate::key::Key;
use crate::operation::{self, Action, Operation, Progress, Ticket};
use crate::poller::Poller;

impl Poller {
    /// Notes that the descriptor of a registration stays open until that has ended.
    pub(crate) fn set_owned(&mut self, key: Key) {
        if self.table.get(key).is_some() {
            self.table.slot_mut(key.index()).set_owned();
        }
    }

    /// Whether actions can be [queued](Poller::queue): `uring` carries out many with one call.
    pub fn has_operations(&mut self) -> bool {
        self.backend.operations().is_some()
    }

    /// Queues a read or a write of a registered descriptor, which must be non-blocking, for the
    /// next wait to carry out. The action comes back in
    /// [`Events::completions`](crate::Events::completions) of that wait, under the caller's token;
    /// an action that would block comes back with `WouldBlock`. Ending the registration before
    /// withdraws it and drops the memory, so nothing is read from a descriptor's successor. For the
    /// same reason the registration must keep its descriptor open ([`Poller::share`],
    /// [`Poller::assume_open`]).
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`], [`Error::NotOwned`], or [`Error::Unsupported`] if the back-end
    /// [cannot](Poller::has_operations); the memory is given back.
    pub fn queue(
        &mut self,
        key: Key,
        action: Action,
        buffer: Vec<u8>,
        token: u64,
    ) -> Result<(), (Error, Vec<u8>)> {
        let Some(slot) = self.table.get(key) else {
            return Err((Error::StaleKey { key }, buffer));
        };
        let (fd, is_owned) = (slot.fd(), slot.is_owned());
        if let Some(operations) = self.backend.operations() {
            if !is_owned {
                return Err((Error::NotOwned { fd }, buffer));
            }
            operations.queue(key.index(), fd, action, buffer, token);
            return Ok(());
        }
        let refused = Error::Unsupported {
            backend: self.backend.status().name,
            what: "reads and writes carried out together",
            instead: "read and write with calls of your own, or choose uring",
        };
        Err((refused, buffer))
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
        match self.table.get(key) {
            None => return Err((Error::StaleKey { key }, operation)),
            Some(slot) if !slot.is_owned() => {
                return Err((Error::NotOwned { fd: slot.fd() }, operation));
            }
            Some(_) => {}
        }
        let (backend, mut cx) = self.split();
        let Some(operations) = backend.operations() else {
            return Err((operation::unsupported(backend.status().name), operation));
        };
        let ticket = operations.start(&mut cx, key, operation, token)?;
        self.changed();
        Ok(ticket)
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
