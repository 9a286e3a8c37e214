//! Waits on threads without an engine.
//!
//! A stream may be polled on a thread that has no engine: a library hands it to `tokio::spawn`, as
//! axum does with an upgraded connection, or a program keeps it in another executor. Such a wait
//! needs a poller that is at work whatever the engines do, and as long as the process lives. It is
//! on a thread of its own, `superpoll-outside`, which the first wait of this kind starts. A process
//! without such waits has no such thread.
//!
//! A descriptor is armed for one event per wait ([`Mode::OneShot`]). The kernel checks its state at
//! that moment, so an arrival between the refused operation and the wait is not lost. No readiness
//! is remembered except for a caller that asked for readiness alone:
//!
//! ```text
//!        wait(), arms             event                   take_ready()
//! IDLE --------------> WAITING ------------> READY, woken -------------> IDLE
//!                         ^                    |
//!                         +--------------------+ wait(), arms
//! ```
//!
//! A stream that is polled by an engine later leaves this poller as it leaves another engine.
//! Wakers are cloned, called and dropped with nothing locked ([`callbacks`](crate::callbacks)).

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;

use superpoll::{BackendKind, Events, Interest, Key, Mode, Poller, Watch};

use crate::callbacks;
use crate::remote::{Message, Remote};
use crate::sources::{Direction, UNNAMED};
use crate::wake_list::WakeList;

/// The events that are fetched at a time.
const EVENTS: usize = 256;

/// Set in the names of waits on threads without an engine, so that they differ from an engine's.
const OUTSIDE: u32 = 1 << 31;

/// The thread of this process, once there is one.
static THREAD: Mutex<Option<Arc<Outside>>> = Mutex::new(None);

/// A wait for a direction.
struct Waiter {
    direction: Direction,
    name: u32,
    waker: Waker,
}

/// A descriptor that is waited for.
struct Watched {
    key: Key,
    waiters: Vec<Waiter>,
    /// The directions that were reported since the last wait for them.
    ready: u8,
    /// Why the registration has ended, if the kernel refused it.
    refused: Option<io::Error>,
}

/// The descriptors, each at its key's index, and why the thread has ended, if it has.
#[derive(Default)]
struct State {
    watched: Vec<Option<Watched>>,
    failure: Option<String>,
}

/// The thread that waits for all other threads without an engine.
pub(crate) struct Outside {
    pub remote: Arc<Remote>,
    state: Mutex<State>,
    /// The process that it runs in: a forked child has no threads but the one that forked.
    process: u32,
}

/// Returns a name for a wait on a thread without an engine; names repeat after two thousand
/// million.
pub(crate) fn next_wait_name() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) | OUTSIDE
}

/// Returns the thread if this process has started it, which a thread that only ends a wait never
/// needs.
pub(crate) fn started() -> Option<Arc<Outside>> {
    let thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner).clone();
    thread.filter(|outside| outside.process == std::process::id())
}

/// Returns the thread, and starts it if there is none yet.
///
/// # Errors
///
/// The error of a poller or a thread that cannot be made; the next call tries again.
pub(crate) fn thread() -> io::Result<Arc<Outside>> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(outside) = thread.as_ref().filter(|one| one.process == std::process::id()) {
        return Ok(outside.clone());
    }
    let outside = Outside::start()?;
    *thread = Some(outside.clone());
    Ok(outside)
}

impl Outside {
    fn start() -> io::Result<Arc<Outside>> {
        // No placement pays where each report is followed by a change.
        let mut poller = Poller::builder().backend(BackendKind::Epoll).build()?;
        let remote = Remote::new(Remote::next_id(), poller.backend(), poller.registrar()?);
        let outside = Arc::new(Outside {
            remote: Arc::new(remote),
            state: Mutex::default(),
            process: std::process::id(),
        });
        let own = outside.clone();
        thread::Builder::new()
            .name("superpoll-outside".to_owned())
            .spawn(move || own.run(&mut poller))
            .map_err(|error| {
                let text = format!("starting the thread that waits for threads without an engine: {error}; raise the limit of threads (ulimit -u)");
                io::Error::new(error.kind(), text)
            })?;
        Ok(outside)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, poller: &mut Poller) {
        let mut events = Events::with_limit(EVENTS);
        let mut messages = Vec::new();
        loop {
            if let Err(error) = poller.wait(&mut events, None) {
                self.fail(&error);
                return;
            }
            self.remote.inbox.take(&mut messages);
            for message in messages.drain(..) {
                if let Message::Forget(key) = message {
                    callbacks::discard(self.state().remove(key));
                }
            }
            for event in &events {
                // A hang-up and an error are part of each interest.
                let is_ready = |direction: &Direction| {
                    !event.readiness().masked(direction.interest()).is_empty()
                };
                let ready = Direction::ALL.iter().filter(|direction| is_ready(direction));
                let ready = ready.fold(0, |all, direction| all | direction.bit());
                self.report(event.key(), ready, None).wake();
            }
            for (key, error) in events.take_refusals() {
                self.report(key, u8::MAX, Some(error.into())).wake();
            }
        }
    }

