//! The interface that all back-ends share: the trait that they implement and the context that the
//! poller hands them.
//!
//! A back-end knows how to watch descriptors and nothing else. Keys, coalescing, fairness, one-shot
//! disarming, timeouts across interruptions and the waker's protocol belong to the poller. A
//! back-end receives a [`Context`] with the table of registrations and reports each ready
//! descriptor through [`Context::report`], which drops stale and unwanted reports and stops at the
//! limit. That is why a back-end fits into a screen or two, and why all of them behave alike.
//!
//! The order of calls is fixed. Before each wait the poller asks for [`Backend::sync`] once for
//! each slot that changed, ended registrations first, so that a removal is never overtaken. Then it
//! calls [`Backend::wait`] with the rest of the timeout, again and again, until something was
//! delivered or the time is up.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::event::{Event, Events, Readiness};
use crate::interest::{Mode, Watch};
use crate::key::Key;
use crate::operation::{self, Operation, Progress, Ticket};
use crate::sleep::Sleep;
use crate::stats::Stats;
use crate::table::Table;
use uring::Batch;

pub(crate) mod adaptive;
mod array;
mod choice;
pub(crate) mod cold;
mod delivery;
pub(crate) mod epoll;
pub(crate) mod poll;
mod scan_clock;
pub(crate) mod select;
#[cfg(test)]
mod stage;
pub(crate) mod uring;

pub use adaptive::Adaptive;
pub use choice::{Choice, Reason};
pub use cold::{Profile, Rule, Topology, Tuning};
pub(crate) use delivery::Delivery;
pub use epoll::Epoll;
pub use poll::Poll;
pub use select::Select;
pub use uring::Uring;

pub use crate::sys::question::Question;

/// A way to watch descriptors. Implement it to give the poller another back-end
/// ([`Builder::custom`](crate::Builder::custom)).
pub trait Backend: Send {
    /// Its name, as users write it.
    fn name(&self) -> &'static str;

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

