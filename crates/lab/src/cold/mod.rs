//! Cold sets for the adaptive back-end that are not epoll: signals, Linux AIO and libkqueue.
//!
//! The adaptive back-end watches idle descriptors in its cold set, which is epoll in the product.
//! Here are the other interfaces that could take that place, so that an experiment can show
//! the cost of each. Each is a [`Watcher`]. [`Watched`] makes a cold set of it that keeps
//! the contract of every back-end:
//!
//! - A watcher gives *hints*: this descriptor may be ready. A hint may be old, because the caller
//!   may have read in the meantime, and a signal names a number that may mean another file by now.
//!   So one `poll` without a timeout asks for the state of all hinted descriptors, and the poller
//!   reports that state.
//! - A watcher that hints at arrivals only, and not at states, is backed by a list of descriptors
//!   that are *due*: each that was just added, and each level-triggered one that was reported. They
//!   are polled before the next wait may block.
//! - If a watcher had no room for some hints, all of its descriptors are due.
//! - The waker, and all that the watcher cannot watch, stay in the poller's own epoll set, and the
//!   poller waits there: the watcher's descriptor is in that set. So a wait that finds something
//!   takes at least three calls, where epoll alone takes one.
//!
//! Where another loop waits on the poller, and in the child of a fork, the epoll set watches
//! everything.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use superpoll::backend::policy::{CostBased, Policy};
use superpoll::backend::{
    Adaptive, Change, Cold, Context, Deadline, Epoll, Memory, Report, Status, Synced,
};
use superpoll::diagnostics::Costs;
use superpoll::{Builder, Interest, Key, Mode, Poller, Readiness, Watch};

use crate::error::{Doing, Result};
use crate::sys::{descriptor, poll};

mod aio;
mod kqueue;
mod signals;
#[cfg(test)]
mod tests;

/// For how long a flush waits for hints that are under way.
const PATIENCE: Duration = Duration::from_secs(1);

crate::by_name::named! {
    /// The interface that watches idle descriptors in the place of epoll.
    pub(crate) enum Kind {
        /// Signals that name the descriptor (`F_SETSIG`).
        Signals = "signals",
        /// Polls of Linux AIO (`IOCB_CMD_POLL`).
        Aio = "aio",
        /// The library libkqueue.
        Kqueue = "kqueue",
    }
}

impl Kind {
    /// Returns the builder of a poller with this cold set, which has room for as many descriptors.
    pub(crate) fn builder(self, room: usize) -> Result<Builder> {
        self.placed_by(CostBased::default(), *Costs::calibrated(), room)
    }

    /// The same, with another policy and costs.
    fn placed_by(
        self,
        policy: impl Policy + 'static,
        costs: Costs,
        room: usize,
    ) -> Result<Builder> {
        let builder = Poller::builder();
        Ok(match self {
            Kind::Signals => {
                let signals = signals::Signals::new().doing("setting signals up")?;
                builder.custom(Adaptive::over(Watched::new(signals)?, policy, costs))
            }
            Kind::Aio => {
                let aio = aio::Aio::new(room).doing(format_args!(
                    "setting Linux AIO up for {room} polls (the system has room for \
                     fs.aio-max-nr, see sysctl)"
                ))?;
                builder.custom(Adaptive::over(Watched::new(aio)?, policy, costs))
            }
            Kind::Kqueue => {
                let queue = kqueue::Kqueue::new().doing("setting libkqueue up")?;
                builder.custom(Adaptive::over(Watched::new(queue)?, policy, costs))
            }
        })
    }
}

/// The outcome of a watcher's preparation for a wait.
#[derive(Default, Debug)]
struct Begun {
    /// The state of every descriptor is unknown.
    lost: bool,
    /// Descriptors that it cannot watch after all.
    refused: Vec<Key>,
}

/// An interface that watches descriptors in the place of epoll.
trait Watcher: Send {
    /// How its [link](Watcher::link) is watched.
    const LINK: Mode;

    /// Whether it hints at a descriptor that is ready when it is added, and again for as long as
    /// it is. Otherwise it hints at arrivals.
    const SEES_STATES: bool;

    /// Whether it keeps the open file of a descriptor that it watches.
    const HOLDS_FILES: bool;

    /// Whether a hint may come some time after the arrival.
    const IS_LATE: bool;

    /// Returns a descriptor that is readable when there are hints.
    fn link(&self) -> BorrowedFd<'_>;

    /// Begins to watch a pipe or a socket. Returns the number under which its state can be
    /// polled, or nothing if it cannot watch this one.
    fn add(&mut self, key: Key, fd: RawFd, interest: Interest) -> io::Result<Option<RawFd>>;

    /// Ends that. `fd` may be closed by now, and may be the number of another file.
    fn remove(&mut self, key: Key, fd: RawFd);

