//! How a descriptor that a task owns is tied to an engine: not at all, until an operation would
//! block.
//!
//! The first wait makes a link, on the engine whose task waits, and the link moves when a task of
//! another engine waits: the types that hold a link can be sent to another thread, but not shared
//! between threads. Until then the link only has to remember which directions are drained, so that
//! the next operation need not be tried.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use superpoll::{Interest, Key, Mode};

use crate::engine::{self, Engine};
use crate::fetch::Fetched;
use crate::peers::End;
use crate::remote::{Message, Remote};
use crate::sources::{ALL_READY, Direction, Source, allowed};
use crate::stats::count;

mod ahead;
mod short;

pub(crate) use short::{After, ShortReads, asked};

struct Registration {
    remote: Arc<Remote>,
    key: Key,
}

impl Registration {
    /// Ends the registration, on whatever thread.
    fn end(self, closing: bool) {
        let here = engine::with(|engine| {
            let here = engine.remote.id == self.remote.id;
            if here {
                engine.deregister(self.key, closing);
            }
            here
        });
        if here != Some(true) {
            let registrar = &self.remote.registrar;
            // An engine that cannot be reached has ended, and its poller with it.
            let _ = match closing {
                true => registrar.deregister_for_close(self.key),
                false => registrar.deregister(self.key),
            };
            let _ = self.remote.send(Message::Forget(self.key));
        }
    }
}

/// The kernel wakes only one of several engines that wait for the same file.
const EXCLUSIVE: u8 = 1;

/// [`has_all`](Link::has_all) will be called.
const TELLS_ALL: u8 = 2;

/// An engine that was left has read ahead meanwhile: its bytes come before those that are read now.
const OVERTAKEN: u8 = 4;

/// A stream socket: a read of it may end at an urgent byte.
const URGENT: u8 = 8;

/// The reading end of a pipe, which may give packets.
const PACKETS: u8 = 16;

/// The tie between a descriptor and an engine.
#[derive(Default)]
pub(crate) struct Link {
    registration: RefCell<Option<Registration>>,
    drained: Cell<u8>,
    end: Option<End>,
    /// [`EXCLUSIVE`] and the flags that follow it; in one byte, as each idle connection has one.
    flags: Cell<u8>,
    /// The name of the next waiter.
    waiter: Cell<u32>,
    /// The number of bytes that the next waiter wants the engine to read ahead; 0 for none.
    wanted: Cell<u16>,
    /// The place where the engine puts them.
    fetched: OnceCell<Arc<Fetched>>,
}

/// The next step of an operation.
enum Step {
    /// Try, and clear with this tick if it would block.
    Try(u32),
    /// Wait: nothing can have changed.
    Wait,
    /// Let other tasks run first.
    GiveWay,
}

/// The outcome of a wait for a descriptor that is registered.
enum Known {
    /// The poller watches for it.
    Watched,
    /// The poller has to learn this interest.
    Asks(Interest),
    /// It is ready: that was reported, or found at the other end, since the operation began.
    Ready,
    /// The kernel does not watch it.
    Refused(io::Error),
}

fn no_runtime() -> io::Error {
    io::Error::other(
        "waiting for a descriptor: no runtime runs on this thread; await it inside Runtime::block_on or in a task",
    )
}

impl Link {
    /// Makes a link for one of two ends that know of each other.
    pub fn with_end(end: End) -> Link {
        let mut link = Link::default();
        link.end = Some(end);
        link
    }

    fn is_exclusive(&self) -> bool {
        self.flags.get() & EXCLUSIVE != 0
    }

    /// Makes a link for a file that several engines wait for, of which the kernel wakes one
    /// ([`Mode::Exclusive`]).
    pub fn exclusive() -> Link {
        let link = Link::default();
        link.set(EXCLUSIVE);
        link
    }

    /// Makes it a link for a stream socket.
    pub fn stream(self) -> Link {
        self.set(URGENT);
        self
    }

    /// Makes it a link for the reading end of a pipe.
    pub fn packets(self) -> Link {
        self.set(PACKETS);
        self
    }

    /// Watches from now on for the moment when there is [all that there will ever
    /// be](Link::has_all) to read.
    pub fn tell_all(&mut self) {
        self.set(TELLS_ALL | URGENT);
    }

    fn set(&self, flag: u8) {
        self.flags.set(self.flags.get() | flag);
    }

