//! The poller: registrations, waits, and what is the same for every back-end.
//!
//! A wait has four steps. Commands of other threads and dropped owners are taken over. Changed
//! slots are synced with the back-end, ended ones first. What needs no kernel (files that are
//! always ready, readiness that the caller told) is delivered. Then the back-end waits, again and
//! again until something was delivered, a wake came or the time is up: an interruption, an event
//! nobody wants, a late write of a waker, none of them makes a wait return early.
//!
//! Everything here is done by the thread that has `&mut Poller`. Without wakers, registrars or
//! owners there is no atomic operation on the way but one load.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{
    Adaptive, BACKEND_VARIABLE, Backend, BackendKind, Context, Deadline, Delivery, Epoll, Memory,
    Poll, Report, Select, Synced,
};
use crate::costs::Costs;
use crate::error::{Error, Result};
use crate::event::{Event, Events, Readiness};
use crate::interest::{Interest, Mode, Watch};
use crate::key::Key;
use crate::owned::{Owned, Rejected};
use crate::policy::{Governed, Policy};
use crate::registrar::{Command, Registrar, Shared};
use crate::stats::Stats;
use crate::sys;
use crate::table::Table;
use crate::waker::{Signals, Waker};

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
/// reader.read_exact(&mut [0])?;
/// # Ok(())
/// # }
/// ```
pub struct Poller {
    backend: Box<dyn Backend>,
    table: Table,
    stats: Stats,
    delivery: Delivery,
    /// Stands in where nothing is delivered.
    no_events: Events,
    shared: Arc<Shared>,
    /// Whether anybody can wake this poller.
    wakeable: bool,
    commands: Vec<Command>,
    told_ready: Vec<Event>,
    refusals: Vec<(Key, Error)>,
    nested: bool,
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller")
            .field("backend", &self.backend.name())
            .field("registrations", &self.table.len())
            .finish_non_exhaustive()
    }
}

/// Chooses what a poller is made of; see [`Poller::builder`].
#[derive(Default)]
pub struct Builder {
    kind: Option<BackendKind>,
    make: Option<Make>,
    costs: Option<Costs>,
}

/// Makes a back-end, given what watching costs.
type Make = Box<dyn FnOnce(Option<Costs>) -> Result<Box<dyn Backend>>>;

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Builder {
    /// Uses this back-end, whatever the environment says.
    #[must_use]
    pub fn backend(self, kind: BackendKind) -> Builder {
        Builder { kind: Some(kind), make: None, ..self }
    }

    /// Uses the adaptive back-end with this placement policy instead of [`Governed`].
    #[must_use]
    pub fn policy(self, policy: impl Policy + 'static) -> Builder {
        Builder { make: Some(Box::new(move |costs| adaptive(policy, costs))), ..self }
    }

    /// Uses a back-end of the caller's own.
    #[must_use]
    pub fn custom(self, backend: impl Backend + 'static) -> Builder {
        Builder { make: Some(Box::new(move |_| Ok(Box::new(backend)))), ..self }
    }

    /// Places by these costs instead of those measured in this process.
    #[must_use]
    pub fn costs(self, costs: Costs) -> Builder {
        Builder { costs: Some(costs), ..self }
    }

    /// Makes the poller.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownBackend`] if `SUPERPOLL_BACKEND` was consulted and names none,
    /// [`Error::DescriptorLimit`] if there is no descriptor left for an epoll instance,
    /// [`Error::BackendUnavailable`] if the kernel refuses the back-end.
    pub fn build(self) -> Result<Poller> {
        let backend = match (self.make, self.kind) {
            (Some(make), _) => make(self.costs)?,
            (None, Some(kind)) => build_kind(kind, self.costs)?,
            (None, None) => build_kind(kind_from_environment()?, self.costs)?,
        };
        Ok(Poller::with(backend))
    }
}

