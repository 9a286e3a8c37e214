//! The limit on the number of clients that are relayed at a time, and its end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The limit that the accepting tasks of all engines share.
#[derive(Debug)]
pub(super) struct ConcurrencyLimit {
    most: usize,
    in_use: AtomicUsize,
    stopped: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

/// The permission to relay one client, given back on drop.
#[derive(Debug)]
pub(super) struct Permit(Arc<ConcurrencyLimit>);

impl ConcurrencyLimit {
    pub(super) fn new(most: usize) -> ConcurrencyLimit {
        let (in_use, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        ConcurrencyLimit { most, in_use, stopped, waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        // Each critical section is one assignment.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops: no more permits are given.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether there are fewer permits than clients can be.
    pub(super) fn is_bounded(&self) -> bool {
        self.most < usize::MAX
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Remembers a task, to be woken when accepting is stopped, or when there is a permit again.
    pub(super) fn remember(&self, cx: &Context<'_>) {
        let mut waiting = self.waiting();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
    }

    fn acquire(self: &Arc<ConcurrencyLimit>) -> Option<Permit> {
        let more = |in_use| (in_use < self.most).then_some(in_use + 1);
        let entered = self.in_use.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        entered.is_ok().then(|| Permit(self.clone()))
    }

    /// Waits for a permit; `None` if accepting is stopped.
    pub(super) fn poll_acquire(
        self: &Arc<ConcurrencyLimit>,
        cx: &Context<'_>,
    ) -> Poll<Option<Permit>> {
        if self.is_stopped() {
            return Poll::Ready(None);
        }
        if let Some(permit) = self.acquire() {
            return Poll::Ready(Some(permit));
        }
        self.remember(cx);
        // A change that came before the task was remembered has not woken it.
        match self.is_stopped() {
            true => Poll::Ready(None),
            false => self.acquire().map_or(Poll::Pending, |permit| Poll::Ready(Some(permit))),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.0.in_use.fetch_sub(1, Ordering::SeqCst) >= self.0.most {
            self.0.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_permit_goes_to_the_next_client_and_none_after_the_stop() {
        let limit = Arc::new(ConcurrencyLimit::new(1));
        let cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(permit)) = limit.poll_acquire(&cx) else {
            panic!("no permit is in use")
        };
        assert!(limit.poll_acquire(&cx).is_pending());
        drop(permit);
        assert!(matches!(limit.poll_acquire(&cx), Poll::Ready(Some(_))));
        limit.stop();
        assert!(matches!(limit.poll_acquire(&cx), Poll::Ready(None)));
        assert_eq!(limit.in_use.load(Ordering::SeqCst), 0);
    }
}
