//! The traits that a back-end implements, and the facts that it reports about itself.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use crate::backend::{Context, Deadline, WaitCall};
use crate::costs::Costs;
use crate::error::Result;
use crate::interest::Watch;
use crate::key::Key;
use crate::policy::Policy;

/// A way to watch descriptors. Implement it to give the poller another back-end
/// ([`Builder::custom`](crate::Builder::custom)).
///
/// A back-end that can do more than watch returns a further trait for each ability: it makes
/// [`BatchReads`], or it has a [`KeeperClient`].
pub trait Backend: Send {
    /// Its name, and the facts about it that the poller and its statistics need.
    fn status(&self) -> Status<'_>;

    /// Whether a wait that blocks gathers events for [`Context::min_wait`], in place of the poller,
    /// which sleeps for that time before the wait otherwise.
    fn gathers(&self) -> bool {
        false
    }

    /// The heap that the back-end uses.
    fn memory(&self) -> Memory;

    /// Refuses, at registration and before anything is stored, a watch that the back-end can never
    /// support.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) or
    /// [`Error::DescriptorTooLarge`](crate::Error::DescriptorTooLarge).
    fn admit(&self, fd: RawFd, watch: Watch) -> Result<()>;

    /// Makes the kernel's watch agree with the slot: it watches `slot.watch()` if the slot is live,
    /// and nothing if it is not. Notes in the slot the watch that was applied and the set that
    /// holds it.
    ///
    /// # Errors
    ///
    /// The registration is refused with the error: the poller ends it, calls `sync` once more and
    /// reports the refusal to the caller.
    fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced>;

    /// Begins a wait whose only system call the poller may make in the back-end's place, which is
    /// cheaper (see [`WaitCall`]). The poller passes the answer of the call to
    /// [`finish_wait`](Backend::finish_wait) at once, with nothing in between. `None` leaves the
    /// whole wait to that.
    fn prepare_wait<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
    ) -> Option<WaitCall<'a>> {
        let _ = (cx, deadline);
        None
    }

    /// Waits once, until the deadline at the latest, and reports the ready descriptors. May return
    /// early or without a report; the poller then calls again. With an answer it continues with the
    /// wait that [`prepare_wait`](Backend::prepare_wait) has begun, to the same deadline.
    ///
    /// # Errors
    ///
    /// The system call's error; the poller handles `EINTR`.
    fn finish_wait(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
        answer: Option<io::Result<usize>>,
    ) -> io::Result<()>;

    /// The rare events in the life of a back-end.
    fn lifecycle(&mut self) -> &mut dyn Lifecycle;

    /// Reads from many descriptors with one call, if the back-end offers them.
    fn batch_reads(&mut self) -> Option<&mut dyn BatchReads> {
        None
    }

    /// The keeper that watches idle descriptors, if the back-end was given one.
    fn keeper(&mut self) -> Option<&mut dyn KeeperClient> {
        None
    }
}

/// The rare events in the life of a back-end.
pub trait Lifecycle {
    /// Watches the waker's descriptor. The back-end reports an arrival on it with
    /// [`Context::waker_fired`].
    ///
    /// # Errors
    ///
    /// The system call's error.
    fn attach_waker(&mut self, cx: &mut Context<'_>, fd: BorrowedFd<'_>) -> Result<()>;