fn kind_from_environment() -> Result<BackendKind> {
    match std::env::var_os(BACKEND_VARIABLE) {
        Some(name) if !name.is_empty() => name.to_string_lossy().parse(),
        _ => Ok(BackendKind::default()),
    }
}

fn build_kind(kind: BackendKind, costs: Option<Costs>) -> Result<Box<dyn Backend>> {
    Ok(match kind {
        BackendKind::Select => Box::new(Select::new()),
        BackendKind::Poll => Box::new(Poll::new()),
        BackendKind::Epoll => Box::new(Epoll::new()?),
        BackendKind::Adaptive => return adaptive(Governed::default(), costs),
    })
}

fn adaptive(policy: impl Policy + 'static, costs: Option<Costs>) -> Result<Box<dyn Backend>> {
    let costs = costs.unwrap_or_else(|| *Costs::calibrated());
    Ok(Box::new(Adaptive::new(policy, costs)?))
}

impl Poller {
    /// A poller with the back-end that `SUPERPOLL_BACKEND` names, else the adaptive one.
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

    fn with(backend: Box<dyn Backend>) -> Poller {
        let shared = Arc::new(Shared::new());
        Poller {
            backend,
            table: Table::new(shared.next_index.clone()),
            stats: Stats::default(),
            delivery: Delivery::default(),
            no_events: Events::with_limit(0),
            shared,
            wakeable: false,
            commands: Vec::new(),
            told_ready: Vec::new(),
            refusals: Vec::new(),
            nested: false,
        }
    }

    /// The back-end's name.
    pub fn backend(&self) -> &'static str {
        self.backend.name()
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

    /// The costs the back-end places by, if it places by cost.
    pub fn costs(&self) -> Option<&Costs> {
        self.backend.costs()
    }

