//! Wakers that are taken out of their places first and called afterwards.

use std::task::Waker;

use crate::callbacks;

/// The wakers to call, taken out so that nothing is borrowed while they are called.
#[derive(Debug, Default)]
pub(crate) struct WakeList {
    /// Nearly always the only one.
    pub first: Option<Waker>,
    /// The other wakers.
    pub more: Vec<Waker>,
}

impl WakeList {
    /// Adds a waker.
    #[inline]
    pub(crate) fn push(&mut self, waker: Waker) {
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            self.more.push(waker);
        }
    }

    /// Calls the wakers.
    #[inline]
    pub(crate) fn wake(self) {
        if let Some(waker) = self.first {
            callbacks::wake(waker);
        }
        if !self.more.is_empty() {
            self.more.into_iter().for_each(callbacks::wake);
        }
    }
}
