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
use std::rc::Rc;
use std::task::Waker;

use slab::Slab;
use superpoll::operation::{Operation, Progress, Ticket};
use superpoll::{Key, Poller};

use crate::callbacks;
use crate::sys;

/// When this many results wait to be taken, an operation that goes on by itself is ended until they
/// are taken.
const MOST: usize = 16;

/// An operation that has been started.
pub(crate) struct StartedOperation {
    ticket: Ticket,
    pub place: usize,
    pub waker: Cell<Option<Waker>>,
    pub progress: RefCell<VecDeque<Progress>>,
    pub over: Cell<bool>,
    cancelling: Cell<bool>,
}

/// The token of the operation at a place. The other tokens of an engine's poller are keys: no key
/// has this index, because there are fewer descriptors.
fn token(place: usize) -> u64 {
    Key::new(u32::MAX, place as u32).to_bits()
}

/// The place of the operation with this token, if it is not a key.
#[inline]
pub(crate) fn place(token: u64) -> Option<usize> {
    let key = Key::from_bits(token);
    (key.index() == u32::MAX).then_some(key.generation() as usize)
}

impl StartedOperation {
    fn push(&self, progress: Progress) {
        if progress.last {
            self.over.set(true);
        }
        self.progress.borrow_mut().push_back(progress);
    }
}

/// All operations of an engine.
#[derive(Default)]
pub(crate) struct Operations {
    list: RefCell<Slab<Rc<StartedOperation>>>,
    /// Those that have too many results, in the moment in which results are noted.
    full: RefCell<Vec<Rc<StartedOperation>>>,
}

impl Operations {
    /// Starts an operation, or gives it back.
    pub(crate) fn start(
        &self,
        poller: &mut Poller,
        key: Key,
        operation: Operation,
    ) -> Result<Rc<StartedOperation>, Operation> {
        let mut list = self.list.borrow_mut();
        let entry = list.vacant_entry();
        let place = entry.key();
        // The wait that comes instead reports any obstacle.
        sys::assume_open::assume_kept_open(poller, key);
        let started = poller.start(key, operation, token(place));
        let ticket = started.map_err(|(_, operation)| operation)?;
        let pending = Rc::new(StartedOperation {
            ticket,
            place,
            waker: Cell::default(),
            progress: RefCell::default(),
            over: Cell::new(false),
            cancelling: Cell::new(false),
        });
        entry.insert(pending.clone());
        Ok(pending)
    }

    /// Notes progress that the poller has reported of the operation at this place, and collects the
    /// waker to call when everything else is noted.
    pub(crate) fn handle_progress(&self, place: usize, progress: Progress, due: &mut Vec<Waker>) {
        let mut list = self.list.borrow_mut();
        let Some(pending) = list.get(place).cloned() else { return };
        if progress.last {
            list.remove(place);
        }
        pending.push(progress);
        due.extend(pending.waker.take());
        let too_much = pending.progress.borrow().len() >= MOST;
        if too_much && !pending.over.get() && !pending.cancelling.replace(true) {
            self.full.borrow_mut().push(pending);
        }
    }

    /// Ends the operations that have too many results waiting to be taken.
    #[inline]
    pub(crate) fn pause_full(&self, poller: &RefCell<Poller>) {
        for pending in self.full.borrow_mut().drain(..) {
            // If that fails the operation goes on, and only takes more room.
            let _ = poller.borrow_mut().cancel(pending.ticket);
        }
    }

    /// Ends an operation and notes the results that it has brought.
    pub(crate) fn end(&self, poller: &mut Poller, pending: &StartedOperation) {
        if pending.over.get() {
            return;
        }
        // A failure means a forked process, in which there is nothing to end.
        let brought = poller.cancel_now(pending.ticket).unwrap_or_default();
        for progress in brought {
            pending.push(progress);
        }
        if pending.over.get() {
            let known = self.list.borrow_mut().try_remove(pending.place);
            drop(known);
        }
    }

    /// Ends all operations, with the engine. Their waiters go on in another way, or in another
    /// engine.
    pub(crate) fn end_all(&self, poller: &RefCell<Poller>) {
        let all: Vec<Rc<StartedOperation>> =
            self.list.borrow().iter().map(|(_, pending)| pending.clone()).collect();
        for pending in all {
            self.end(&mut poller.borrow_mut(), &pending);
            if let Some(waker) = pending.waker.take() {
                callbacks::wake(waker);
            }
        }
        let left = self.list.take();
        callbacks::discard(left);
    }

    /// Returns the number of operations that there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.list.borrow().capacity()
    }

    /// Gives back the memory that is not needed.
    pub(crate) fn shrink(&self) {
        self.list.borrow_mut().shrink_to_fit();
        self.full.borrow_mut().shrink_to_fit();
    }

    /// Returns the number of operations under way.
    pub(crate) fn len(&self) -> usize {
        self.list.borrow().len()
    }
}
