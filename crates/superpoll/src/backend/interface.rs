//! The traits that a back-end implements, and the facts that it reports about itself.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use crate::backend::{Context, Deadline, WaitCall};
use crate::costs::Costs;
use crate::error::{Error, Result};
use crate::interest::Watch;
use crate::key::Key;
use crate::operation::{Action, Operation, Progress, Ticket};
use crate::policy::Policy;

/// A way to watch descriptors. Implement it to give the poller another back-end
/// ([`Builder::custom`](crate::Builder::custom)).
///
/// A back-end that can do more than watch returns a further trait for each ability: it carries out
/// [`Operations`], or it has a [`Keeper`].
pub trait Backend: Send {
    /// Its name, and the facts about it that the poller and its statistics need.
    fn status(&self) -> Status<'_>;

    /// The heap that the back-end uses.
    fn memory(&self) -> Memory;

    /// Refuses, at registration and before anything is stored, a watch that the back-end can never
    /// support.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] or [`Error::DescriptorTooLarge`].
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
    /// early or without a report; the poller then calls again. With an answer it goes on with the
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

    /// Reads, writes and further operations that the kernel carries out, if the back-end offers
    /// them.
    fn operations(&mut self) -> Option<&mut dyn Operations> {
        None
    }

    /// The babysitter that watches idle descriptors, if the back-end was given one.
    fn keeper(&mut self) -> Option<&mut dyn Keeper> {
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

    /// Builds everything anew in a child process, where kernel objects are still shared with the
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
    /// [`Error::Unsupported`] where the kernel has no such object for this back-end.
    fn nest(&mut self, cx: &mut Context<'_>) -> Result<BorrowedFd<'_>>;

    /// Places every descriptor as an idle one, because the caller knows that they will be idle.
    fn assume_idle(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Frees memory that the current registrations do not need.
    fn shrink_to_fit(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

/// The ability to have the kernel carry out reads, writes and further operations.
pub trait Operations {
    /// Takes an action of the registration with this index, to carry out with the next wait, and
    /// its memory, which comes back in [`Events::completions`](crate::Events::completions).
    fn queue(&mut self, index: u32, fd: RawFd, action: Action, buffer: Vec<u8>, token: u64);

    /// Makes sure that nothing more is submitted under the number that a registration's descriptor
    /// has now. Returns whether an action was queued.
    fn disengage(&mut self, cx: &mut Context<'_>, index: u32) -> bool;

    /// Looks up the file of a registration that has come to stay once and for all.
    fn keep_file(&mut self, index: u32, fd: RawFd);

    /// Takes an operation of a registration, which the kernel learns of with the next wait, and
    /// returns its ticket.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the kernel does not support it, or the system call's error. The
    /// operation is given back.
    fn start(
        &mut self,
        cx: &mut Context<'_>,
        key: Key,
        operation: Operation,
        token: u64,
    ) -> Result<Ticket, (Error, Operation)>;

    /// Asks the kernel to end an operation.
    ///
    /// # Errors
    ///
    /// The system call's error.
    fn cancel(&mut self, cx: &mut Context<'_>, ticket: Ticket) -> io::Result<()>;

    /// Ends an operation and returns the progress that no wait has delivered yet, the last one
    /// included.
    ///
    /// # Errors
    ///
    /// The system call's error.
    fn reap(&mut self, cx: &mut Context<'_>, ticket: Ticket) -> io::Result<Vec<Progress>>;

    /// Forgets the actions, and ends the operations, of a registration that is over.
    fn withdraw(&mut self, cx: &mut Context<'_>, index: u32);

    /// Carries out the actions that were taken, in a wait that asks for no events because it has
    /// enough.
    ///
    /// # Errors
    ///
    /// The system call's error.
    fn perform(&mut self, cx: &mut Context<'_>) -> io::Result<()>;

    /// Applies to the kernel every change that [`sync`](Backend::sync) was called for.
    ///
    /// # Errors
    ///
    /// The system call's error.
    fn flush_kernel(&mut self, cx: &mut Context<'_>) -> io::Result<()>;

    /// The poller is used and dropped on this thread alone from now on.
    fn stay_on_thread(&mut self, cx: &mut Context<'_>);
}

/// The ability to give idle descriptors to a babysitter, which watches them elsewhere.
pub trait Keeper {
    /// Takes the state that a registration leaves with when it goes to another process.
    fn leave_state(&mut self, key: Key, state: &[u8]);

    /// Drops the state of a registration that is over.
    fn forget_state(&mut self, index: u32);

    /// Asks the babysitter which of its descriptors are ready, and waits for the answer: the next
    /// wait reports each that was ready before this call.
    fn catch_up(&mut self, cx: &mut Context<'_>);

    /// Gives the babysitter every registration that it may have, however recently that was active.
    fn hand_over_all(&mut self, cx: &mut Context<'_>);

    /// Takes back, for good, the descriptors that were changed or have ended.
    fn settle(&mut self, cx: &mut Context<'_>);

    /// Goes on without the babysitter, which belongs to the parent of this process.
    fn abandon(&mut self, cx: &mut Context<'_>);
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
    /// Whether there is a babysitter.
    pub keeper: Babysitting<'a>,
}

impl Status<'_> {
    /// The status of a back-end with this name and these lengths, and nothing special.
    pub fn new(name: &'static str, lengths: Lengths) -> Self {
        let keeper = Babysitting::None;
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
    /// With a babysitter.
    pub away: usize,
}

/// Whether a poller has a babysitter.
#[derive(Clone, Copy, Debug)]
pub enum Babysitting<'a> {
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