    /// Waits once, until the deadline at the latest, and reports the ready descriptors. May return
    /// early or without a report; the poller then calls again.
    ///
    /// # Errors
    ///
    /// The system call's error; the poller handles `EINTR`.
    fn wait(&mut self, cx: &mut Context<'_>, deadline: Deadline) -> io::Result<()>;

    /// Begins a wait whose only system call the poller may make in the back-end's place, which is
    /// cheaper (see [`Question`]). The poller passes the call's answer to [`hear`](Backend::hear)
    /// at once, with nothing in between. `None` leaves the wait to [`wait`](Backend::wait).
    fn ask<'a>(&'a mut self, cx: &mut Context<'_>, deadline: Deadline) -> Option<Question<'a>> {
        let _ = (cx, deadline);
        None
    }

    /// Goes on with a wait that [`ask`](Backend::ask) has begun, to the same deadline.
    ///
    /// # Errors
    ///
    /// As [`wait`](Backend::wait).
    fn hear(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
        answer: io::Result<usize>,
    ) -> io::Result<()> {
        let _ = (cx, deadline);
        answer.map(drop)
    }

    /// Whether the back-end keeps a watched descriptor's file open until the watch is removed. In
    /// that case the poller applies the end of a registration at once, with
    /// [`settle`](Backend::settle), and not with the next wait.
    fn holds_files(&self) -> bool {
        false
    }

    /// Takes actions to carry out with the next wait, and their memory, which come back in
    /// [`Events::completions`]; `None` if the back-end cannot carry out actions.
    #[doc(hidden)]
    fn operations(&mut self) -> Option<&mut Batch> {
        None
    }

    /// Takes an operation of a registration, which the kernel learns of with the next wait, and
    /// returns its ticket.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the back-end or the kernel does not support it, or the system
    /// call's error. The operation is given back.
    #[doc(hidden)]
    fn start(
        &mut self,
        cx: &mut Context<'_>,
        key: Key,
        operation: Operation,
        token: u64,
    ) -> Result<Ticket, (Error, Operation)> {
        let _ = (cx, key, token);
        Err((operation::unsupported(self.name()), operation))
    }

    /// Asks the kernel to end an operation.
    ///
    /// # Errors
    ///
    /// The system call's error.
    #[doc(hidden)]
    fn cancel(&mut self, cx: &mut Context<'_>, ticket: Ticket) -> io::Result<()> {
        let _ = (cx, ticket);
        Ok(())
    }

    /// Ends an operation and returns the progress that no wait has delivered yet, the last one
    /// included.
    ///
    /// # Errors
    ///
    /// The system call's error.
    #[doc(hidden)]
    fn reap(&mut self, cx: &mut Context<'_>, ticket: Ticket) -> io::Result<Vec<Progress>> {
        let _ = (cx, ticket);
        Ok(Vec::new())
    }

    /// Forgets the actions and the state, and ends the operations, of a registration that is over.
    #[doc(hidden)]
    fn withdraw(&mut self, cx: &mut Context<'_>, index: u32) {
        let _ = (cx, index);
    }

    /// Carries out the actions that were taken, in a wait that asks for no events because it has
    /// enough.
    ///
    /// # Errors
    ///
    /// The system call's error.
    fn perform(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let _ = cx;
        Ok(())
    }

    /// Applies to the kernel every change that [`sync`](Backend::sync) was called for, if `sync`
    /// has not done so already.
    ///
    /// # Errors
    ///
    /// The system call's error.
    fn settle(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let _ = cx;
        Ok(())
    }

    /// Asks the babysitter which of its descriptors are ready, and waits for the answer: the next
    /// wait reports each that was ready before this call.
    fn catch_up(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Gives the babysitter every registration that it may have, however recently that was active.
    fn hand_over_all(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Takes the state that a registration leaves with when it goes to a babysitter. Has no effect
    /// without a babysitter.
    fn leave_state(&mut self, key: Key, state: &[u8]) {
        let _ = (key, state);
    }

    /// Whether there is a babysitter.
    fn babysitting(&self) -> Babysitting<'_> {
        Babysitting::None
    }

    /// Watches the waker's descriptor. The back-end reports an arrival on it with
    /// [`Context::waker_fired`].
    ///
    /// # Errors
    ///
    /// The system call's error.
    fn attach_waker(&mut self, cx: &mut Context<'_>, fd: BorrowedFd<'_>) -> Result<()>;

    /// The poller is used and dropped on this thread alone from now on.
    fn stay_on_thread(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

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

    /// The length of each set, for the statistics.
    fn lengths(&self) -> Lengths;

    /// The heap that the back-end uses.
    fn memory(&self) -> Memory;

    /// Frees memory that the current registrations do not need.
    fn shrink_to_fit(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// The costs by which the back-end places descriptors, if it places by cost.
    fn costs(&self) -> Option<&crate::costs::Costs> {
        None
    }

    /// The current thresholds of the back-end's policy for a kind of descriptor, if the policy has
    /// such numbers.
    fn thresholds(&self, kind: crate::costs::Kind) -> Option<crate::policy::Thresholds> {
        let _ = kind;
        None
    }
}

/// The effect of [`Backend::sync`] on a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Synced {
    /// The change was applied to the kernel.
    Told,
    /// The kernel needed no change.
    Saved,
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

/// Until when a wait may block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// It may not block: check and return.
    Now,
    /// Until this moment.
    At(Instant),
    /// Indefinitely.
    Never,
}

impl Deadline {
    /// Converts the timeout of a wait. A timeout too long for the clock never ends.
    #[inline(never)]
    pub fn after(timeout: Option<Duration>) -> Deadline {
        match timeout {
            None => Deadline::Never,
            Some(Duration::ZERO) => Deadline::Now,
            Some(timeout) => {
                Instant::now().checked_add(timeout).map_or(Deadline::Never, Deadline::At)
            }
        }
    }

    /// The rest of the time: `None` without an end, zero if the wait may not block.
    #[inline]
    pub fn left(self) -> Option<Duration> {
        match self {
            Deadline::Now => Some(Duration::ZERO),
            Deadline::At(moment) => Some(moment.saturating_duration_since(Instant::now())),
            Deadline::Never => None,
        }
    }

    /// Whether no time is left.
    pub fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}

/// The outcome of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// Delivered.
    Taken,
    /// Kept for its turn.
    Later,
    /// The registration does not want it (disarmed, or a direction disabled lazily).
    Unwanted,
    /// The registration has ended.
    Stale,
}

/// The context of a call to a back-end: registrations, statistics, and where to report.
pub struct Context<'a> {
    /// The registrations.
    pub table: &'a mut Table,
    /// The counters.
    pub stats: &'a mut Stats,
    pub(crate) events: &'a mut Events,
    pub(crate) delivery: &'a mut Delivery,
    pub(crate) sleep: Option<&'a Sleep>,
    pub(crate) asleep: bool,
}

impl Context<'_> {
    /// Reports the readiness found for a descriptor. Delivers the part that the caller wants, or
    /// keeps it for a later wait if the limit is reached; disarms a one-shot registration that was
    /// delivered.
    #[inline]
    pub fn report(&mut self, key: Key, found: Readiness) -> Report {
        let Some(slot) = self.table.get_mut(key) else {
            self.stats.stale += 1;
            return Report::Stale;
        };
        let watch = slot.watch();
        let wanted = found.masked(watch.interest);
        if wanted.is_empty() {
            self.stats.unwanted += 1;
            return Report::Unwanted;
        }
        if self.delivery.all || self.events.list.len() >= self.events.limit {
            slot.set_queued(true);
            self.delivery.backlog.push_back(Event::new(key, wanted));
            return Report::Later;
        }
        if watch.mode == Mode::OneShot {
            slot.disarm();
        }
        self.events.list.push(Event::new(key, wanted));
        Report::Taken
    }

