//! Operations that an engine's poller has under way for its tasks.
//!
//! The poller owns the memory that the kernel may write to; the engine owns the results until the
//! task takes them. Both know an operation by its place in a list, which is free again after the
//! operation's last progress. The futures that wait for an operation stay on the thread of the
//! engine, because they borrow a descriptor that cannot be shared between threads. So a future that
//! is dropped can always end its operation itself, with a call that waits until the kernel is done
//! with it. At that moment all that was received, accepted or sent until then is known, and no
//! later operation on the same descriptor can overtake it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use slab::Slab;
use superpoll::Key;
use superpoll::operation::{Operation, Progress, Ticket};

use crate::engine::{self, Engine};
use crate::foreign;
use crate::sources::Source;
use crate::sys;
use crate::tie::Tie;

/// When this many results wait to be taken, an operation that goes on by itself is ended until they
/// are taken.
const MOST: usize = 16;

/// An operation that has been started.
pub(crate) struct Pending {
    ticket: Ticket,
    place: usize,
    waker: Cell<Option<Waker>>,
    progress: RefCell<VecDeque<Progress>>,
    over: Cell<bool>,
    pausing: Cell<bool>,
}

/// The token of the operation at a place. The others of an engine's poller are keys: none has this
/// index, because there are fewer descriptors.
fn token(place: usize) -> u64 {
    Key::new(u32::MAX, place as u32).to_bits()
}

/// The place of the operation with this token, if it is not a key.
#[inline]
pub(crate) fn place(token: u64) -> Option<usize> {
    let key = Key::from_bits(token);
    (key.index() == u32::MAX).then_some(key.generation() as usize)
}

impl Pending {
    fn put(&self, progress: Progress) {
        if progress.last {
            self.over.set(true);
        }
        self.progress.borrow_mut().push_back(progress);
    }
}

/// All operations of an engine.
#[derive(Default)]
pub(crate) struct Operations {
    list: RefCell<Slab<Rc<Pending>>>,
    /// Those that have too many results, in the moment in which results are noted.
    full: RefCell<Vec<Rc<Pending>>>,
}

impl Operations {
    fn start(
        &self,
        engine: &Engine,
        key: Key,
        operation: Operation,
    ) -> Result<Rc<Pending>, Operation> {
        let mut list = self.list.borrow_mut();
        let home = list.vacant_entry();
        let place = home.key();
        // The wait that comes instead reports any obstacle.
        let mut poller = engine.poller();
        sys::open::keeps_open(&mut poller, key);
        let started = poller.start(key, operation, token(place));
        drop(poller);
        let ticket = started.map_err(|(_, operation)| operation)?;
        let pending = Rc::new(Pending {
            ticket,
            place,
            waker: Cell::default(),
            progress: RefCell::default(),
            over: Cell::new(false),
            pausing: Cell::new(false),
        });
        home.insert(pending.clone());
        engine.note_place(place);
        Ok(pending)
    }

    /// Notes progress that the poller has reported of the operation at this place, and collects the
    /// waker to call when everything else is noted.
    pub fn hear(&self, place: usize, progress: Progress, due: &mut Vec<Waker>) {
        let mut list = self.list.borrow_mut();
        let Some(pending) = list.get(place).cloned() else { return };
        if progress.last {
            list.remove(place);
        }
        pending.put(progress);
        due.extend(pending.waker.take());
        let too_much = pending.progress.borrow().len() >= MOST;
        if too_much && !pending.over.get() && !pending.pausing.replace(true) {
            self.full.borrow_mut().push(pending);
        }
    }

    /// Ends the operations of which too many results wait to be taken.
    #[inline]
    pub fn pause_full(&self, engine: &Engine) {
        for pending in self.full.borrow_mut().drain(..) {
            // If that fails the operation goes on, and only takes more room.
            let _ = engine.poller().cancel(pending.ticket);
        }
    }

    /// Ends an operation and notes the results that it has brought.
    fn end(&self, engine: &Engine, pending: &Pending) {
        if pending.over.get() {
            return;
        }
        // A failure means a forked process, in which there is nothing to end.
        let brought = engine.poller().cancel_now(pending.ticket).unwrap_or_default();
        for progress in brought {
            pending.put(progress);
        }
        if pending.over.get() {
            let known = self.list.borrow_mut().try_remove(pending.place);
            drop(known);
        }
    }

