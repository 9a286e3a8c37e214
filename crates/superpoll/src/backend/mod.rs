//! What the back-ends have in common: the trait they implement and what they are handed.
//!
//! A back-end knows how to watch descriptors and nothing else. Keys, coalescing, fairness, one-shot
//! disarming, timeouts across interruptions and the waker's protocol are the poller's: a back-end
//! receives a [`Context`] with the table of registrations and reports what it finds through
//! [`Context::report`], which drops what is stale or unwanted and stops at the limit. That is why
//! one of them fits into a screen or two, and why they behave alike.
//!
//! The order of calls is fixed. Before each wait the poller asks for [`Backend::sync`] once for
//! each slot that changed, ended registrations first, so that a removal is never overtaken. Then
//! it calls [`Backend::wait`], again and again with what is left of the timeout, until something
//! was delivered or the time is up.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::event::{Event, Events, Readiness};
use crate::interest::{Mode, Watch};
use crate::key::Key;
use crate::operation::{self, Operation, Progress, Ticket};
use crate::stats::Stats;
use crate::sys::batch::Batch;
use crate::table::Table;
use crate::waker::Sleep;

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

/// A way to watch descriptors. Implement it to give the poller another one
/// ([`Builder::custom`](crate::Builder::custom)).
pub trait Backend: Send {
    /// Its name, as users write it.
    fn name(&self) -> &'static str;

    /// Refuses at registration what the back-end can never do, before anything is stored.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] or [`Error::DescriptorTooLarge`].
    fn admit(&self, fd: RawFd, watch: Watch) -> Result<()>;

    /// Makes what is watched agree with the slot: `slot.watch()` if it is live, nothing if it is
    /// not. Notes in the slot what was told and where it is kept.
    ///
    /// # Errors
    ///
    /// The registration is refused with the error: the poller ends it, calls `sync` once more and
    /// tells the caller.
    fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced>;