    /// How many events may be delivered as soon as they are found.
    #[inline]
    pub(crate) fn room_at_once(&self) -> usize {
        if self.delivery.all { 0 } else { self.events.limit - self.events.list.len() }
    }

    /// Delivers an event that needs no mask, if there is [room](Context::room_at_once).
    #[inline]
    pub(crate) fn deliver_plain(&mut self, key: Key, found: Readiness) {
        self.events.list.push(Event::new(key, found));
    }

    /// Reports that a descriptor was found closed. Its registration ends with a refusal.
    pub fn invalid(&mut self, key: Key) {
        self.delivery.invalid.push(key);
    }

    /// Reports that the kernel does not watch a descriptor although it was asked to, with the
    /// error's number. Its registration ends with a refusal.
    pub fn unwatched(&mut self, key: Key, error: i32) {
        self.delivery.unwatched.push((key, error));
    }

    /// How many events are enough for a back-end whose kernel object reports ready descriptors in
    /// turn; `None` if it must fetch all of them, because other sources share the turns.
    pub(crate) fn room_in_turn(&self) -> Option<usize> {
        (!self.delivery.all && self.table.always_ready().is_empty())
            .then(|| self.events.limit - self.events.list.len())
    }

    /// Call this right before a system call that may block: it announces the sleep to the wakers.
    /// If it returns false a wake has come already, and the call must not block.
    #[must_use]
    #[inline]
    pub fn may_block(&mut self) -> bool {
        match self.sleep {
            None => true,
            Some(_) if self.asleep => true,
            Some(sleep) => {
                self.asleep = sleep.begin();
                self.asleep
            }
        }
    }

    /// Reports that the waker's descriptor is ready.
    pub fn waker_fired(&mut self) {
        if let Some(sleep) = self.sleep {
            sleep.drain(&mut self.stats.calls);
        }
    }
}

/// The back-ends that come with the crate, by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum BackendKind {
    /// `select(2)`: descriptors below 1024.
    Select,
    /// `poll(2)`: cheapest where most descriptors are active.
    Poll,
    /// `epoll(7)`: cheapest where few are active.
    Epoll,
    /// Busy descriptors in a poll array, idle ones in epoll (the default).
    #[default]
    Adaptive,
    /// io_uring (Linux 5.19), where it is allowed: changes and waits are one call.
    Uring,
    /// `Uring` where io_uring is allowed and cheaper, by the measured costs of this machine; else
    /// `Adaptive`. It stands for one of the two ([`resolve`](BackendKind::resolve)), and is the
    /// same for the life of a process.
    Auto,
}

/// The environment variable that chooses a back-end where the program did not.
pub const BACKEND_VARIABLE: &str = "SUPERPOLL_BACKEND";

impl BackendKind {
    /// All back-ends that watch descriptors, so not [`Auto`](BackendKind::Auto), which stands for
    /// one of them.
    pub const ALL: [BackendKind; 5] = [
        BackendKind::Select,
        BackendKind::Poll,
        BackendKind::Epoll,
        BackendKind::Adaptive,
        BackendKind::Uring,
    ];

    /// The back-ends that this system offers: all but `uring` where the kernel has no io_uring or
    /// refuses it.
    pub fn available() -> Vec<BackendKind> {
        BackendKind::ALL.into_iter().filter(|&kind| kind.is_available()).collect()
    }

    /// Whether this system offers it. For io_uring the answer is found once per process.
    pub fn is_available(self) -> bool {
        static URING: OnceLock<bool> = OnceLock::new();
        self != BackendKind::Uring
            || *URING.get_or_init(|| !matches!(Uring::new(), Err(Error::BackendUnavailable { .. })))
    }

    /// Returns the back-end that this kind stands for: itself, unless it is
    /// [`Auto`](BackendKind::Auto). For `Auto`, the first call of a process measures for a few
    /// milliseconds; [`Choice`] has the results.
    pub fn resolve(self) -> BackendKind {
        if self == BackendKind::Auto { Choice::here().kind } else { self }
    }

    /// Its name, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            BackendKind::Select => "select",
            BackendKind::Poll => "poll",
            BackendKind::Epoll => "epoll",
            BackendKind::Adaptive => "adaptive",
            BackendKind::Uring => "uring",
            BackendKind::Auto => "auto",
        }
    }

    fn named() -> impl Iterator<Item = BackendKind> {
        BackendKind::ALL.into_iter().chain([BackendKind::Auto])
    }

    /// All names, separated by commas.
    pub fn names() -> String {
        BackendKind::named().map(BackendKind::name).collect::<Vec<_>>().join(", ")
    }
}

impl std::str::FromStr for BackendKind {
    type Err = Error;
    fn from_str(name: &str) -> Result<BackendKind> {
        BackendKind::named().find(|kind| kind.name() == name).ok_or_else(|| Error::UnknownBackend {
            name: name.to_owned(),
            known: BackendKind::names(),
        })
    }
}

impl std::fmt::Display for BackendKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
