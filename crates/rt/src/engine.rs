//! The engine: one thread's poller, tasks and timers, and the loop that turns them.
//!
//! A turn runs the tasks that are due, up to a limit, and asks the poller once: without blocking if
//! there is more to run, otherwise until the next timer. Right before that call the poller passes
//! all changes of the turn (beginning to wait, stopping, closing) to the kernel together. A change
//! that was taken back in the same turn costs nothing.
//!
//! Everything here belongs to one thread and is borrowed for a few lines at a time, never while a
//! task runs or a waker is called, cloned or dropped ([`callbacks`] says why). Other threads reach
//! an engine only through its [`Remote`].

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::{Duration, Instant};

use async_task::Runnable;
use slab::Slab;
use superpoll::{Events, Interest, Key, Mode, Poller, Watch};

use crate::callbacks;
use crate::clock::Clock;
use crate::counters::{Counters, count};
use crate::current_engine;
use crate::deadline;
use crate::late_timers::{LATE_AFTER, LateTimers, LoopState};
use crate::remote::{Message, Remote};
use crate::short_reads::ShortReads;
use crate::sources::{Source, Sources, UNNAMED};
use crate::spin::Spin;
use crate::stats::Stats;
use crate::sys::run_queue::RunQueue;
use crate::timer_wheel::{DEFAULT_SLACK, Wheel};
use crate::trace;

mod current;
mod shrink;

pub(crate) use current::with;
use shrink::ShrinkChecks;

/// The settings of an engine at its start.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The longest spin before a sleep; zero for none.
    pub spin: Duration,
    /// The most that a timer fires late so that one wake-up serves several.
    pub timer_slack: Duration,
    /// The least time between two waits with events; zero for none.
    pub gather: Duration,
    /// Whether a descriptor is watched before it is tried.
    pub waits_first: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        let (spin, gather) = (Duration::ZERO, Duration::ZERO);
        Settings { spin, timer_slack: DEFAULT_SLACK, gather, waits_first: false }
    }
}

/// The number of tasks that run before the poller is asked again.
const TASKS_PER_TURN: usize = 128;

/// The number of operations that a task may complete before it has to let other tasks run.
const BUDGET: u32 = 128;

/// The number of operations that all tasks of a turn may complete, except those that the last task
/// has begun.
const BUDGET_PER_TURN: u32 = 256;

/// The number of events that the poller may deliver at once.
const EVENTS_PER_TURN: usize = 1024;

pub(crate) struct Engine {
    pub remote: Arc<Remote>,
    pub counters: Counters,
    pub clock: Clock,
    poller: RefCell<Poller>,
    events: RefCell<Events>,
    sources: RefCell<Sources>,
    queue: RefCell<RunQueue>,
    /// A waker for each living task, to end the task when the engine ends.
    tasks: RefCell<Slab<Waker>>,
    /// The number of operations that the running task may still complete.
    budget: Cell<u32>,
    /// The last name given to a wait.
    last_wait_name: Cell<u32>,
    stopped: Cell<bool>,
    spin: RefCell<Spin>,
    timers: RefCell<Wheel>,
    late: RefCell<LateTimers>,
    shrink_checks: ShrinkChecks,
    // Emptied lists, kept for their room.
    messages: Cell<Vec<Message>>,
    due: Cell<Vec<Waker>>,
    /// The tasks that continue after the next wait.
    next_turn: RefCell<Vec<Waker>>,
    /// How the engine interprets a short read.
    pub short_reads: ShortReads,
    /// Whether a descriptor is watched before it is tried.
    pub waits_first: bool,
}

impl Engine {
    pub(crate) fn new(mut poller: Poller, settings: &Settings) -> superpoll::Result<Engine> {
        let registrar = poller.registrar()?;
        // An engine never leaves its thread.
        poller.stay_on_thread();
        poller.gather(settings.gather)?;
        let id = Remote::next_id();
        let backend = poller.backend();
        trace::engine_started(id, backend);
        Ok(Engine {
            remote: Arc::new(Remote::new(id, backend, registrar)),
            counters: Counters::default(),
            clock: Clock::default(),
            poller: RefCell::new(poller),
            events: RefCell::new(Events::with_limit(EVENTS_PER_TURN)),
            sources: RefCell::default(),
            queue: RefCell::default(),
            tasks: RefCell::default(),
            budget: Cell::new(BUDGET),
            last_wait_name: Cell::new(UNNAMED),
            stopped: Cell::new(false),
            spin: RefCell::new(Spin::new(settings.spin)),
            timers: RefCell::new(Wheel::new(Instant::now(), settings.timer_slack)),
            late: RefCell::default(),
            shrink_checks: ShrinkChecks::default(),
            messages: Cell::default(),
            due: Cell::default(),
            next_turn: RefCell::default(),
            short_reads: ShortReads::of(backend),
            waits_first: settings.waits_first,
        })
    }