    /// Waits once, at most until the deadline, and reports what is ready. May return early or
    /// without a report; the poller then calls again.
    ///
    /// # Errors
    ///
    /// What the system call said; `EINTR` is handled by the poller.
    fn wait(&mut self, cx: &mut Context<'_>, deadline: Deadline) -> io::Result<()>;

    /// Begins a wait whose only system call the poller may make in the back-end's place, which is
    /// cheaper (see [`Question`]). What it is answered is told to [`hear`](Backend::hear) at once,
    /// with nothing in between. `None` leaves it to [`wait`](Backend::wait).
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

    /// Whether what it watches stays open until it is told of the end: then it is told at once, with
    /// [`settle`](Backend::settle), and not with the next wait.
    fn holds_files(&self) -> bool {
        false
    }

    /// Takes actions to be carried out with the next wait, and their memory, which come back in
    /// [`Events::completions`]; `None` if it cannot.
    #[doc(hidden)]
    fn operations(&mut self) -> Option<&mut Batch> {
        None
    }

    /// Takes an operation of a registration, to be told to the kernel with the next wait, and what it is known by.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the back-end or the kernel cannot do it, or what the system call said. The
    /// operation is given back.
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
    /// What the system call said.
    #[doc(hidden)]
    fn cancel(&mut self, cx: &mut Context<'_>, ticket: Ticket) -> io::Result<()> {
        let _ = (cx, ticket);
        Ok(())
    }

    /// Ends an operation and returns what it has brought that no wait has told, its last progress included.
    ///
    /// # Errors
    ///
    /// What the system call said.
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

    /// Carries out the actions that were taken, in a wait that asks for no events because it has enough.
    ///
    /// # Errors
    ///
    /// What the system call said.
    fn perform(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let _ = cx;
        Ok(())
    }

    /// Has the kernel know everything that [`sync`](Backend::sync) was called for, if that has not
    /// been so from the start.
    ///
    /// # Errors
    ///
    /// What the system call said.
    fn settle(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let _ = cx;
        Ok(())
    }

    /// Asks a babysitter what is ready of what it watches, and waits for the answer: what was ready before is
    /// reported by the next wait.
    fn catch_up(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Gives to a babysitter all that it may have, however short a time ago it was active.
    fn hand_over_all(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Takes what a registration is to be left with when it leaves for a babysitter. Of no use where there is none.
    fn leave_state(&mut self, key: Key, state: &[u8]) {
        let _ = (key, state);
    }

    /// Whether there is a babysitter.
    fn babysitting(&self) -> Babysitting<'_> {
        Babysitting::None
    }

    /// Watches the waker's descriptor. An arrival on it is told with [`Context::waker_fired`].
    ///
    /// # Errors
    ///
    /// What the system call said.
    fn attach_waker(&mut self, cx: &mut Context<'_>, fd: BorrowedFd<'_>) -> Result<()>;

    /// The poller is used and dropped on this thread alone from now on.
    fn stay_on_thread(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Builds everything anew in a child process, where kernel objects are still shared with the
    /// parent. Afterwards every slot is told again through [`sync`](Backend::sync).
    ///
    /// # Errors
    ///
    /// What the system call said.
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

    /// The heap it uses.
    fn memory(&self) -> Memory;

    /// Gives memory back that it does not need for the registrations that there are.
    fn shrink_to_fit(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// The costs it places by, if it places by cost.
    fn costs(&self) -> Option<&crate::costs::Costs> {
        None
    }

    /// What its policy goes by now for a kind of descriptor, if it has one that goes by such numbers.
    fn thresholds(&self, kind: crate::costs::Kind) -> Option<crate::policy::Thresholds> {
        let _ = kind;
        None
    }
}

/// What [`Backend::sync`] made of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Synced {
    /// The kernel was told.
    Told,
    /// It did not have to be told.
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
    /// There is none: it was not asked for, or it is the parent's of a process that was forked.
    None,
    /// There is one.
    Present,
    /// There was one until this happened. Everything that it had has come back.
    Lost(&'a io::Error),
}

/// Bytes of heap in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// What the poller keeps for itself.
    pub own: usize,
    /// Arrays that the kernel reads or writes: `pollfd`, `epoll_event`.
    pub mirrors: usize,
}

/// Until when a wait may block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// It may not: look and return.
    Now,
    /// Until this moment.
    At(Instant),
    /// For ever.
    Never,
}

impl Deadline {
    /// From the timeout of a wait. A timeout too long for the clock is for ever.
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

    /// What is left: `None` for ever, zero if it may not block.
    #[inline]
    pub fn left(self) -> Option<Duration> {
        match self {
            Deadline::Now => Some(Duration::ZERO),
            Deadline::At(moment) => Some(moment.saturating_duration_since(Instant::now())),
            Deadline::Never => None,
        }
    }

    /// Whether nothing is left.
    pub fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}

/// What became of a report.
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

/// What a back-end is handed: registrations, statistics, and where to report.
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
    /// Reports what was found of a descriptor. Delivers what the caller wants of it, or keeps it for
    /// a later wait if the limit is reached; disarms a one-shot registration that was delivered.
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

    /// How many events may be delivered as they are found.
    #[inline]
    pub(crate) fn room_at_once(&self) -> usize {
        if self.delivery.all { 0 } else { self.events.limit - self.events.list.len() }
    }

    /// Delivers an event that needs no mask, if there is [room](Context::room_at_once).
    #[inline]
    pub(crate) fn deliver_plain(&mut self, key: Key, found: Readiness) {
        self.events.list.push(Event::new(key, found));
    }

    /// Says that a descriptor was found closed. Its registration ends with a refusal.
    pub fn invalid(&mut self, key: Key) {
        self.delivery.invalid.push(key);
    }

    /// Says that the kernel does not watch a descriptor that it was told to watch, with its error's number. Its
    /// registration ends with a refusal.
    pub fn unwatched(&mut self, key: Key, error: i32) {
        self.delivery.unwatched.push((key, error));
    }

    /// How many events are enough for a back-end whose kernel object gives out what is ready in
    /// turn; `None` if it must fetch all there are, because others take turns with it.
    pub(crate) fn room_in_turn(&self) -> Option<usize> {
        (!self.delivery.all && self.table.always_ready().is_empty())
            .then(|| self.events.limit - self.events.list.len())
    }

    /// To be called right before a system call that may block: announces the sleep to the wakers.
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

    /// Says that the waker's descriptor was reported.
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
    /// `Uring` where io_uring is allowed and cheaper, by what watching costs on this machine; else `Adaptive`.
    /// It stands for one of the two ([`resolve`](BackendKind::resolve)), and is the same for the life of a
    /// process.
    Auto,
}

/// The environment variable that chooses a back-end where the program did not.
pub const BACKEND_VARIABLE: &str = "SUPERPOLL_BACKEND";

impl BackendKind {
    /// All that watch, so not [`Auto`](BackendKind::Auto), which stands for one of them.
    pub const ALL: [BackendKind; 5] = [
        BackendKind::Select,
        BackendKind::Poll,
        BackendKind::Epoll,
        BackendKind::Adaptive,
        BackendKind::Uring,
    ];

    /// Those that this system offers: all but `uring` where the kernel has no io_uring or refuses it.
    pub fn available() -> Vec<BackendKind> {
        BackendKind::ALL.into_iter().filter(|&kind| kind.is_available()).collect()
    }

    /// Whether this system offers it. Of io_uring that is found out once.
    pub fn is_available(self) -> bool {
        static URING: OnceLock<bool> = OnceLock::new();
        self != BackendKind::Uring
            || *URING.get_or_init(|| !matches!(Uring::new(), Err(Error::BackendUnavailable { .. })))
    }

    /// What it stands for: itself, unless it is [`Auto`](BackendKind::Auto). Then the first call of a
    /// process measures for a few milliseconds; see [`Choice`] for what it has found.
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
        BackendKind::named()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| Error::UnknownBackend { name: name.to_owned() })
    }
}

impl std::fmt::Display for BackendKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
