//! The poller: registrations, waits, and the logic that all back-ends share.
//!
//! Registrations are noted in the [`Table`]. Before a wait, `changes` applies to the kernel the
//! changes that are left. Then `wait` does the work: it takes over commands of other threads and
//! dropped owners, syncs changed slots with the back-end, ended ones first, and delivers events
//! that need no kernel. It lets the back-end wait, again and again, until something was delivered,
//! a wake came or the time is up.
//!
//! Everything here is done by the thread that has `&mut Poller`. Without wakers, registrars or
//! owners there is no atomic operation on the way but one load.

use std::any::Any;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use crate::backend::{Backend, BatchReads, Context, Delivery, KeeperStatus, Memory};
use crate::costs::{Costs, Kind};
use crate::error::{Error, Result};
use crate::event::{Event, Events, Readiness};
use crate::interest::{Interest, Mode, Watch};
use crate::key::Key;
use crate::owned::{Owned, Rejected};
use crate::policy::PlacementCosts;
use crate::registrar::Registrar;
use crate::shared::{Command, Shared};
use crate::stats::{Calls, Stats};
use crate::sys::descriptor;
use crate::table::Table;
use crate::waker::Waker;

mod builder;
mod changes;
mod gather;
mod wait;

pub use builder::Builder;
use gather::Gather;

/// Watches descriptors and says which are ready.
///
/// ```
/// use std::io::{Read, Write};
/// use superpoll::{Events, Interest, Poller};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut poller = Poller::new()?;
/// let (reader, mut writer) = std::io::pipe()?;
/// let mut reader = poller.own(reader, Interest::READABLE)?;
/// writer.write_all(b"x")?;
///
/// let mut events = Events::with_limit(64);
/// poller.wait(&mut events, None)?;
/// let event = events.iter().next().unwrap();
/// assert!(event.key() == reader.key() && event.is_readable());
/// reader.get_mut().read_exact(&mut [0])?;
/// # Ok(())
/// # }
/// ```
pub struct Poller {
    backend: Box<dyn Backend>,
    table: Table,
    stats: Stats,
    delivery: Delivery,
    /// Stands in for the caller's list in calls that deliver nothing.
    no_events: Events,
    shared: Arc<Shared>,
    /// Whether any handle can wake this poller.
    wakeable: bool,
    commands: Vec<Command>,
    marked_ready: Vec<Event>,
    refusals: Vec<(Key, Error)>,
    nested: bool,
    gather: Option<Gather>,
    /// Whether a wait is nothing but a call of the back-end: it is not nested and does not gather.
    is_plain: bool,
    /// As the back-end's status says.
    holds_files: bool,
    /// Whether the back-end notes more about a registration than its watch.
    has_more: bool,
    /// The objects that were [shared](Poller::share), by index. The back-end, which is dropped
    /// first, does not use them any more.
    shared_files: HashMap<u32, Arc<dyn Any + Send + Sync>>,
}

crate::debug_fields!(Poller, it =>
    backend: it.backend.status().name, registrations: it.table.len());

impl Poller {
    /// A poller with the back-end that `SUPERPOLL_BACKEND` names (`auto` for io_uring where it is
    /// allowed and cheaper), else the adaptive one.
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
    pub fn new() -> Result<Poller> {
        Poller::builder().build()
    }