    /// Returns the interest that is watched together with a direction.
    fn more(&self, direction: Direction) -> Interest {
        match direction {
            Direction::Read if self.flags.get() & TELLS_ALL != 0 => Interest::PRIORITY,
            _ => Interest::NONE,
        }
    }

    /// Returns whether the poller has reported that all bytes that will ever come are there to
    /// read. An engine other than the one that watches the descriptor does not know this.
    pub fn has_all(&self) -> bool {
        let registration = self.registration.borrow();
        let Some(registration) = registration.as_ref() else { return false };
        let has_all = engine::with(|engine| {
            let is_here = engine.remote.id == registration.remote.id;
            is_here && engine.source(registration.key, |source| source.has_all()) == Some(true)
        });
        has_all == Some(true)
    }

    /// Carries out an operation as soon as it does not block. Calls `operation`, the descriptor's
    /// non-blocking operation, repeatedly as long as it returns `WouldBlock`.
    ///
    /// Cancel safe: a caller that stops polling has done nothing.
    #[inline]
    pub fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        fd: BorrowedFd<'_>,
        direction: Direction,
        mut operation: impl FnMut() -> io::Result<(R, After)>,
    ) -> Poll<io::Result<R>> {
        let begun = engine::with(|engine| match self.begin(engine, direction) {
            // While the engine is at hand.
            Step::Wait => ControlFlow::Break(self.wait_on(engine, cx, fd, direction, None)),
            Step::Try(tick) => ControlFlow::Continue(Some(tick)),
            Step::GiveWay => ControlFlow::Continue(None),
        });
        let tick = match begun {
            Some(ControlFlow::Continue(Some(tick))) => tick,
            Some(ControlFlow::Continue(None)) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(ControlFlow::Break(Ok(()))) => return Poll::Pending,
            Some(ControlFlow::Break(Err(error))) => return Poll::Ready(Err(error)),
            None => {
                if self.is_overtaken_elsewhere(direction) {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                0
            }
        };
        loop {
            match operation() {
                Ok((result, after)) => {
                    self.finish(fd, direction, tick, after);
                    return Poll::Ready(Ok(result));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.wait(cx, fd, direction, Some(tick));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Carries out an operation now, or returns `WouldBlock`. The operation is tried whatever is
    /// remembered: a direction without waiters need not be watched.
    pub fn attempt<R>(
        &self,
        fd: BorrowedFd<'_>,
        direction: Direction,
        mut operation: impl FnMut() -> io::Result<(R, After)>,
    ) -> io::Result<R> {
        let tick = engine::with(|engine| {
            let key = self.key_on(engine)?;
            engine.source(key, |source| source.try_now(direction)).flatten()
        });
        let overtaken = match tick {
            Some(_) => self.is_overtaken(direction),
            None => self.is_overtaken_elsewhere(direction),
        };
        if overtaken {
            // Not for long: the next call gives it out.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // A direction that is not ready has nothing to clear, with whatever tick.
        let tick = tick.flatten().unwrap_or(0);
        loop {
            match operation() {
                Ok((result, after)) => {
                    self.finish(fd, direction, tick, after);
                    return Ok(result);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.clear(direction, tick);
                    return Err(error);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Wakes the waiters for a direction, to try.
    pub fn wake(&self, direction: Direction) {
        let woken = engine::with(|engine| {
            let registration = self.registration.borrow();
            let here = registration.as_ref().filter(|here| here.remote.id == engine.remote.id);
            let key = here.map(|here| here.key)?;
            engine.source(key, |source| source.hand_over(direction)).flatten()
        });
        // With nothing borrowed.
        woken.flatten().unwrap_or_default().wake();
    }

    /// Returns the key under which operations of the descriptor are started; the descriptor need
    /// not be watched for that. `None` if no key is available, and the next wait returns the
    /// reason.
    pub fn key_for_operations(&self, engine: &Engine, fd: BorrowedFd<'_>) -> Option<Key> {
        if self.is_exclusive() {
            return None;
        }
        if let Some(key) = self.key_on(engine) {
            let number = engine.source(key, |source| source.fd());
            if number.is_none_or(|number| number == fd.as_raw_fd()) {
                return Some(key);
            }
            // The descriptor was exchanged for another, and its number may mean any file.
            self.leave();
        }
        let drained = self.drained.get();
        let mode = self.mode(engine);
        let ready = Link::ready_at_first(engine, drained);
        let key = engine.register(fd, Interest::NONE, mode, ready).ok()?;
        self.drained.set(0);
        self.registered(engine, key);
        Some(key)
    }

    fn mode(&self, engine: &Engine) -> Mode {
        match self.is_exclusive() {
            true => Mode::Exclusive,
            // By the time of the next wait, most arrivals have been handed over and read, which a
            // ring notices only in this mode.
            false if self.end.is_some() && engine.fetches() => Mode::Edge,
            false if self.flags.get() & PACKETS != 0 => match engine.short_reads {
                ShortReads::Watched => Mode::Level,
                _ => Mode::Auto,
            },
            false => Mode::Auto,
        }
    }

    fn registered(&self, engine: &Engine, key: Key) {
        let remote = engine.remote.clone();
        if let Some(end) = &self.end {
            end.registered(remote.id, key);
        }
        *self.registration.borrow_mut() = Some(Registration { remote, key });
    }

    /// Waits until a direction is thought to be ready; returns the tick to clear it with.
    pub fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        fd: BorrowedFd<'_>,
        direction: Direction,
    ) -> Poll<io::Result<u32>> {
        let granted = engine::with(|engine| {
            if !engine.spend() {
                return Step::GiveWay;
            }
            if direction == Direction::Read && self.fetched().is_some() {
                return Step::Try(0);
            }
            match self.key_on(engine) {
                Some(key) => match engine.source(key, |source| source.grant(direction)) {
                    Some(Some((tick, spinning))) => {
                        if let Some(fd) = spinning {
                            engine.counters.note_spinning(fd);
                        }
                        Step::Try(tick)
                    }
                    Some(None) => Step::Wait,
                    None => Step::Try(0),
                },
                None => self.unregistered(engine, direction),
            }
        });
        match granted {
            Some(Step::Try(tick)) => Poll::Ready(Ok(tick)),
            Some(Step::Wait) => self.wait(cx, fd, direction, None),
            Some(Step::GiveWay) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(Err(no_runtime())),
        }
    }

    /// Notes that an operation with this tick would have blocked.
    pub fn clear(&self, direction: Direction, tick: u32) {
        engine::with(|engine| match self.key_on(engine) {
            Some(key) => {
                engine.source(key, |source| source.clear(direction, tick));
            }
            None => self.drained.set(self.drained.get() | direction.bit()),
        });
    }

    /// Notes that a task made use of the readiness.
    pub fn acted(&self) {
        engine::with(|engine| {
            if let Some(key) = self.key_on(engine) {
                engine.source(key, |source| source.acted());
            }
        });
    }

    /// Sets the name under which polls of this link wait, until the next call.
    pub fn set_waiter(&self, name: u32) {
        self.waiter.set(name);
    }

    /// Ends the wait with this name. On another thread than the engine's, the next report does so.
    pub fn give_up(&self, direction: Direction, name: u32) {
        engine::with(|engine| {
            let registration = self.registration.borrow();
            let here = registration.as_ref().filter(|here| here.remote.id == engine.remote.id);
            let key = here.map(|here| here.key)?;
            drop(registration);
            engine.source(key, |source| source.give_up(direction, name)).flatten()
        });
    }

    /// Returns the key under which it is registered with an engine; a registration elsewhere ends.
    #[inline]
    fn key_on(&self, engine: &Engine) -> Option<Key> {
        let registration = self.registration.borrow();
        let registration_here = registration.as_ref()?;
        if registration_here.remote.id == engine.remote.id {
            return Some(registration_here.key);
        }
        drop(registration);
        self.leave();
        None
    }

    /// Ends the registration; the next wait makes another.
    #[cold]
    pub fn leave(&self) {
        let Some(registration) = self.registration.take() else { return };
        self.forbid_reads();
        let others = engine::with(|engine| {
            let here = engine.remote.id == registration.remote.id;
            here.then(|| engine.source(registration.key, Source::dismiss)).flatten()
        });
        registration.end(false);
        // With nothing borrowed.
        others.flatten().unwrap_or_default().wake();
    }

    fn unregistered(&self, engine: &Engine, direction: Direction) -> Step {
        if self.is_overtaken(direction) {
            return Step::GiveWay;
        }
        let is_worth_a_try = !engine.waits_first && self.drained.get() & direction.bit() == 0;
        if is_worth_a_try { Step::Try(0) } else { Step::Wait }
    }

    /// Returns the directions that count as ready when the engine begins to know of the descriptor.
    fn ready_at_first(engine: &Engine, drained: u8) -> u8 {
        if engine.waits_first { 0 } else { ALL_READY & !drained }
    }

    #[inline]
    fn begin(&self, engine: &Engine, direction: Direction) -> Step {
        if !engine.spend() {
            count(&engine.counters.budget_spent);
            return Step::GiveWay;
        }
        match self.key_on(engine) {
            Some(key) => match engine.source(key, |source| source.try_now(direction)) {
                Some(Some(tick)) => Step::Try(tick),
                Some(None) => Step::Wait,
                None => Step::Try(0),
            },
            None => self.unregistered(engine, direction),
        }
    }

    /// Makes the task wait for a direction; `blocked` is the tick of an operation that would block.
    fn wait<R>(
        &self,
        cx: &mut Context<'_>,
        fd: BorrowedFd<'_>,
        direction: Direction,
        blocked: Option<u32>,
    ) -> Poll<io::Result<R>> {
        let outcome = engine::with(|engine| self.wait_on(engine, cx, fd, direction, blocked));
        match outcome {
            Some(Ok(())) => Poll::Pending,
            Some(Err(error)) => Poll::Ready(Err(error)),
            None => Poll::Ready(Err(no_runtime())),
        }
    }

    fn wait_on(
        &self,
        engine: &Engine,
        cx: &mut Context<'_>,
        fd: BorrowedFd<'_>,
        direction: Direction,
        blocked: Option<u32>,
    ) -> io::Result<()> {
        // First, with nothing borrowed or checked: cloning is foreign code.
        let mut waker = Some(cx.waker().clone());
        let urgent = self.urgent(engine, direction);
        let Some(key) = self.key_on(engine) else {
            return self.register(engine, fd, direction, urgent, waker);
        };
        let known = engine.source(key, |source| {
            if let Some(tick) = blocked {
                source.clear(direction, tick);
            }
            if let Some(refusal) = source.take_refusal() {
                return Known::Refused(refusal);
            }
            if source.is_ready(direction) {
                return Known::Ready;
            }
            let interest = source.wait(direction, urgent, self.waiter.get(), &mut waker);
            self.want(engine, key, direction, source);
            // Where the poller has to be called anyway.
            interest.map_or(Known::Watched, |_| Known::Asks(source.ask(self.more(direction))))
        });
        match known {
            Some(Known::Watched) => Ok(()),
            Some(Known::Asks(interest)) => Ok(engine.modify(key, interest)?),
            Some(Known::Ready) => {
                cx.waker().wake_by_ref();
                Ok(())
            }
            Some(Known::Refused(refusal)) => {
                self.registration.take();
                engine.deregister(key, false);
                Err(refusal)
            }
            None => self.register(engine, fd, direction, urgent, waker),
        }
    }

    /// Registers the descriptor, and makes a task wait for it.
    fn register(
        &self,
        engine: &Engine,
        fd: BorrowedFd<'_>,
        direction: Direction,
        urgent: Interest,
        mut waker: Option<Waker>,
    ) -> io::Result<()> {
        let mode = self.mode(engine);
        let drained = self.drained.take() | direction.bit();
        let interest = (direction.interest() | self.more(direction) | urgent) & allowed(mode);
        let ready = Link::ready_at_first(engine, drained);
        let key = engine.register(fd, interest, mode, ready)?;
        self.registered(engine, key);
        engine.source(key, |source| {
            source.wait(direction, urgent, self.waiter.get(), &mut waker);
            self.want(engine, key, direction, source);
        });
        Ok(())
    }

    /// Ends the tie; the descriptor stays open.
    pub fn untie(mut self) {
        self.forbid_reads();
        if let Some(registration) = self.registration.get_mut().take() {
            registration.end(false);
        }
    }
}

impl Drop for Link {
    /// The descriptor is closed right after: the type that holds a link drops it first.
    fn drop(&mut self) {
        // Before its number can mean another file.
        self.forbid_reads();
        if let Some(registration) = self.registration.get_mut().take() {
            registration.end(true);
        }
    }
}