    /// Notes that directions are ready, and watches for those that are still waited for.
    fn report(&self, key: Key, ready: u8, refused: Option<io::Error>) -> WakeList {
        let mut state = self.state();
        let mut woken = WakeList::default();
        let Some(watched) = state.get(key) else { return woken };
        watched.ready |= ready;
        let is_refused = refused.is_some();
        watched.refused = refused.or(watched.refused.take());
        let due = watched.waiters.extract_if(.., |waiter| waiter.direction.bit() & ready != 0);
        due.for_each(|waiter| woken.push(waiter.waker));
        if !watched.waiters.is_empty() && !is_refused {
            // Refused only for a key that has ended meanwhile.
            let _ = self.remote.registrar.modify(key, watched.interest());
        }
        woken
    }

    fn fail(&self, error: &superpoll::Error) {
        let mut state = self.state();
        state.failure = Some(format!("the thread superpoll-outside has ended: {error}"));
        let all = std::mem::take(&mut state.watched);
        drop(state);
        for waiter in all.into_iter().flatten().flat_map(|watched| watched.waiters) {
            callbacks::wake(waiter.waker);
        }
    }

    /// Registers a descriptor for its first wait.
    ///
    /// # Errors
    ///
    /// The failure that has ended the thread, or the error of [`Registrar::register`]; a
    /// registration that the kernel refuses is reported by the next wait.
    ///
    /// [`Registrar::register`]: superpoll::Registrar::register
    pub(crate) fn register(
        &self,
        fd: BorrowedFd<'_>,
        direction: Direction,
        name: u32,
        waker: Waker,
    ) -> io::Result<Key> {
        let mut state = self.state();
        if let Some(failure) = &state.failure {
            return Err(io::Error::other(failure.clone()));
        }
        let watch = Watch::new(direction.interest()).mode(Mode::OneShot);
        let key = self.remote.registrar.register(fd, watch)?;
        let waiters = vec![Waiter { direction, name, waker }];
        let before = state.insert(Watched { key, waiters, ready: 0, refused: None });
        drop(state);
        // Of a descriptor that has ended, whose message is on its way.
        callbacks::discard(before);
        Ok(key)
    }

    /// Waits once more for a registered descriptor; false if the registration is gone.
    ///
    /// # Errors
    ///
    /// The kernel's refusal of the registration.
    pub(crate) fn wait(
        &self,
        key: Key,
        direction: Direction,
        name: u32,
        waker: Waker,
    ) -> io::Result<bool> {
        let mut state = self.state();
        let Some(watched) = state.get(key) else { return Ok(false) };
        if let Some(error) = watched.refused.take() {
            return Err(error);
        }
        watched.ready &= !direction.bit();
        let before = watched.add(Waiter { direction, name, waker });
        let armed = self.remote.registrar.modify(key, watched.interest());
        drop(state);
        callbacks::discard(before);
        armed?;
        Ok(true)
    }

    /// Returns whether a direction was reported since the last wait for it, and forgets that.
    pub(crate) fn take_ready(&self, key: Key, direction: Direction) -> bool {
        let mut state = self.state();
        let Some(watched) = state.get(key) else { return false };
        let is_ready = watched.ready & direction.bit() != 0;
        watched.ready &= !direction.bit();
        is_ready
    }

    /// Ends the wait with this name.
    pub(crate) fn cancel_wait(&self, key: Key, direction: Direction, name: u32) {
        let mut state = self.state();
        let Some(watched) = state.get(key) else { return };
        let is_it = |waiter: &mut Waiter| waiter.direction == direction && waiter.name == name;
        let ended: Vec<Waiter> = watched.waiters.extract_if(.., is_it).collect();
        drop(state);
        callbacks::discard(ended);
    }
}

impl State {
    fn get(&mut self, key: Key) -> Option<&mut Watched> {
        let entry = self.watched.get_mut(key.index() as usize)?;
        entry.as_mut().filter(|watched| watched.key == key)
    }

    fn insert(&mut self, watched: Watched) -> Option<Watched> {
        let index = watched.key.index() as usize;
        if self.watched.len() <= index {
            self.watched.resize_with(index + 1, || None);
        }
        self.watched[index].replace(watched)
    }

    fn remove(&mut self, key: Key) -> Option<Watched> {
        self.get(key)?;
        self.watched[key.index() as usize].take()
    }
}

impl Watched {
    /// Adds a waiter; returns the waiter that it replaces.
    fn add(&mut self, waiter: Waiter) -> Option<Waiter> {
        let same = self.waiters.iter_mut().find(|other| {
            other.direction == waiter.direction
                && other.name == waiter.name
                && (waiter.name != UNNAMED || other.waker.will_wake(&waiter.waker))
        });
        match same {
            Some(same) => Some(std::mem::replace(same, waiter)),
            None => {
                self.waiters.push(waiter);
                None
            }
        }
    }

    /// Returns the interest of all waiters.
    fn interest(&self) -> Interest {
        let each = self.waiters.iter().map(|waiter| waiter.direction.interest());
        each.fold(Interest::NONE, Interest::with)
    }
}