    /// Starts choosing back-end, policy and costs.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn with(mut backend: Box<dyn Backend>) -> Poller {
        let shared = Arc::new(Shared::new());
        let holds_files = backend.status().holds_files;
        let has_more = backend.batch_reads().is_some() || backend.keeper().is_some();
        Poller {
            backend,
            table: Table::new(shared.names.clone()),
            stats: Stats::default(),
            delivery: Delivery::default(),
            no_events: Events::with_limit(0),
            shared,
            wakeable: false,
            commands: Vec::new(),
            marked_ready: Vec::new(),
            refusals: Vec::new(),
            nested: false,
            gather: None,
            is_plain: true,
            holds_files,
            has_more,
            shared_files: HashMap::new(),
        }
    }

    /// The back-end's name.
    pub fn backend(&self) -> &'static str {
        self.backend.status().name
    }

    /// How many descriptors are registered.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Heap in use for registrations.
    pub fn memory(&self) -> Memory {
        let backend = self.backend.memory();
        Memory { own: self.table.memory() + backend.own, mirrors: backend.mirrors }
    }

    /// The costs by which the back-end places descriptors, if it places by cost.
    pub fn costs(&self) -> Option<&Costs> {
        self.backend.status().placement.map(|placement| placement.costs)
    }

    /// The name of the policy by which the back-end places descriptors, if it has one.
    pub fn policy(&self) -> Option<&'static str> {
        self.backend.status().placement.map(|placement| placement.policy.name())
    }

    /// The thresholds that the back-end's policy uses now for a kind of descriptor, if it has
    /// learned such numbers.
    pub fn placement_costs(&self, kind: Kind) -> Option<PlacementCosts> {
        self.backend.status().placement?.policy.placement_costs(kind)
    }

    /// The counters, from the creation of the poller on.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        let lengths = self.backend.status().lengths;
        stats.hot.len = lengths.hot;
        stats.cold.len = lengths.cold;
        stats.away.len = lengths.away;
        stats.calls.waker_write = self.shared.sleep.writes();
        stats
    }

    /// Registers a descriptor. The registration reaches the kernel with the next wait.
    ///
    /// The descriptor must stay open until [`deregister`](Poller::deregister); if it is closed
    /// before, an epoll back-end forgets it and a poll array may watch its successor.
    /// [`own`](Poller::own) rules that out.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyRegistered`], and the watches that the back-end can never support:
    /// [`Error::Unsupported`], [`Error::DescriptorTooLarge`].
    pub fn register(&mut self, fd: impl AsFd, watch: impl Into<Watch>) -> Result<Key> {
        self.insert(fd.as_fd().as_raw_fd(), watch.into(), None)
    }

    /// Registers a descriptor given by number, which costs an `fcntl` to see that it is open.
    ///
    /// # Errors
    ///
    /// [`Error::BadDescriptor`] if it is negative or not open, else as
    /// [`register`](Poller::register).
    pub fn register_raw(&mut self, fd: RawFd, watch: impl Into<Watch>) -> Result<Key> {
        if fd < 0 || !descriptor::is_open(&mut self.stats.calls, fd) {
            return Err(Error::BadDescriptor { fd });
        }
        self.insert(fd, watch.into(), None)
    }

    /// Registers a descriptor and takes it over: it is detached before it is closed.
    ///
    /// # Errors
    ///
    /// As [`register`](Poller::register); the descriptor is given back.
    pub fn own<T: AsFd>(
        &mut self,
        io: T,
        watch: impl Into<Watch>,
    ) -> Result<Owned<T>, Rejected<T>> {
        match self.register(&io, watch) {
            Ok(key) => Ok(Owned::new(io, key, self.shared.clone())),
            Err(error) => Err(Rejected { io, error }),
        }
    }

    /// Registers a descriptor and keeps it open until the registration has ended, even if all other
    /// references to it are dropped. So the number means the same file for as long as the poller
    /// uses it, also when the descriptor goes to a keeper in another process
    /// ([`Topology::Process`](crate::backend::Topology::Process)).
    ///
    /// # Errors
    ///
    /// As [`register`](Poller::register).
    pub fn share<T>(&mut self, io: &Arc<T>, watch: impl Into<Watch>) -> Result<Key>
    where
        T: AsFd + Send + Sync + 'static,
    {
        let key = self.register(&**io, watch)?;
        // In a nested poller the registration may have been refused already.
        if self.table.get(key).is_some() {
            self.shared_files.insert(key.index(), io.clone());
            self.table.slot_mut(key.index()).set_owned();
        }
        Ok(key)
    }

    /// Ends the registration of an owned descriptor, if it has not ended yet, and gives the
    /// descriptor back, open. For an owned descriptor of another poller, this is
    /// [`Owned::into_inner`].
    pub fn disown<T: AsFd>(&mut self, owned: Owned<T>) -> T {
        if !owned.belongs_to(&self.shared) {
            return owned.into_inner();
        }
        if self.end(owned.key(), false).is_ok() {
            self.changed();
        }
        owned.into_io()
    }

    fn insert(&mut self, fd: RawFd, watch: Watch, key: Option<Key>) -> Result<Key> {
        if fd < 0 {
            return Err(Error::BadDescriptor { fd });
        }
        self.take_commands();
        if let Some(key) = self.table.find(fd) {
            return Err(Error::AlreadyRegistered { fd, key });
        }
        self.admit(fd, watch)?;
        let key = self.table.insert(fd, watch, key);
        self.changed();
        Ok(key)
    }

    fn admit(&self, fd: RawFd, watch: Watch) -> Result<()> {
        let excluded = Interest::PRIORITY | Interest::READ_CLOSED;
        if watch.mode == Mode::Exclusive && watch.interest.intersects(excluded) {
            return Err(Error::Unsupported {
                backend: self.backend.status().name,
                what: "exclusive wake-ups with priority or read-closed interest",
                instead: "the kernel refuses them (EINVAL); ask for readable and writable only",
            });
        }
        self.backend.admit(fd, watch)
    }

    /// Changes the interest of a registration and keeps its mode; arms a one-shot registration
    /// again. The change reaches the kernel with the next wait, unless it is undone before.
    ///
    /// With [`Mode::Edge`], a descriptor that is ready already is reported if the change reached
    /// the kernel.
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`], [`Error::Unsupported`]; the registration is as before.
    pub fn modify(&mut self, key: Key, interest: Interest) -> Result<()> {
        let slot = self.table.get(key).ok_or(Error::StaleKey { key })?;
        let watch = Watch { interest, ..slot.watch() };
        self.modify_watch(key, watch)
    }

    /// Changes interest and mode of a registration; ignores the hint.
    ///
    /// # Errors
    ///
    /// As [`modify`](Poller::modify).
    pub fn modify_watch(&mut self, key: Key, watch: impl Into<Watch>) -> Result<()> {
        let watch = watch.into();
        let slot = self.table.get(key).ok_or(Error::StaleKey { key })?;
        let fd = slot.fd();
        let before = slot.watch();
        if (before.interest, before.mode) == (watch.interest, watch.mode) {
            self.stats.changes_saved += 1;
            return Ok(());
        }
        self.admit(fd, watch)?;
        let slot = self.table.slot_mut(key.index());
        slot.set_watch(watch);
        slot.set_due(true);
        self.table.mark(key.index());
        self.changed();
        Ok(())
    }

    /// Ends a registration; no event of it is delivered any more. The descriptor stays open, and
    /// the removal reaches the kernel with the next wait. The caller may close the descriptor at
    /// once.
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`].
    pub fn deregister(&mut self, key: Key) -> Result<()> {
        self.end(key, false)?;
        self.ended();
        Ok(())
    }

    /// Ends a registration whose descriptor the caller closes right after, before the next wait,
    /// and does not keep open through a duplicate: except with `uring`, the removal then costs no
    /// system call. [`Owned`] does this by itself.
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`].
    pub fn deregister_for_close(&mut self, key: Key) -> Result<()> {
        self.end(key, true)?;
        self.ended();
        Ok(())
    }

    fn end(&mut self, key: Key, closed: bool) -> Result<()> {
        if self.table.get(key).is_none() {
            return Err(Error::StaleKey { key });
        }
        let index = key.index();
        self.withdraw(index);
        self.table.end(index, closed);
        self.let_go(index);
        if closed {
            // No system call is due, and the number may be registered again right away.
            self.sync(index);
            return Ok(());
        }
        let slot = self.table.slot(index);
        if slot.applied().is_none() && slot.place().is_none() && !slot.is_away() {
            self.stats.changes_saved += 1;
            self.table.release(index);
        }
        Ok(())
    }

    /// Drops the shared object of an index.
    #[inline]
    fn let_go(&mut self, index: u32) {
        if !self.shared_files.is_empty() {
            self.shared_files.remove(&index);
        }
    }

    /// Marks a registration as ready where the caller knows so without the kernel: a TLS session
    /// has buffered bytes, or a stream was not drained. The next wait delivers that readiness, as
    /// far as the registration wants it, together with the kernel's events for other descriptors,
    /// and does not block.
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`].
    pub fn mark_ready(&mut self, key: Key, readiness: Readiness) -> Result<()> {
        if self.table.get(key).is_none() {
            return Err(Error::StaleKey { key });
        }
        self.marked_ready.push(Event::new(key, readiness));
        self.sync_nested_wakeup();
        Ok(())
    }

    /// Sets the state that a registration leaves with when it goes to another process
    /// ([`Topology::Process`]): the facts that a successor of this process must know about it, in
    /// bytes that only the two understand. It replaces the state that was given before. A
    /// descriptor that is away comes back for this and leaves again with the new state.
    ///
    /// The state goes when the descriptor leaves, and the caller gives it again once the descriptor
    /// has come back because of an event or a change. A descriptor that comes back because the
    /// keeper could not take it still has its state.
    ///
    /// Other topologies drop the state.
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`]; [`Error::StateTooLong`] above [`superpoll_keeper::STATE`] bytes.
    ///
    /// [`Topology::Process`]: crate::backend::Topology::Process
    #[cfg(feature = "keeper")]
    pub fn leave_state(&mut self, key: Key, state: &[u8]) -> Result<()> {
        if self.table.get(key).is_none() {
            return Err(Error::StaleKey { key });
        }
        if state.len() > superpoll_keeper::STATE {
            return Err(Error::StateTooLong { length: state.len(), most: superpoll_keeper::STATE });
        }
        if let Some(keeper) = self.backend.keeper() {
            keeper.leave_state(key, state);
        }
        if self.table.slot(key.index()).is_away() {
            self.table.mark(key.index());
            self.changed();
        }
        Ok(())
    }

    /// Gives the keeper all registrations that it may have, whatever they did last, and returns
    /// how many stayed here: those that are ready, those that it may not have, and all of them if
    /// there is no keeper.
    ///
    /// Meant for a server that is about to end, or that has just begun with descriptors that are
    /// all idle.
    pub fn move_all_to_keeper(&mut self) -> usize {
        self.flush_kernel();
        let (backend, mut cx) = self.split();
        backend.lifecycle().assume_idle(&mut cx);
        if let Some(keeper) = backend.keeper() {
            keeper.move_all_to_keeper(&mut cx);
        }
        self.sync_nested_wakeup();
        self.table.len() - self.backend.status().lengths.away
    }

    /// Whether a registration is with the keeper; false if it has ended.
    pub fn is_away(&self, key: Key) -> bool {
        self.table.get(key).is_some_and(crate::table::Slot::is_away)
    }

    /// Whether there is a keeper, or why not any more. It changes in waits and flushes;
    /// `Stats::keeper_lost` says whether it is worth a look.
    pub fn keeper_status(&self) -> KeeperStatus<'_> {
        self.backend.status().keeper
    }

    /// The counters for system calls that are made outside the poller.
    #[inline]
    pub(crate) fn calls(&mut self) -> &mut Calls {
        &mut self.stats.calls
    }

    /// The back-end's reads, for a caller that keeps its descriptors open.
    #[inline]
    pub(crate) fn batch_reads(&mut self) -> Option<&mut dyn BatchReads> {
        self.backend.batch_reads()
    }

    /// A handle that makes [`wait`](Poller::wait) return, from any thread. The first one costs
    /// an eventfd.
    ///
    /// # Errors
    ///
    /// [`Error::DescriptorLimit`], or the back-end's error from watching it.
    pub fn waker(&mut self) -> Result<Waker> {
        self.make_wakeable()?;
        Ok(Waker(self.shared.clone()))
    }

    /// A handle that registers descriptors from any thread. The first one costs an eventfd.
    ///
    /// # Errors
    ///
    /// As [`waker`](Poller::waker).
    pub fn registrar(&mut self) -> Result<Registrar> {
        self.make_wakeable()?;
        Ok(Registrar(self.shared.clone()))
    }

    fn make_wakeable(&mut self) -> Result<()> {
        if self.wakeable {
            return Ok(());
        }
        let shared = self.shared.clone();
        shared.sleep.ensure(&mut self.stats.calls)?;
        if let Some(fd) = shared.sleep.fd() {
            let (backend, mut cx) = self.split();
            backend.lifecycle().attach_waker(&mut cx, fd)?;
        }
        self.wakeable = true;
        Ok(())
    }

    /// The back-end and a context for calls that deliver nothing.
    fn split(&mut self) -> (&mut dyn Backend, Context<'_>) {
        let context = Context {
            table: &mut self.table,
            stats: &mut self.stats,
            events: &mut self.no_events,
            delivery: &mut self.delivery,
            sleep: None,
            asleep: false,
        };
        (&mut *self.backend, context)
    }

    /// The back-end and a context for a wait.
    fn note_whether_waits_are_plain(&mut self) {
        self.is_plain = !self.nested && self.gather.is_none();
    }

    fn split_for<'a>(&'a mut self, events: &'a mut Events) -> (&'a mut dyn Backend, Context<'a>) {
        let context = Context {
            table: &mut self.table,
            stats: &mut self.stats,
            events,
            delivery: &mut self.delivery,
            sleep: self.wakeable.then_some(&self.shared.sleep),
            asleep: false,
        };
        (&mut *self.backend, context)
    }

    /// A descriptor that is readable when a wait would deliver something: watch it in another event
    /// loop, and call [`wait`](Poller::wait) with a zero timeout when it is readable. From then on
    /// all descriptors are watched through epoll, and changes are applied at once.
    ///
    /// This is a method and not `AsFd`, which cannot fail: `select` and `poll` have no descriptor
    /// of their own, and after a fork it is another one. For a loop that wants to own what it
    /// watches, such as tokio's `AsyncFd`, duplicate it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for back-ends without epoll.
    pub fn nest(&mut self) -> Result<BorrowedFd<'_>> {
        self.make_wakeable()?;
        self.flush_kernel();
        let (backend, mut cx) = self.split();
        backend.lifecycle().nest(&mut cx)?;
        self.nested = true;
        self.note_whether_waits_are_plain();
        self.sync_nested_wakeup();
        let (backend, mut cx) = self.split();
        backend.lifecycle().nest(&mut cx)
    }

    /// Between two waits of a nested poller the outer loop sleeps in its stead, so a wake must
    /// reach the eventfd, and so must readiness that needs no kernel.
    fn sync_nested_wakeup(&self) {
        if !self.nested {
            return;
        }
        let always = self.table.always_ready().iter().any(|&index| {
            let slot = self.table.slot(index);
            !slot.interest().is_empty() && (slot.is_due() || slot.watch().mode == Mode::Level)
        });
        let known = always
            || !self.marked_ready.is_empty()
            || !self.refusals.is_empty()
            || !self.delivery.backlog.is_empty();
        self.shared.sleep.stay_asleep(known);
    }

    /// Promises that the poller is used and dropped on this thread alone from now on, which makes
    /// each wait of `uring` some 25 ns cheaper (`IORING_REGISTER_RING_FDS`); the other back-ends
    /// make no use of it.
    ///
    /// Without the promise a poller may go to another thread at any time. If it goes there in spite
    /// of the promise, everything works as before, but descriptors that are registered then stay
    /// open for their peers until this thread ends: only it can give the ring's reference back.
    pub fn stay_on_thread(&mut self) {
        let (backend, mut cx) = self.split();
        backend.lifecycle().stay_on_thread(&mut cx);
    }

    /// Call this in a child process after `fork(2)`, before anything else: it rebuilds everything
    /// that the child would otherwise share with its parent, so that neither disturbs the other.
    /// All registrations stay as they are; an edge may be reported a second time. Wakers and
    /// registrars of the parent that the child inherited now wake the child.
    ///
    /// The fork must not happen while another thread uses a registrar or drops an owner.
    ///
    /// # Errors
    ///
    /// [`Error::DescriptorLimit`], or the kernel's error from making new objects.
    pub fn after_fork(&mut self) -> Result<()> {
        let shared = self.shared.clone();
        shared.sleep.after_fork(&mut self.stats.calls)?;
        let (backend, mut cx) = self.split();
        backend.lifecycle().after_fork(&mut cx)?;
        if let Some(fd) = shared.sleep.fd() {
            let (backend, mut cx) = self.split();
            backend.lifecycle().attach_waker(&mut cx, fd)?;
        }
        for index in self.table.indices() {
            if self.table.slot(index).fd() >= 0 {
                self.table.slot_mut(index).set_applied(None);
                self.table.mark(index);
            }
        }
        self.changed();
        Ok(())
    }
}
