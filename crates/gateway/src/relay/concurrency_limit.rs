//! The gate: how many clients may come in at a time, and when no more may.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The gate that the accepting tasks of all engines pass through.
#[derive(Debug)]
pub(super) struct Gate {
    most: usize,
    inside: AtomicUsize,
    stopped: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

/// A place inside, left on drop.
#[derive(Debug)]
pub(super) struct Place(Arc<Gate>);

impl Gate {
    pub fn new(most: usize) -> Gate {
        let (inside, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        Gate { most, inside, stopped, waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        // Each critical section is one assignment.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops: no more clients may come in.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.into_iter().for_each(Waker::wake);
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Remembers a task, to be woken when the gate is stopped, or when there is a place again.
    pub fn remember(&self, cx: &Context<'_>) {
        let mut waiting = self.waiting();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
    }

    fn enter(self: &Arc<Gate>) -> Option<Place> {
        let more = |inside| (inside < self.most).then_some(inside + 1);
        let entered = self.inside.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        entered.is_ok().then(|| Place(self.clone()))
    }

    /// Returns a place for a client that the kernel let in before the gate was stopped.
    pub fn enter_late(self: &Arc<Gate>) -> Place {
        self.inside.fetch_add(1, Ordering::SeqCst);
        Place(self.clone())
    }

    /// Waits for a place; `None` if the gate is stopped.
    pub fn poll_enter(self: &Arc<Gate>, cx: &Context<'_>) -> Poll<Option<Place>> {
        if self.is_stopped() {
            return Poll::Ready(None);
        }
        if let Some(place) = self.enter() {
            return Poll::Ready(Some(place));
        }
        self.remember(cx);
        // A change that came before the task was remembered has not woken it.
        match self.is_stopped() {
            true => Poll::Ready(None),
            false => self.enter().map_or(Poll::Pending, |place| Poll::Ready(Some(place))),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.0.inside.fetch_sub(1, Ordering::SeqCst) >= self.0.most {
            self.0.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_lets_the_next_in_and_a_stopped_gate_nobody() {
        let gate = Arc::new(Gate::new(1));
        let cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(place)) = gate.poll_enter(&cx) else { panic!("it is empty") };
        assert!(gate.poll_enter(&cx).is_pending());
        drop(place);
        assert!(matches!(gate.poll_enter(&cx), Poll::Ready(Some(_))));
        gate.stop();
        assert!(matches!(gate.poll_enter(&cx), Poll::Ready(None)));
        drop(gate.enter_late());
        assert_eq!(gate.inside.load(Ordering::SeqCst), 0);
    }
}