    /// Builds everything again in a child process, where kernel objects are still shared with the
    /// parent. Afterwards the poller calls [`sync`](Backend::sync) for every slot again.
    ///
    /// # Errors
    ///
    /// The system call's error.
    fn after_fork(&mut self, cx: &mut Context<'_>) -> Result<()>;

    /// A descriptor that is readable whenever a wait would deliver something, for use in another
    /// event loop. From then on everything must be watched through it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the kernel has no such object for
    /// this back-end.
    fn nest(&mut self, cx: &mut Context<'_>) -> Result<BorrowedFd<'_>>;

    /// Places every descriptor as an idle one, because the caller knows that they will be idle.
    fn assume_idle(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Frees memory that the current registrations do not need.
    fn shrink_to_fit(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Passes the changes to the kernel that [`sync`](Backend::sync) has left for the next wait.
    ///
    /// # Errors
    ///
    /// The system call's error.
    fn flush(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let _ = cx;
        Ok(())
    }

    /// The poller is used and dropped on this thread alone from now on.
    fn stay_on_thread(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

/// The call that reads from a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadCall {
    /// `read(2)`, of a descriptor that is non-blocking.
    Read,
    /// `recv(2)`, of a socket.
    Receive,
}

/// A read of [`BatchReads`] that has ended.
#[derive(Debug)]
pub struct BatchedRead {
    /// The registration.
    pub key: Key,
    /// The number of bytes, zero at the end of the stream. `ECANCELED` if the read was not made,
    /// because its registration has ended or the poller has moved to another thread.
    pub outcome: io::Result<usize>,
    /// The memory that the read was given, with the bytes that were read and no more.
    pub room: Vec<u8>,
    /// For a read that gave less than it could have: whether there may be more, because the kernel
    /// says that there is or does not say (it does for TCP since Linux 5.19). A read ends early at
    /// an urgent byte, for example.
    pub more: bool,
}

/// The ability to read from many descriptors with one call, that of the next wait, for
/// [`BatchReader`](crate::batch::BatchReader). None of the reads waits for bytes, so all of them
/// have ended when that wait ends; [`Context::read`] takes each outcome.
pub trait BatchReads {
    /// Takes a read of a registration, into the capacity of `room` from the front, to make with the
    /// next wait. The caller keeps the descriptor open until the registration has ended, or until
    /// [`disengage`](BatchReads::disengage).
    fn start(&mut self, key: Key, fd: RawFd, call: ReadCall, room: Vec<u8>);

    /// Makes sure that nothing more is read from the file that a registration's descriptor means
    /// now, because the registration is over or the descriptor may be exchanged: ends its reads
    /// that the kernel has not received, and lets go of a [kept file](BatchReads::keep_file).
    fn disengage(&mut self, cx: &mut Context<'_>, index: u32);

    /// Looks up the file of a registration that has come to stay once and for all.
    fn keep_file(&mut self, index: u32, fd: RawFd);

    /// Makes the reads that were taken, in a wait that asks for no events because it has enough.
    ///
    /// # Errors
    ///
    /// The system call's error.
    fn perform(&mut self, cx: &mut Context<'_>) -> io::Result<()>;
}

/// The ability to give idle descriptors to a keeper, which watches them elsewhere.
pub trait KeeperClient {
    /// Takes the state that a registration leaves with when it goes to another process.
    fn leave_state(&mut self, key: Key, state: &[u8]);

    /// Drops the state of a registration that is over.
    fn forget_state(&mut self, index: u32);

    /// Asks the keeper which of its descriptors are ready, and waits for the answer: the next
    /// wait reports each that was ready before this call.
    fn catch_up(&mut self, cx: &mut Context<'_>);

    /// Gives the keeper every registration that it may have, however recently that was active.
    fn move_all_to_keeper(&mut self, cx: &mut Context<'_>);

    /// Takes back, for good, the descriptors that were changed or have ended.
    fn flush_recalls(&mut self, cx: &mut Context<'_>);

    /// Continues without the keeper, which belongs to the parent of this process.
    fn detach(&mut self, cx: &mut Context<'_>);
}

/// The name of a back-end, and facts about it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Status<'a> {
    /// Its name, as users write it.
    pub name: &'static str,
    /// The length of each set, for the statistics.
    pub lengths: Lengths,
    /// Whether a watched descriptor's file stays open until the watch is removed. In that case the
    /// poller applies the end of a registration at once, and not with the next wait.
    pub holds_files: bool,
    /// How it places descriptors, if it does.
    pub placement: Option<Placement<'a>>,
    /// Whether there is a keeper.
    pub keeper: KeeperStatus<'a>,
}

impl Status<'_> {
    /// The status of a back-end with this name and these lengths, and nothing special.
    pub fn new(name: &'static str, lengths: Lengths) -> Self {
        let keeper = KeeperStatus::None;
        Status { name, lengths, holds_files: false, placement: None, keeper }
    }
}

/// How a back-end places descriptors.
#[derive(Clone, Copy)]
pub struct Placement<'a> {
    /// The costs by which it places them.
    pub costs: &'a Costs,
    /// The rule.
    pub policy: &'a dyn Policy,
}

impl std::fmt::Debug for Placement<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Placement").field("policy", &self.policy.name()).finish_non_exhaustive()
    }
}

/// The effect of [`Backend::sync`] on a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Synced {
    /// The change was applied to the kernel.
    Applied,
    /// The kernel needed no change.
    Unchanged,
    /// The kernel cannot watch the descriptor because it is always ready (`EPERM`); the poller
    /// reports it in each wait.
    AlwaysReady,
}

/// How many descriptors are in each set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lengths {
    /// In the poll array (or the select sets).
    pub hot: usize,
    /// In epoll.
    pub cold: usize,
    /// With a keeper.
    pub away: usize,
}

/// Whether a poller has a keeper.
#[derive(Clone, Copy, Debug)]
pub enum KeeperStatus<'a> {
    /// The poller has none: it was not asked for, or it belongs to the parent of a forked process.
    None,
    /// The poller has one.
    Present,
    /// The poller had one until this error. Every registration that it held has come back.
    Lost(&'a io::Error),
}

/// Bytes of heap in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// The memory of the poller itself.
    pub own: usize,
    /// Arrays that the kernel reads or writes: `pollfd`, `epoll_event`.
    pub mirrors: usize,
}