    /// Prepares a wait.
    fn begin(&mut self, begun: &mut Begun) -> io::Result<()>;

    /// Whether it has something to do before the next wait may block.
    fn is_due(&self) -> bool {
        false
    }

    /// Fetches the hints. Returns whether some were lost.
    fn collect(&mut self, hints: &mut Vec<Key>) -> io::Result<bool>;

    /// Leaves everything to the parent of this process, which uses it.
    fn abandon(self);

    /// Returns the bytes of heap that it uses.
    fn memory(&self) -> usize;
}

/// A descriptor that the watcher has.
#[derive(Clone, Copy, Debug)]
struct Held {
    key: Key,
    fd: RawFd,
    /// The number under which its state is polled.
    state: RawFd,
    interest: Interest,
}

/// A cold set with a watcher.
struct Watched<W: Watcher> {
    epoll: Epoll,
    /// `None` once the epoll set watches everything.
    watcher: Option<W>,
    /// By the index of the key.
    held: Vec<Option<Held>>,
    count: usize,
    /// Descriptors whose state is polled before the next wait may block.
    due: Vec<Key>,
    /// Descriptors that were found ready and not reported yet.
    found: Vec<(Key, Readiness)>,
    hints: Vec<Key>,
    polled: Vec<libc::pollfd>,
    polled_keys: Vec<Key>,
    /// A registration has ended since the last flush.
    has_ended: bool,
    /// The process that the watcher belongs to.
    process: u32,
}

/// The order in which equal keys are next to each other.
fn bits(key: &Key) -> u64 {
    key.to_bits()
}

fn is_trouble(ready: Readiness) -> bool {
    ready.contains(Readiness::HANG_UP) || ready.contains(Readiness::ERROR)
}

impl<W: Watcher> Watched<W> {
    fn new(watcher: W) -> Result<Watched<W>> {
        let mut epoll = Epoll::new()?;
        epoll.watch_link(watcher.link(), W::LINK)?;
        Ok(Watched {
            epoll,
            watcher: Some(watcher),
            held: Vec::new(),
            count: 0,
            due: Vec::new(),
            found: Vec::new(),
            hints: Vec::new(),
            polled: Vec::new(),
            polled_keys: Vec::new(),
            has_ended: false,
            process: std::process::id(),
        })
    }

    /// Returns the watcher's record of a key.
    fn held(&self, key: Key) -> Option<Held> {
        self.held.get(key.index() as usize).copied().flatten().filter(|held| held.key == key)
    }

    /// Takes a descriptor back from the watcher, if that has it.
    fn recall(&mut self, cx: &mut Context<'_>, index: u32) {
        let Some(held) = self.held.get_mut(index as usize).and_then(Option::take) else { return };
        self.count -= 1;
        cx.table.slot_mut(index).come_back();
        if let Some(watcher) = &mut self.watcher {
            watcher.remove(held.key, held.fd);
        }
    }

    /// Gives a descriptor to the watcher. Returns whether it has taken it.
    fn give(&mut self, cx: &mut Context<'_>, index: u32, watch: Watch) -> bool {
        let may = matches!(watch.mode, Mode::Level | Mode::Auto | Mode::OneShot);
        let Some(watcher) = self.watcher.as_mut().filter(|_| may) else { return false };
        let (key, fd) = (cx.table.key(index), cx.table.slot(index).fd());
        if watch.interest.is_empty() || !descriptor::is_pipe_or_socket(fd) {
            return false;
        }
        // An error is one that epoll has as well, and then says so, or a limit of the watcher's.
        let Ok(Some(state)) = watcher.add(key, fd, watch.interest) else { return false };
        let _ = self.epoll.change(cx, index, Change::Forget);
        cx.table.slot_mut(index).leave();
        let place = index as usize;
        if self.held.len() <= place {
            self.held.resize(place + 1, None);
        }
        self.held[place] = Some(Held { key, fd, state, interest: watch.interest });
        self.count += 1;
        if !W::SEES_STATES {
            self.due.push(key);
        }
        true
    }

    /// Moves a descriptor from the watcher to the epoll set.
    fn move_to_epoll(&mut self, cx: &mut Context<'_>, index: u32) {
        let (key, watch) = (cx.table.key(index), cx.table.slot(index).watch());
        self.recall(cx, index);
        if watch.interest.is_empty() {
            return;
        }
        if let Err(error) = self.epoll.change(cx, index, Change::Watch(watch.interest, watch.mode))
        {
            let code = match error {
                superpoll::Error::System { source, .. } => source.raw_os_error(),
                _ => None,
            };
            cx.unwatched(key, code.unwrap_or(libc::EBADF));
        }
    }