    /// The counters, from the creation of the poller on.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        let lengths = self.backend.lengths();
        stats.hot.len = lengths.hot;
        stats.cold.len = lengths.cold;
        stats.calls.waker_write = self.shared.sleep.writes();
        stats
    }

    /// Registers a descriptor. The kernel is told with the next wait.
    ///
    /// The descriptor must stay open until [`deregister`](Poller::deregister); if it is closed
    /// before, an epoll back-end forgets it and a poll array may watch its successor.
    /// [`own`](Poller::own) rules that out.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyRegistered`], and what the back-end can never do:
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
        if fd < 0 || !sys::descriptor::is_open(&mut self.stats.calls, fd) {
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

    /// Ends the registration of an owned descriptor, if it has not ended yet, and gives the
    /// descriptor back, open. Of another poller's it is [`Owned::into_inner`].
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
                backend: self.backend.name(),
                what: "exclusive wake-ups with priority or read-closed interest",
                instead: "the kernel refuses them (EINVAL); ask for readable and writable only",
            });
        }
        self.backend.admit(fd, watch)
    }

    /// Changes the interest of a registration and keeps its mode; arms a one-shot registration
    /// again. The kernel is told with the next wait, unless the change is undone before.
    ///
    /// With [`Mode::Edge`], what is ready already is reported if the kernel had to be told.
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`], [`Error::Unsupported`]; the registration is as before.
    pub fn modify(&mut self, key: Key, interest: Interest) -> Result<()> {
        let slot = self.table.get(key).ok_or(Error::StaleKey { key })?;
        let watch = Watch { interest, ..slot.watch() };
        self.modify_watch(key, watch)
    }

    /// Changes interest and mode of a registration; the hint is not looked at.
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
    /// the kernel is told with the next wait. It may be closed at once.
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`].
    pub fn deregister(&mut self, key: Key) -> Result<()> {
        self.end(key, false)?;
        self.changed();
        Ok(())
    }

    fn end(&mut self, key: Key, closed: bool) -> Result<()> {
        if self.table.get(key).is_none() {
            return Err(Error::StaleKey { key });
        }
        let index = key.index();
        self.table.end(index, closed);
        if closed {
            // No system call is due, and the number may be registered again right away.
            self.sync(index);
            return Ok(());
        }
        let slot = self.table.slot(index);
        if slot.told().is_none() && slot.place().is_none() {
            self.stats.changes_saved += 1;
            self.table.release(index);
        }
        Ok(())
    }

    /// Tells the poller what the caller knows to be ready without the kernel: bytes that a TLS
    /// session has buffered, a stream that was not drained. The next wait delivers it, as far as
    /// it is wanted, together with what the kernel says of others, and does not block.
    ///
    /// # Errors
    ///
    /// [`Error::StaleKey`].
    pub fn tell_ready(&mut self, key: Key, readiness: Readiness) -> Result<()> {
        if self.table.get(key).is_none() {
            return Err(Error::StaleKey { key });
        }
        self.told_ready.push(Event::new(key, readiness));
        self.rest();
        Ok(())
    }

    /// A handle that makes [`wait`](Poller::wait) return, from any thread. The first one costs
    /// an eventfd.
    ///
    /// # Errors
    ///
    /// [`Error::DescriptorLimit`], or what the back-end says of watching it.
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
            backend.attach_waker(&mut cx, fd)?;
        }
        self.wakeable = true;
        Ok(())
    }

    /// The back-end and a context for what delivers nothing.
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

    /// A descriptor that is readable when a wait would deliver something: watch it in another
    /// event loop, and call [`wait`](Poller::wait) with a zero timeout when it is readable. From
    /// then on all descriptors are watched through epoll, and changes are told at once.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for back-ends without epoll.
    pub fn nest(&mut self) -> Result<BorrowedFd<'_>> {
        self.make_wakeable()?;
        self.flush();
        let (backend, mut cx) = self.split();
        backend.nest(&mut cx)?;
        self.nested = true;
        self.rest();
        let (backend, mut cx) = self.split();
        backend.nest(&mut cx)
    }

    /// Between two waits of a nested poller the outer loop sleeps in its stead, so a wake must
    /// reach the eventfd, and so must what needs no kernel to be ready.
    fn rest(&self) {
        if !self.nested {
            return;
        }
        let always = self.table.always_ready().iter().any(|&index| {
            let slot = self.table.slot(index);
            !slot.interest().is_empty() && (slot.is_due() || slot.watch().mode == Mode::Level)
        });
        let known = always
            || !self.told_ready.is_empty()
            || !self.refusals.is_empty()
            || !self.delivery.backlog.is_empty();
        self.shared.sleep.rest(known);
    }

    /// To be called in a child process after `fork(2)`, before anything else: builds what the
    /// child would otherwise share with its parent, so that neither disturbs the other. All
    /// registrations stay as they are; an edge may be reported a second time. Wakers and
    /// registrars of the parent that the child inherited now wake the child.
    ///
    /// The fork must not happen while another thread uses a registrar or drops an owner.
    ///
    /// # Errors
    ///
    /// [`Error::DescriptorLimit`], or what the kernel says of making new objects.
    pub fn after_fork(&mut self) -> Result<()> {
        let shared = self.shared.clone();
        shared.sleep.after_fork(&mut self.stats.calls)?;
        let (backend, mut cx) = self.split();
        backend.after_fork(&mut cx)?;
        if let Some(fd) = shared.sleep.fd() {
            let (backend, mut cx) = self.split();
            backend.attach_waker(&mut cx, fd)?;
        }
        for index in self.table.indices() {
            if self.table.slot(index).fd() >= 0 {
                self.table.slot_mut(index).set_told(None);
                self.table.mark(index);
            }
        }
        self.changed();
        Ok(())
    }

    /// Waits until something is ready, a waker is used, or the timeout is over (`None`: for
    /// ever), and replaces the contents of `events`. Returns how many events there are: zero only
    /// after the timeout, a wake ([`Events::woken`]) or a refusal ([`Events::refusals`]).
    ///
    /// The timeout has nanosecond resolution and never ends early; how late it ends is the
    /// kernel's timer slack (see [`set_timer_slack`](crate::set_timer_slack)). Signals do not
    /// end a wait.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroLimit`], or [`Error::System`] if the system call fails; registrations are
    /// unaffected, and `events` is empty.
    #[inline]
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<usize> {
        events.list.clear();
        if !events.refusals.is_empty() {
            events.refusals.clear();
        }
        events.woken = false;
        if events.limit == 0 {
            return Err(Error::ZeroLimit);
        }
        self.stats.waits += 1;
        let deadline = match timeout {
            None => Deadline::Never,
            Some(Duration::ZERO) => Deadline::Now,
            Some(_) => Deadline::after(timeout),
        };
        // The usual case: there is nothing but the kernel to ask, and it has something to tell.
        let mut waited = None;
        if self.only_the_kernel_is_to_be_asked() {
            let (backend, mut cx) = self.split_for(events);
            let outcome = backend.wait(&mut cx, deadline);
            let usual = !events.list.is_empty()
                && outcome.is_ok()
                && self.delivery.is_idle()
                && !self.shared.has_commands();
            if usual {
                events.woken = self.signals().woken;
                self.stats.events += events.list.len() as u64;
                return Ok(events.list.len());
            }
            waited = Some(outcome);
        }
        self.wait_thoroughly(events, deadline, waited)
    }

    #[inline]
    fn only_the_kernel_is_to_be_asked(&self) -> bool {
        !self.table.has_changes()
            && self.table.always_ready().is_empty()
            && self.told_ready.is_empty()
            && self.refusals.is_empty()
            && self.delivery.is_idle()
            && !self.nested
            && !self.shared.has_commands()
            && !(self.wakeable && self.shared.sleep.is_signalled())
    }

    /// A wait with all its steps; `waited` if the back-end has waited already.
    #[inline(never)]
    fn wait_thoroughly(
        &mut self,
        events: &mut Events,
        mut deadline: Deadline,
        waited: Option<io::Result<()>>,
    ) -> Result<usize> {
        self.delivery.begin_wait();
        let early = if self.nested { self.signals() } else { Signals::default() };
        if early.woken {
            deadline = Deadline::Now;
        }
        let outcome = self.fill(events, deadline, waited);
        self.delivery.end_wait(events, &mut self.table);
        if !self.refusals.is_empty() {
            events.refusals.append(&mut self.refusals);
        }
        self.stats.events += events.list.len() as u64;
        self.rest();
        match outcome {
            Ok(woken) => {
                events.woken = woken || early.woken;
                Ok(events.list.len())
            }
            // Events that were found before the failure are not lost with it.
            Err(_) if !events.list.is_empty() => Ok(events.list.len()),
            Err(source) => Err(Error::system("waiting", None, source)),
        }
    }

    /// Delivers what is ready; returns whether a waker was used.
    fn fill(
        &mut self,
        events: &mut Events,
        mut deadline: Deadline,
        mut waited: Option<io::Result<()>>,
    ) -> io::Result<bool> {
        loop {
            let (mut told, mut outcome) = (0, waited.take());
            if outcome.is_none() {
                self.take_commands();
                self.flush();
                told = self.deliver_told(events);
                if !self.delivery.backlog.is_empty() {
                    self.split_for(events).1.serve_backlog()?;
                    merge(&mut events.list, told);
                }
                if events.list.len() >= events.limit {
                    return Ok(self.signals().woken);
                }
                self.delivery.begin_collection();
                self.deliver_always_ready(events);
                let found = !events.list.is_empty() || !self.delivery.backlog.is_empty();
                let signalled = self.wakeable && self.shared.sleep.is_signalled();
                if found || signalled || !self.refusals.is_empty() {
                    deadline = Deadline::Now;
                }
                let (backend, mut cx) = self.split_for(events);
                outcome = Some(backend.wait(&mut cx, deadline));
            }
            self.delivery.end_collection(events, &mut self.table);
            let signals = self.signals();
            match outcome {
                Some(Err(error)) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(error);
                }
                _ => {}
            }
            merge(&mut events.list, told);
            if !self.delivery.invalid.is_empty() {
                self.refuse_invalid();
            }
            if self.shared.has_commands() {
                // An owner was dropped while we slept: none of its events may come out.
                self.take_commands();
                events.list.retain(|event| self.table.get(event.key()).is_some());
            }
            if signals.woken
                || !events.list.is_empty()
                || !self.refusals.is_empty()
                || (deadline.is_over() && !signals.kicked)
            {
                return Ok(signals.woken);
            }
        }
    }

    /// Ends the registrations of descriptors that were found closed.
    fn refuse_invalid(&mut self) {
        while let Some(key) = self.delivery.invalid.pop() {
            if let Some(slot) = self.table.get(key) {
                let fd = slot.fd();
                let _ = self.end(key, true);
                self.refuse(key, Error::BadDescriptor { fd });
            }
        }
    }

    fn signals(&self) -> Signals {
        if self.wakeable { self.shared.sleep.take() } else { Signals::default() }
    }

    /// Delivers what the caller told; returns how many registrations that concerns.
    #[inline]
    fn deliver_told(&mut self, events: &mut Events) -> usize {
        if self.told_ready.is_empty() { 0 } else { self.deliver_all_told(events) }
    }

    fn deliver_all_told(&mut self, events: &mut Events) -> usize {
        let mut told = std::mem::take(&mut self.told_ready);
        let all = told.len();
        merge(&mut told, all);
        let (_, mut cx) = self.split_for(events);
        told.retain(|told| {
            if cx.events.list.len() >= cx.events.limit {
                return true;
            }
            let key = told.key();
            let once = cx.table.get(key).is_some_and(|slot| slot.watch().mode == Mode::OneShot);
            if cx.report(key, told.readiness()) == Report::Taken && once {
                // Not found by the back-end, so it does not know that it is disarmed.
                cx.table.mark(key.index());
            }
            false
        });
        self.told_ready = told;
        events.list.len()
    }

    /// Delivers files that are always ready.
    #[inline]
    fn deliver_always_ready(&mut self, events: &mut Events) {
        if !self.table.always_ready().is_empty() {
            self.deliver_all_always_ready(events);
        }
    }

    fn deliver_all_always_ready(&mut self, events: &mut Events) {
        let (_, mut cx) = self.split_for(events);
        for place in 0..cx.table.always_ready().len() {
            let index = cx.table.always_ready()[place];
            let slot = cx.table.slot(index);
            let watch = slot.watch();
            let once = matches!(watch.mode, Mode::Edge | Mode::Auto);
            if watch.interest.is_empty() || (once && !slot.is_due()) {
                continue;
            }
            let key = cx.table.key(index);
            let ready = Readiness::of(watch.interest & (Interest::READABLE | Interest::WRITABLE));
            if matches!(cx.report(key, ready), Report::Taken | Report::Later) {
                cx.table.slot_mut(index).set_due(false);
            }
        }
    }

    /// Carries out what other threads and dropped owners asked for.
    #[inline]
    fn take_commands(&mut self) {
        if self.shared.has_commands() {
            self.carry_out_commands();
        }
    }

    #[cold]
    fn carry_out_commands(&mut self) {
        let mut commands = std::mem::take(&mut self.commands);
        let shared = self.shared.clone();
        shared.take(&mut commands, self.table.take_foreign());
        for command in commands.drain(..) {
            match command {
                Command::Register { key, fd, watch } => self.insert_foreign(key, fd, watch),
                Command::Modify { key, interest } => {
                    // A stale key is the race that every command loses against a removal.
                    let _ = self.modify(key, interest);
                }
                Command::ModifyWatch { key, watch } => match self.modify_watch(key, watch) {
                    Ok(()) | Err(Error::StaleKey { .. }) => {}
                    Err(error) => {
                        let _ = self.end(key, false);
                        self.refuse(key, error);
                    }
                },
                Command::Deregister { key } => {
                    let _ = self.end(key, false);
                }
                Command::Closed { key } => {
                    let _ = self.end(key, true);
                }
            }
        }
        self.commands = commands;
    }

    fn insert_foreign(&mut self, key: Key, fd: RawFd, watch: Watch) {
        let refusal = match self.table.find(fd) {
            Some(key) => Some(Error::AlreadyRegistered { fd, key }),
            None => self.admit(fd, watch).err(),
        };
        match refusal {
            None => {
                self.table.insert(fd, watch, Some(key));
            }
            Some(error) => {
                self.table.give_back(key);
                self.refuse(key, error);
            }
        }
    }

    fn refuse(&mut self, key: Key, error: Error) {
        self.stats.refused += 1;
        self.refusals.push((key, error));
    }

    /// In a nested poller the outer loop waits, so changes cannot wait for our next wait.
    fn changed(&mut self) {
        if self.nested {
            self.flush();
            self.rest();
        }
    }

    /// Tells the kernel all changes now instead of with the next wait. Not needed for correctness;
    /// it moves the cost.
    #[inline]
    pub fn flush(&mut self) {
        if self.table.has_changes() {
            self.tell_changes();
        }
    }

    fn tell_changes(&mut self) {
        let changed = self.table.take_changed();
        // Ended registrations first: a removal is never overtaken by an addition of the same
        // number.
        for live in [false, true] {
            for &index in &changed {
                let slot = self.table.slot(index);
                if slot.is_live() == live && slot.fd() >= 0 {
                    self.sync(index);
                }
            }
        }
        self.table.recycle_changed(changed);
    }

    /// Has the back-end agree with a slot; refuses the registration if it cannot.
    fn sync(&mut self, index: u32) {
        if self.table.slot(index).is_always_ready() {
            self.table.slot_mut(index).set_queued(false);
            return;
        }
        let (backend, mut cx) = self.split();
        let outcome = backend.sync(&mut cx, index);
        cx.table.slot_mut(index).set_pressing(false);
        match outcome {
            // The kernel has looked and will report what it saw: what was found before is void.
            Ok(Synced::Told) => self.table.slot_mut(index).set_queued(false),
            Ok(Synced::Saved) => self.stats.changes_saved += 1,
            Ok(Synced::AlwaysReady) => self.table.add_always_ready(index),
            Err(error) if self.table.slot(index).is_live() => {
                let key = self.table.key(index);
                self.table.end(index, false);
                self.refuse(key, error);
                // What the kernel still knows of it goes as well; it has nothing left to refuse.
                let (backend, mut cx) = self.split();
                let _ = backend.sync(&mut cx, index);
                self.table.slot_mut(index).set_told(None);
            }
            // A removal that fails finds nothing to remove.
            Err(_) => self.table.slot_mut(index).set_told(None),
        }
        let slot = self.table.slot(index);
        if !slot.is_live() && slot.fd() >= 0 && slot.told().is_none() && slot.place().is_none() {
            self.table.release(index);
        }
    }
}

/// Leaves one event per descriptor: each of the first `told` takes in what later ones say of the
/// same key.
fn merge(list: &mut Vec<Event>, told: usize) {
    if told == 0 || list.len() < 2 {
        return;
    }
    let mut first: HashMap<Key, usize> = HashMap::with_capacity(told);
    let mut kept = 0;
    for place in 0..list.len() {
        let event = list[place];
        if let Some(&earlier) = first.get(&event.key()) {
            let both = list[earlier].readiness() | event.readiness();
            list[earlier] = Event::new(event.key(), both);
            continue;
        }
        if place < told {
            first.insert(event.key(), kept);
        }
        list[kept] = event;
        kept += 1;
    }
    list.truncate(kept);
}
