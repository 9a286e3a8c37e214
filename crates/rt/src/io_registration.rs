//! How a descriptor that a task owns is registered with an engine: not at all, until an operation
//! would block.
//!
//! The first wait registers the descriptor, with the engine whose task waits. The registration
//! moves when a task of another engine waits: the types that hold an [`IoRegistration`] can be sent
//! to another thread, but not shared between threads. Until the first wait an `IoRegistration` only
//! has to remember which directions are drained, so that the next operation need not be tried.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use superpoll::{Interest, Key, Mode};

use crate::budget;
use crate::counters::count;
use crate::engine::{self, Engine};
use crate::peer_wake::PairedEnd;
use crate::remote::{Message, Remote};
use crate::short_reads::{IoState, ShortReads};
use crate::sources::{ALL_READY, Direction, Source, allowed};

mod finish;
mod outside;

/// The engine that watches a descriptor, and the key by which it knows the descriptor.
struct EngineKey {
    remote: Arc<Remote>,
    key: Key,
}

impl EngineKey {
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

/// [`has_eof`](IoRegistration::has_eof) will be called.
const DETECTS_EOF: u8 = 2;

/// A stream socket: a read of it may end at an urgent byte.
const URGENT: u8 = 4;

/// The reading end of a pipe, which may give packets.
const PACKETS: u8 = 8;

/// A thread without an engine has waited for it.
const OUTSIDE: u8 = 16;

/// The registration of one descriptor with an engine, or with none yet.
#[derive(Default)]
pub(crate) struct IoRegistration {
    engine_key: RefCell<Option<EngineKey>>,
    drained: Cell<u8>,
    end: Option<PairedEnd>,
    /// [`EXCLUSIVE`] and the flags that follow it; in one byte, as each idle connection has one.
    flags: Cell<u8>,
    /// The name of the next waiter.
    waiter: Cell<u32>,
}

/// The next step of an operation.
enum Step {
    /// Try, and clear with this tick if it would block.
    Try(u32),
    /// Wait: nothing can have changed.
    Wait,
    /// Let other tasks run first.
    Yield,
}

/// The outcome of a wait for a descriptor that is registered.
enum WaitState {
    /// The poller watches for it.
    Watched,
    /// The poller has to learn this interest.
    NeedsInterest(Interest),
    /// It is ready: that was reported, or found at the other end, since the operation began.
    Ready,
    /// The kernel does not watch it.
    Refused(io::Error),
}

impl IoRegistration {
    /// Returns the registration of one of two ends that wake each other.
    pub(crate) fn paired(end: PairedEnd) -> IoRegistration {
        let mut registration = IoRegistration::default();
        registration.end = Some(end);
        registration
    }

    fn is_exclusive(&self) -> bool {
        self.flags.get() & EXCLUSIVE != 0
    }

    /// Returns the registration of a file that several engines wait for; the kernel wakes one of
    /// them ([`Mode::Exclusive`]).
    pub(crate) fn exclusive() -> IoRegistration {
        let registration = IoRegistration::default();
        registration.set_flag(EXCLUSIVE);
        registration
    }

    /// Makes it the registration of a stream socket.
    pub(crate) fn stream(self) -> IoRegistration {
        self.set_flag(URGENT);
        self
    }

    /// Makes it the registration of the reading end of a pipe.
    pub(crate) fn packets(self) -> IoRegistration {
        self.set_flag(PACKETS);
        self
    }

    /// Watches from now on for the end of the stream, so that [`has_eof`](IoRegistration::has_eof)
    /// can be answered.
    pub(crate) fn detect_eof(&mut self) {
        self.set_flag(DETECTS_EOF | URGENT);
    }

    fn set_flag(&self, flag: u8) {
        self.flags.set(self.flags.get() | flag);
    }

    /// Returns the interest that is watched together with a direction.
    fn extra_interest(&self, direction: Direction) -> Interest {
        match direction {
            Direction::Read if self.flags.get() & DETECTS_EOF != 0 => Interest::PRIORITY,
            _ => Interest::NONE,
        }
    }

    /// Returns whether the poller has reported that all bytes that will ever come are there to
    /// read. An engine other than the one that watches the descriptor does not know this.
    pub(crate) fn has_eof(&self) -> bool {
        let engine_key = self.engine_key.borrow();
        let Some(engine_key) = engine_key.as_ref() else { return false };
        let has_eof = engine::with(|engine| {
            let is_here = engine.remote.id == engine_key.remote.id;
            is_here && engine.source(engine_key.key, |source| source.has_eof()) == Some(true)
        });
        has_eof == Some(true)
    }