    /// Makes this the thread's engine while a function runs; `None` if there is one already.
    pub(crate) fn enter<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        (!current::is_any()).then(|| current::during(self, f))
    }

    /// Makes this the thread's engine while a function runs; an engine that is current steps back.
    #[cfg(feature = "tokio-context")]
    pub(crate) fn as_current<R>(&self, f: impl FnOnce() -> R) -> R {
        current::during(self, f)
    }

    // Tasks.

    #[inline]
    pub(crate) fn schedule(&self, runnable: Runnable) {
        self.queue.borrow_mut().push(runnable);
    }

    /// Notes a task that runs for the first time, and numbers it.
    pub(crate) fn add_task(&self, waker: Waker) -> usize {
        count(&self.counters.spawned);
        let number = self.tasks.borrow_mut().insert(waker);
        self.note_slot(number);
        number
    }

    /// Notes the end of a task.
    pub(crate) fn remove_task(&self, number: usize) {
        let waker = self.tasks.borrow_mut().try_remove(number);
        drop(waker);
        self.note_slot(number);
    }

    /// Takes one operation from the budget of the running task; false if the budget is spent.
    #[inline]
    pub(crate) fn spend_budget(&self) -> bool {
        let left = self.budget.get();
        self.budget.set(left.saturating_sub(1));
        left > 0
    }

    /// Whether the running task may take another one.
    #[inline]
    pub(crate) fn has_budget(&self) -> bool {
        self.budget.get() > 0
    }

    #[inline]
    pub(crate) fn renew_budget(&self) {
        self.budget.set(BUDGET);
    }

    /// Runs the tasks that are due, up to the limits of a turn.
    #[inline(always)]
    fn run_tasks(&self) {
        let mut operations = 0;
        for _ in 0..TASKS_PER_TURN {
            // Not in the condition below, where the borrow would last for the body.
            let next = self.queue.borrow_mut().pop();
            let Some(runnable) = next else { return };
            self.renew_budget();
            count(&self.counters.polls);
            runnable.run();
            operations += BUDGET - self.budget.get();
            if operations >= BUDGET_PER_TURN {
                return;
            }
        }
    }

    /// Wakes a task after the next wait, which does not block.
    pub(crate) fn wake_next_turn(&self, waker: Waker) {
        self.next_turn.borrow_mut().push(waker);
    }

    /// Wakes the tasks that have put themselves off until now.
    #[cold]
    fn begin_next_turn(&self) {
        let mut wakers = self.next_turn.take();
        wakers.drain(..).for_each(callbacks::wake);
        // The room is kept, unless it is a burst's.
        if wakers.capacity() <= TASKS_PER_TURN {
            self.next_turn.replace(wakers);
        }
    }

    fn has_due_tasks(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    /// Takes the messages that other threads have sent.
    #[inline]
    fn take_messages(&self) {
        if self.remote.inbox.is_pending() {
            self.take_all_messages();
        }
    }

    #[cold]
    fn take_all_messages(&self) {
        let mut messages = self.messages.take();
        self.remote.inbox.take(&mut messages);
        self.note_slot(messages.len());
        self.handle_messages(&mut messages);
        self.messages.set(messages);
    }

    fn handle_messages(&self, messages: &mut Vec<Message>) {
        for message in messages.drain(..) {
            match message {
                Message::Run(runnable) => {
                    count(&self.counters.remote_wakes);
                    self.schedule(runnable);
                }
                Message::Call(call) => callbacks::call(call),
                Message::Forget(key) => self.forget(key),
                Message::CancelTimer(key) => {
                    // In two steps: the waker is dropped when nothing is borrowed.
                    let waker = self.timers(|wheel| wheel.cancel(key));
                    callbacks::discard(waker);
                }
                Message::Stop => self.stopped.set(true),
            }
        }
    }

    // Descriptors.

    /// Registers a descriptor that an operation waits for, with its first interest, which may be
    /// none. The poller learns of the interest before its next wait.
    pub(crate) fn register(
        &self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        mode: Mode,
        ready: u8,
    ) -> superpoll::Result<Key> {
        let watch = Watch::new(interest).mode(mode);
        let key = self.poller.borrow_mut().register(fd, watch)?;
        let before = self.sources.borrow_mut().add(key, fd.as_raw_fd(), watch, ready);
        callbacks::discard(before);
        self.note_slot(key.index() as usize);
        Ok(key)
    }

    /// Returns a name for a wait, unique in this engine; names repeat after four thousand million.
    pub(crate) fn next_wait_name(&self) -> u32 {
        let name = self.last_wait_name.get().wrapping_add(1).max(1);
        self.last_wait_name.set(name);
        name
    }

    /// Returns the result of a function of the source; `None` if the registration is gone.
    #[inline]
    pub(crate) fn source<R>(&self, key: Key, f: impl FnOnce(&mut Source) -> R) -> Option<R> {
        self.sources.borrow_mut().get(key).map(f)
    }

    /// Lends the timers, for a few lines.
    pub(crate) fn timers<R>(&self, f: impl FnOnce(&mut Wheel) -> R) -> R {
        f(&mut self.timers.borrow_mut())
    }

    pub(crate) fn modify(&self, key: Key, interest: Interest) -> superpoll::Result<()> {
        self.poller.borrow_mut().modify(key, interest)
    }

    /// Ends a registration; `closing` if the descriptor is closed right after.
    pub(crate) fn deregister(&self, key: Key, closing: bool) {
        let mut poller = self.poller.borrow_mut();
        // A stale key is fine: the kernel refuses it because the registration has ended already.
        let _ = if closing { poller.deregister_for_close(key) } else { poller.deregister(key) };
        drop(poller);
        self.forget(key);
    }

    fn forget(&self, key: Key) {
        let source = self.sources.borrow_mut().remove(key);
        callbacks::discard(source);
        self.note_slot(key.index() as usize);
    }

    /// Asks the poller, for at most `timeout`, and wakes the waiters for the events that it
    /// reports. Returns the number of events.
    #[inline(always)]
    fn poll(&self, timeout: Option<Duration>) -> superpoll::Result<usize> {
        let mut events = self.events.borrow_mut();
        let found = self.poller.borrow_mut().wait(&mut events, timeout)?;
        self.counters.found.set(found as u64);
        self.handle_events(&mut events);
        Ok(found)
    }

    /// Notes the events that the poller has reported, and wakes their waiters.
    #[inline(always)]
    fn handle_events(&self, events: &mut Events) {
        for event in &*events {
            let effects = self.sources.borrow_mut().report(event);
            let Some(effects) = effects else { continue };
            if let Some(interest) = effects.narrowed {
                // Refused only for a stale key, of which there are no events.
                let _ = self.modify(event.key(), interest);
            }
            if let Some(fd) = effects.spinning {
                self.counters.note_spinning(fd);
            }
            effects.wakers.wake();
        }
        if !events.refusals().is_empty() {
            for (key, error) in events.take_refusals() {
                let wakers = self.source(key, |source| source.refuse(error.into()));
                wakers.unwrap_or_default().wake();
            }
        }
    }

    // The loop.

    /// Returns how long the poller may block: not if there is work, else until the next wake-up for
    /// timers.
    fn timeout(&self) -> Option<Duration> {
        if self.has_pending_work() {
            return Some(Duration::ZERO);
        }
        if self.clock.is_paused() {
            return self.paused_timeout();
        }
        let next = self.timers.borrow().next_wake();
        let mut next = next.map(|next| self.clock.system_time(next));
        if let Some(check) = self.shrink_checks.next() {
            next = Some(next.map_or(check, |next| next.min(check)));
        }
        next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// Returns how long the poller may block while the clock is paused: not if the clock could move
    /// to a timer, which only takes a look at whether anything else has happened.
    #[cold]
    fn paused_timeout(&self) -> Option<Duration> {
        if !self.is_calling() && self.timers.borrow().next().is_some() {
            return Some(Duration::ZERO);
        }
        let check = self.shrink_checks.next();
        check.map(|check| check.saturating_duration_since(Instant::now()))
    }

    /// Returns whether a blocking call keeps a paused clock from moving by itself.
    fn is_calling(&self) -> bool {
        self.remote.calls.load(Ordering::SeqCst) > 0
    }

    /// Moves a paused clock to the next timer if the engine has nothing else to do.
    #[cold]
    fn skip_idle_time(&self) {
        // The look for calls comes first: one that ends has sent its message before.
        if self.is_calling() || self.counters.found.get() > 0 || self.has_pending_work() {
            return;
        }
        if let Some(next) = self.timers.borrow().next() {
            self.clock.advance_to(next);
        }
    }

    /// Pauses the clock, from which timers are exact to the nanosecond.
    pub(crate) fn pause_clock(&self) {
        self.clock.pause();
        self.timers(Wheel::make_exact);
    }

    /// Fires the timers that are due. After a pause, bytes and events that have arrived go first;
    /// see [`late_timers`](crate::late_timers).
    fn fire_timers(&self) {
        let next = self.timers.borrow().next();
        if next.is_none_or(current_engine::is_far) {
            return;
        }
        let now = current_engine::now();
        // A timer that the slack has held up is not late, nor is one that a test has jumped over.
        let wake = self.timers.borrow().next_wake();
        let late = wake.is_some_and(|wake| now.saturating_duration_since(wake) > LATE_AFTER);
        if late && !self.clock.is_paused() && !self.late_timers_may_fire() {
            return;
        }
        let mut due = self.due.take();
        self.timers.borrow_mut().advance(now, &mut due);
        let ended = &self.counters.timers_ended;
        ended.set(ended.get() + due.len() as u64);
        self.note_slot(due.len());
        due.drain(..).for_each(callbacks::wake);
        self.due.set(due);
    }

    #[cold]
    fn late_timers_may_fire(&self) -> bool {
        let found = self.counters.found.get();
        self.late.borrow_mut().may_fire(LoopState {
            turn: self.counters.turns.get(),
            has_more: found >= EVENTS_PER_TURN as u64,
            polls: self.counters.polls.get(),
            queued: self.queue.borrow().len(),
            is_root_due: self.remote.is_root_woken(),
            sources: self.sources.borrow().len(),
        })
    }

    /// Runs a turn: messages, tasks, the poller, timers.
    #[inline(always)]
    pub(crate) fn turn(&self) -> superpoll::Result<()> {
        self.take_messages();
        self.run_tasks();
        self.counters.begin_wait();
        let timeout = self.timeout();
        let outcome = if timeout == Some(Duration::ZERO) || !self.spin.borrow().is_on() {
            self.poll(timeout).map(drop)
        } else {
            self.spin_and_sleep(timeout)
        };
        self.counters.end_wait(self.remote.turn_watches.load(Ordering::Relaxed) > 0);
        if !self.next_turn.borrow().is_empty() {
            self.begin_next_turn();
        }
        if self.clock.is_paused() {
            self.skip_idle_time();
        }
        self.fire_timers();
        if let Some(check) = self.shrink_checks.next()
            && !deadline::is_far(check)
        {
            self.shrink_lists();
        }
        outcome
    }

    /// Returns whether the engine was told to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// Spins for as long as that has proved useful, and then sleeps.
    fn spin_and_sleep(&self, timeout: Option<Duration>) -> superpoll::Result<()> {
        let start = Instant::now();
        let limit = self.spin.borrow().duration();
        let end = start + timeout.map_or(limit, |timeout| timeout.min(limit));
        let mut now = start;
        while now < end {
            count(&self.counters.spin_polls);
            if self.poll(Some(Duration::ZERO))? > 0 || self.has_pending_work() {
                count(&self.counters.spin_hits);
                return Ok(());
            }
            std::hint::spin_loop();
            now = Instant::now();
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(now - start));
        let outcome = self.poll(left);
        self.spin.borrow_mut().record_sleep(now.elapsed());
        outcome.map(drop)
    }

    /// Returns whether there is anything to do that the poller does not know of.
    fn has_pending_work(&self) -> bool {
        self.has_due_tasks()
            || !self.next_turn.borrow().is_empty()
            || self.stopped.get()
            || self.remote.is_root_woken()
            || self.remote.inbox.is_pending()
    }

    /// Ends all tasks and drops everything that they own. Wakes all other waiters of this engine,
    /// which continue where they are polled next. An engine that is current on this thread steps
    /// back until that is done.
    ///
    /// Tasks are dropped with the inbox open first, because other threads may wake them as long as
    /// they live. Then the inbox is closed, and the messages sent until then are handled: calls are
    /// made, and the tasks that arrived are dropped. Tasks that are spawned here from now on never
    /// run, so there is nothing by which another thread could wake them.
    pub(crate) fn end(&self) {
        current::during(self, || {
            self.drop_tasks();
            trace::engine_ended(self.remote.id, self.counters.turns.get());
            let mut messages = Vec::new();
            self.remote.inbox.close(&mut messages);
            self.handle_messages(&mut messages);
            self.drop_tasks();
            let sources = self.sources.borrow_mut().take_all();
            for mut source in sources.into_iter().flatten() {
                source.take_all_waiters().wake();
            }
            let timers = self.timers(Wheel::take_all);
            timers.into_iter().for_each(callbacks::wake);
            self.begin_next_turn();
            self.drop_tasks();
        });
    }

    fn drop_tasks(&self) {
        loop {
            let wakers: Vec<Waker> =
                self.tasks.borrow().iter().map(|(_, waker)| waker.clone()).collect();
            for waker in wakers {
                waker.wake();
            }
            self.take_messages();
            let dropped = std::mem::take(&mut *self.queue.borrow_mut());
            if dropped.is_empty() && self.tasks.borrow().is_empty() {
                return;
            }
            drop(dropped);
            // A task that another thread is waking right now arrives in the inbox in a moment.
            std::thread::yield_now();
        }
    }

    /// Returns the back-end's name.
    pub(crate) fn backend(&self) -> &'static str {
        self.poller.borrow().backend()
    }

    pub(crate) fn stats(&self) -> Stats {
        let lengths = [self.sources.borrow().len(), self.timers.borrow().len()];
        self.counters.snapshot(&self.poller.borrow(), &self.remote, lengths)
    }
}