    /// Makes the watcher ready for a wait. After an error it is due, and the next wait tries again.
    fn prepare(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(watcher) = &mut self.watcher else { return Ok(()) };
        let mut begun = Begun::default();
        let outcome = watcher.begin(&mut begun);
        for key in begun.refused {
            if self.held(key).is_some() {
                self.move_to_epoll(cx, key.index());
            }
        }
        if begun.lost {
            self.doubt_all();
        }
        outcome
    }

    /// Waits until the watcher has hinted at every descriptor that is ready, for a second at most.
    fn catch_up(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        let all: Vec<Held> = self.held.iter().copied().flatten().collect();
        if all.is_empty() {
            return Ok(());
        }
        let entry = |held: &Held| {
            let events = held.interest.poll_bits();
            libc::pollfd { fd: held.state, events, revents: 0 }
        };
        let mut polled: Vec<libc::pollfd> = all.iter().map(entry).collect();
        loop {
            self.fetch(cx)?;
            if poll::look(&mut polled) < 0 {
                return Err(io::Error::last_os_error());
            }
            cx.stats.calls.poll += 1;
            let is_ready = |slot: &libc::pollfd| slot.revents & !libc::POLLNVAL != 0;
            let mut ready = all.iter().zip(&polled).filter(|(_, slot)| is_ready(slot));
            self.due.sort_unstable_by_key(bits);
            let is_due = |key: &Key| self.due.binary_search_by_key(&bits(key), bits).is_ok();
            let is_known = ready.all(|(held, _)| is_due(&held.key));
            if is_known || Instant::now() >= until {
                return Ok(());
            }
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// Makes every descriptor due.
    fn doubt_all(&mut self) {
        self.due.clear();
        self.due.extend(self.held.iter().flatten().map(|held| held.key));
    }

    /// Polls the descriptors that are due. If that fails, they stay due.
    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.due.sort_unstable_by_key(bits);
        self.due.dedup();
        let (mut polled, mut keys) =
            (std::mem::take(&mut self.polled), std::mem::take(&mut self.polled_keys));
        polled.clear();
        keys.clear();
        for &key in &self.due {
            if let Some(held) = self.held(key) {
                let events = held.interest.poll_bits();
                polled.push(libc::pollfd { fd: held.state, events, revents: 0 });
                keys.push(key);
            }
        }
        let mut outcome = Ok(());
        if !polled.is_empty() {
            cx.stats.calls.poll += 1;
            if poll::look(&mut polled) < 0 {
                outcome = Err(io::Error::last_os_error());
            }
        }
        if outcome.is_ok() {
            self.due.clear();
            for (slot, &key) in polled.iter().zip(&keys) {
                if slot.revents & libc::POLLNVAL != 0 {
                    // It was closed while it was registered. Epoll would have forgotten it.
                    self.recall(cx, key.index());
                } else if slot.revents != 0 {
                    self.found.push((key, Readiness::from_poll_bits(slot.revents)));
                }
            }
        }
        (self.polled, self.polled_keys) = (polled, keys);
        outcome
    }

    /// Fetches the watcher's hints: these descriptors are due.
    fn fetch(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(watcher) = &mut self.watcher else { return Ok(()) };
        let mut hints = std::mem::take(&mut self.hints);
        hints.clear();
        let outcome = watcher.collect(&mut hints);
        for &key in &hints {
            match self.held(key) {
                Some(_) => self.due.push(key),
                None => cx.stats.stale += 1,
            }
        }
        self.hints = hints;
        if !matches!(outcome, Ok(false)) {
            self.doubt_all();
        }
        outcome.map(drop)
    }

    /// Reports the descriptors that were found ready. Returns how many of these events were wanted.
    fn deliver(
        &mut self,
        cx: &mut Context<'_>,
        on_active: &mut impl FnMut(&mut Context<'_>, u32, Readiness),
    ) -> usize {
        let mut found = std::mem::take(&mut self.found);
        found.sort_unstable_by_key(|(key, _)| bits(key));
        found.dedup_by(|second, first| {
            let same = second.0 == first.0;
            if same {
                first.1 |= second.1;
            }
            same
        });
        let mut active = 0;
        for &(key, ready) in &found {
            if self.held(key).is_none() {
                continue;
            }
            let index = key.index();
            let mode = cx.table.slot(index).watch().mode;
            let outcome = cx.report(key, ready);
            if !matches!(outcome, Report::Taken | Report::Later) {
                continue;
            }
            active += 1;
            on_active(cx, index, ready);
            match mode {
                Mode::OneShot if outcome == Report::Taken => self.recall(cx, index),
                // A hang-up that lasts would be reported in each wait. An edge reports it once.
                Mode::Auto if is_trouble(ready) => self.move_to_epoll(cx, index),
                Mode::Level if !W::SEES_STATES => self.due.push(key),
                _ => {}
            }
        }
        found.clear();
        self.found = found;
        active
    }
}

impl<W: Watcher> Cold for Watched<W> {
    fn change(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        change: Change,
    ) -> superpoll::Result<Synced> {
        let slot = cx.table.slot(index);
        let wanted = match change {
            Change::Agree if slot.is_live() => {
                if slot.is_away() && slot.is_left_as_wanted() {
                    return Ok(Synced::Unchanged);
                }
                Some(slot.watch())
            }
            Change::Watch(interest, mode) => Some(Watch::new(interest).mode(mode)),
            Change::Agree | Change::Park | Change::Forget => None,
        };
        self.has_ended |= matches!(change, Change::Forget);
        self.recall(cx, index);
        if wanted.is_some_and(|watch| self.give(cx, index, watch)) {
            return Ok(Synced::Applied);
        }
        self.epoll.change(cx, index, change)
    }

    fn set(&self) -> &Epoll {
        &self.epoll
    }

    fn set_mut(&mut self) -> &mut Epoll {
        &mut self.epoll
    }

    fn watched(&self) -> usize {
        self.epoll.watched() + self.count
    }

    fn is_in_turn(&self) -> bool {
        self.count == 0
    }

    fn must_look(&self) -> bool {
        let is_due = self.watcher.as_ref().is_some_and(Watcher::is_due);
        is_due || !self.due.is_empty() || !self.found.is_empty()
    }

    fn report(
        &mut self,
        cx: &mut Context<'_>,
        alone: bool,
        answer: io::Result<usize>,
        mut on_active: impl FnMut(&mut Context<'_>, u32, Readiness),
    ) -> io::Result<usize> {
        let active = Cold::report(&mut self.epoll, cx, alone, answer, &mut on_active)?;
        // A watcher that could not do its part before the wait may need room for that.
        let is_due = self.watcher.as_ref().is_some_and(Watcher::is_due);
        if self.epoll.take_link_event() || is_due {
            self.fetch(cx)?;
        }
        if !self.due.is_empty() {
            self.look(cx)?;
        }
        Ok(active + self.deliver(cx, &mut on_active))
    }

    fn begin(&mut self, cx: &mut Context<'_>, deadline: Deadline) -> Deadline {
        let prepared = self.prepare(cx);
        // Found for a wait that failed, and perhaps read since.
        self.due.extend(self.found.drain(..).map(|(key, _)| key));
        if !self.due.is_empty() {
            // After an error they stay due, and the report has it.
            let _ = self.look(cx);
        }
        if prepared.is_err() || self.must_look() { Deadline::Now } else { deadline }
    }

    /// Also waits for hints that may be under way, so that the next wait sees all that was ready
    /// before. The poller calls it at the end of a registration, too, where this would cost a poll
    /// of all.
    fn flush(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.prepare(cx)?;
        let is_end = std::mem::take(&mut self.has_ended) && W::HOLDS_FILES;
        if W::IS_LATE && !is_end { self.catch_up(cx) } else { Ok(()) }
    }

    fn add_keeper<'a>(&'a self, status: &mut Status<'a>) {
        status.holds_files = W::HOLDS_FILES;
    }

    fn stay_in_set(&mut self, cx: &mut Context<'_>, is_child: bool) {
        let Some(watcher) = self.watcher.take() else { return };
        let held: Vec<Key> = self.held.iter().flatten().map(|held| held.key).collect();
        if is_child {
            watcher.abandon();
            self.epoll.drop_link();
            self.held.clear();
            self.count = 0;
            for key in held {
                cx.table.slot_mut(key.index()).come_back();
            }
        } else {
            self.epoll.forget_link(cx);
            self.watcher = Some(watcher);
            for key in held {
                self.move_to_epoll(cx, key.index());
            }
            self.watcher = None;
        }
        self.due.clear();
        self.found.clear();
    }

    fn more_memory(&self) -> Memory {
        let lists = self.held.capacity() * size_of::<Option<Held>>()
            + self.due.capacity() * size_of::<Key>()
            + self.found.capacity() * size_of::<(Key, Readiness)>()
            + self.hints.capacity() * size_of::<Key>()
            + self.polled_keys.capacity() * size_of::<Key>();
        Memory {
            own: lists + self.watcher.as_ref().map_or(0, Watcher::memory),
            mirrors: self.polled.capacity() * size_of::<libc::pollfd>(),
        }
    }
}

impl<W: Watcher> Drop for Watched<W> {
    fn drop(&mut self) {
        if self.process != std::process::id()
            && let Some(watcher) = self.watcher.take()
        {
            watcher.abandon();
        }
    }
}