    /// Carries out an operation as soon as it does not block. Calls `operation`, the descriptor's
    /// non-blocking operation, repeatedly as long as it returns `WouldBlock`.
    ///
    /// Cancel safe: a caller that stops polling has done nothing.
    #[inline]
    pub(crate) fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        fd: BorrowedFd<'_>,
        direction: Direction,
        mut operation: impl FnMut() -> io::Result<(R, IoState)>,
    ) -> Poll<io::Result<R>> {
        let begun = engine::with(|engine| match self.next_step(engine, direction) {
            // While the engine is at hand.
            Step::Wait => ControlFlow::Break(self.wait_on(engine, cx, fd, direction, None)),
            Step::Try(tick) => ControlFlow::Continue(Some(tick)),
            Step::Yield => ControlFlow::Continue(None),
        });
        let tick = match begun {
            Some(ControlFlow::Continue(Some(tick))) => tick,
            Some(ControlFlow::Continue(None)) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(ControlFlow::Break(Ok(()))) => return Poll::Pending,
            Some(ControlFlow::Break(Err(error))) => return Poll::Ready(Err(error)),
            None => 0,
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
    pub(crate) fn try_io<R>(
        &self,
        fd: BorrowedFd<'_>,
        direction: Direction,
        mut operation: impl FnMut() -> io::Result<(R, IoState)>,
    ) -> io::Result<R> {
        let tick = engine::with(|engine| {
            let key = self.key_on(engine)?;
            engine.source(key, |source| source.try_now(direction)).flatten()
        });
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

    /// Carries out an operation on no bytes, whatever is known of the descriptor. The kernel does
    /// not wait for such an operation, and would not report that it may be done.
    #[cold]
    pub(crate) fn poll_empty(
        cx: &mut Context<'_>,
        operation: impl FnOnce() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        ready!(budget::poll_budget(cx));
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Ready(Ok(0)),
            outcome => Poll::Ready(outcome),
        }
    }

    fn mode(&self, engine: &Engine) -> Mode {
        match self.is_exclusive() {
            true => Mode::Exclusive,
            // By the time of the next wait, most arrivals have been handed over and read, which a
            // ring notices only in this mode.
            false if self.end.is_some() && engine.short_reads == ShortReads::Checked => Mode::Edge,
            false if self.flags.get() & PACKETS != 0 => match engine.short_reads {
                ShortReads::Watched => Mode::Level,
                _ => Mode::Auto,
            },
            false => Mode::Auto,
        }
    }

    fn set_engine_key(&self, engine: &Engine, key: Key) {
        let remote = engine.remote.clone();
        if let Some(end) = &self.end {
            end.set_address(remote.id, key);
        }
        *self.engine_key.borrow_mut() = Some(EngineKey { remote, key });
    }

    /// Waits until a direction is thought to be ready; returns the tick to clear it with.
    pub(crate) fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        fd: BorrowedFd<'_>,
        direction: Direction,
    ) -> Poll<io::Result<u32>> {
        let step = engine::with(|engine| {
            if !engine.spend_budget() {
                return Step::Yield;
            }
            match self.key_on(engine) {
                Some(key) => match engine.source(key, |source| source.try_now_counted(direction)) {
                    Some(Some((tick, spinning))) => {
                        note_spinning(engine, spinning);
                        Step::Try(tick)
                    }
                    Some(None) => Step::Wait,
                    None => Step::Try(0),
                },
                None => self.step_unregistered(engine, direction),
            }
        });
        match step {
            Some(Step::Try(tick)) => Poll::Ready(Ok(tick)),
            Some(Step::Wait) => self.wait(cx, fd, direction, None),
            Some(Step::Yield) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => self.poll_ready_outside(cx, fd, direction),
        }
    }

    /// Notes that an operation with this tick would have blocked.
    pub(crate) fn clear(&self, direction: Direction, tick: u32) {
        engine::with(|engine| match self.key_on(engine) {
            Some(key) => {
                let spinning = engine.source(key, |source| source.clear(direction, tick));
                note_spinning(engine, spinning.flatten());
            }
            None => self.drained.set(self.drained.get() | direction.bit()),
        })
        .unwrap_or_else(|| self.clear_outside(direction));
    }

    /// Notes that a task made use of the readiness.
    pub(crate) fn mark_used(&self) {
        engine::with(|engine| {
            if let Some(key) = self.key_on(engine) {
                engine.source(key, |source| source.mark_used());
            }
        });
    }

    /// Sets the name under which polls of this registration wait, until the next call.
    pub(crate) fn set_waiter(&self, name: u32) {
        self.waiter.set(name);
    }

    /// Ends the wait with this name. On another thread than the engine's, the next report does so.
    pub(crate) fn cancel_wait(&self, direction: Direction, name: u32) {
        engine::with(|engine| {
            let engine_key = self.engine_key.borrow();
            let here = engine_key.as_ref().filter(|here| here.remote.id == engine.remote.id);
            let key = here.map(|here| here.key)?;
            drop(engine_key);
            engine.source(key, |source| source.cancel_wait(direction, name)).flatten()
        });
        self.with_key_outside(|thread, key| thread.cancel_wait(key, direction, name));
    }

    /// Returns the key under which it is registered with an engine; a registration elsewhere ends.
    #[inline]
    fn key_on(&self, engine: &Engine) -> Option<Key> {
        let engine_key = self.engine_key.borrow();
        let here = engine_key.as_ref()?;
        if here.remote.id == engine.remote.id {
            return Some(here.key);
        }
        drop(engine_key);
        self.deregister();
        None
    }

    /// Ends the registration; the next wait makes another.
    #[cold]
    pub(crate) fn deregister(&self) {
        let Some(engine_key) = self.engine_key.take() else { return };
        let waiters = engine::with(|engine| {
            let here = engine.remote.id == engine_key.remote.id;
            here.then(|| engine.source(engine_key.key, Source::take_all_waiters)).flatten()
        });
        engine_key.end(false);
        // With nothing borrowed.
        waiters.flatten().unwrap_or_default().wake();
    }

    fn step_unregistered(&self, engine: &Engine, direction: Direction) -> Step {
        let is_worth_a_try = !engine.waits_first && self.drained.get() & direction.bit() == 0;
        if is_worth_a_try { Step::Try(0) } else { Step::Wait }
    }

    /// Returns the directions that count as ready when the engine begins to know of the descriptor.
    fn ready_at_first(engine: &Engine, drained: u8) -> u8 {
        if engine.waits_first { 0 } else { ALL_READY & !drained }
    }

    #[inline]
    fn next_step(&self, engine: &Engine, direction: Direction) -> Step {
        if !engine.spend_budget() {
            count(&engine.counters.budget_spent);
            return Step::Yield;
        }
        match self.key_on(engine) {
            Some(key) => match engine.source(key, |source| source.try_now(direction)) {
                Some(Some(tick)) => Step::Try(tick),
                Some(None) => Step::Wait,
                None => Step::Try(0),
            },
            None => self.step_unregistered(engine, direction),
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
        match outcome.unwrap_or_else(|| self.wait_outside(cx, fd, direction)) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
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
        let urgent = self.urgent_interest(engine, direction);
        let Some(key) = self.key_on(engine) else {
            return self.register(engine, fd, direction, urgent, waker);
        };
        let mut spinning = None;
        let known = engine.source(key, |source| {
            if let Some(tick) = blocked {
                spinning = source.clear(direction, tick);
            }
            if let Some(refusal) = source.take_refusal() {
                return WaitState::Refused(refusal);
            }
            if source.is_ready(direction) {
                return WaitState::Ready;
            }
            let interest = source.add_waiter(direction, urgent, self.waiter.get(), &mut waker);
            // Where the poller has to be called anyway.
            interest.map_or(WaitState::Watched, |_| {
                WaitState::NeedsInterest(source.add_interest(self.extra_interest(direction)))
            })
        });
        note_spinning(engine, spinning);
        match known {
            Some(WaitState::Watched) => Ok(()),
            Some(WaitState::NeedsInterest(interest)) => Ok(engine.modify(key, interest)?),
            Some(WaitState::Ready) => {
                cx.waker().wake_by_ref();
                Ok(())
            }
            Some(WaitState::Refused(refusal)) => {
                self.engine_key.take();
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
        let interest =
            (direction.interest() | self.extra_interest(direction) | urgent) & allowed(mode);
        let ready = IoRegistration::ready_at_first(engine, drained);
        let key = engine.register(fd, interest, mode, ready)?;
        self.set_engine_key(engine, key);
        engine.source(key, |source| {
            source.add_waiter(direction, urgent, self.waiter.get(), &mut waker);
        });
        Ok(())
    }

    /// Ends the registration; the descriptor stays open.
    pub(crate) fn release(mut self) {
        if let Some(engine_key) = self.engine_key.get_mut().take() {
            engine_key.end(false);
        }
    }
}

/// Names a descriptor that is reported again and again, if it is one.
#[inline]
fn note_spinning(engine: &Engine, fd: Option<RawFd>) {
    if let Some(fd) = fd {
        engine.counters.note_spinning(fd);
    }
}

impl Drop for IoRegistration {
    /// The descriptor is closed right after: the type that holds a registration drops it first.
    fn drop(&mut self) {
        if let Some(engine_key) = self.engine_key.get_mut().take() {
            engine_key.end(true);
        }
    }
}
