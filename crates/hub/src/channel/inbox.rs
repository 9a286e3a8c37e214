//! One engine's list of the channels that have messages for its subscribers.
//!
//! A channel lists itself when a message is published while nothing of it is on its way to the
//! engine, and wakes the engine's delivery task if that task sleeps. It is not listed again before
//! the task has found its queue empty, so that the list has each channel at most once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The list, shared by an engine and the channels with subscribers on it.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<InboxState>,
}

#[derive(Default)]
struct InboxState {
    /// The queues of the channels, in the order in which they were listed.
    listed: Vec<u64>,
    /// The delivery task, while it sleeps.
    waker: Option<Waker>,
    is_closed: bool,
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, InboxState> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a channel by its queue. Returns the delivery task if it has to be woken.
    pub(super) fn list(&self, queue_id: u64) -> Option<Waker> {
        let mut state = self.state();
        state.listed.push(queue_id);
        state.waker.take()
    }

    /// Takes the listed channels, as soon as there are any; `None` if the engine has ended.
    pub(super) fn poll_take(&self, cx: &Context<'_>) -> Poll<Option<Vec<u64>>> {
        let mut state = self.state();
        if state.is_closed {
            return Poll::Ready(None);
        }
        if state.listed.is_empty() {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Some(std::mem::take(&mut state.listed)))
    }

    /// Takes the listed channels.
    pub(super) fn take_listed(&self) -> Vec<u64> {
        std::mem::take(&mut self.state().listed)
    }

    /// Ends the delivery task.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}