    /// Ends all operations, with the engine. Their waiters go on in another way, or in another
    /// engine.
    pub fn end_all(&self, engine: &Engine) {
        let all: Vec<Rc<Pending>> =
            self.list.borrow().iter().map(|(_, pending)| pending.clone()).collect();
        for pending in all {
            self.end(engine, &pending);
            if let Some(waker) = pending.waker.take() {
                foreign::wake(waker);
            }
        }
        let left = self.list.take();
        foreign::discard(left);
    }

    /// Returns the number of operations that there is room for.
    pub fn places(&self) -> usize {
        self.list.borrow().capacity()
    }

    /// Gives back the memory that is not needed.
    pub fn shorten(&self) {
        self.list.borrow_mut().shrink_to_fit();
        self.full.borrow_mut().shrink_to_fit();
    }

    /// Returns the number of operations under way.
    pub fn len(&self) -> usize {
        self.list.borrow().len()
    }
}

/// An operation that a task waits for. Dropping this before the operation is over ends it first,
/// and takes the remaining results.
pub(crate) struct UnderWay {
    engine: Weak<Engine>,
    pending: Rc<Pending>,
    /// The registration of a stream from which it takes bytes.
    takes_from: Option<Key>,
}

impl UnderWay {
    /// Starts an operation on this thread's engine; gives it back if there is no engine, or if the
    /// engine has no registration of this descriptor.
    pub fn start(tie: Tie<'_>, operation: Operation) -> Result<UnderWay, Operation> {
        let Some(engine) = engine::current().filter(|engine| engine.completes()) else {
            return Err(operation);
        };
        let Some(key) = tie.link.key_for_operations(&engine, tie.fd) else { return Err(operation) };
        let takes = takes_bytes(&operation);
        if takes && tie.link.fetched().is_some() {
            // Bytes that were found while the stream has left another engine come first.
            return Err(operation);
        }
        let pending = engine.operations.start(&engine, key, operation)?;
        if takes {
            engine.source(key, Source::begin_receive);
        }
        let takes_from = takes.then_some(key);
        Ok(UnderWay { engine: Rc::downgrade(&engine), pending, takes_from })
    }

    /// Returns the next progress; `None` after the last.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Progress>> {
        if let Some(progress) = self.pending.progress.borrow_mut().pop_front() {
            return Poll::Ready(Some(progress));
        }
        if self.pending.over.get() {
            return Poll::Ready(None);
        }
        let here = self.engine.upgrade().is_some_and(|home| engine::is_current(home.remote.id));
        if here {
            let before = self.pending.waker.replace(Some(cx.waker().clone()));
            drop(before);
            return Poll::Pending;
        }
        // Its engine may never run again.
        self.end();
        Poll::Ready(self.pending.progress.borrow_mut().pop_front())
    }

    /// Ends the operation, and waits until the kernel is done with it.
    pub fn end(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.operations.end(&engine, &self.pending);
        }
    }

    /// Ends the operation and takes the results that no task has taken.
    pub fn take_rest(&self) -> VecDeque<Progress> {
        if !self.pending.over.get() {
            self.end();
        }
        self.pending.progress.take()
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let (Some(key), Some(engine)) = (self.takes_from, self.engine.upgrade()) {
            engine.source(key, Source::end_receive);
        }
    }
}

/// Returns whether an operation takes bytes from a stream.
fn takes_bytes(operation: &Operation) -> bool {
    matches!(operation, Operation::Read(_) | Operation::Receive(_) | Operation::ReceiveMany)
}

/// Returns whether an operation has to be repeated in another way: it was ended with its engine, or
/// the kernel would not wait.
pub(crate) fn is_to_be_repeated(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ECANCELED | libc::EAGAIN | libc::EINTR | libc::EINPROGRESS | libc::EALREADY)
    )
}

/// Lets other tasks run first, if this one has done enough.
pub(crate) fn poll_turn(cx: &mut Context<'_>) -> Poll<()> {
    if engine::with(Engine::spend) == Some(false) {
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(())
}
