//! The inbox of an engine: messages from other threads.
//!
//! A message goes in under a lock, and a flag says that there is one; the engine looks at the flag once
//! per turn, which costs a load. Only the message that raises the flag has to wake the engine, and the
//! poller's waker makes a system call only if the engine sleeps. The flag is lowered under the lock,
//! before the messages are taken: one that comes later raises it again, and wakes again. `model` below
//! has loom try every order.

use std::sync::PoisonError;

#[cfg(superpoll_loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};
#[cfg(not(superpoll_loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

/// Messages in order, and whether there are any.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    messages: Mutex<Vec<M>>,
    pending: AtomicBool,
}

impl<M> Inbox<M> {
    pub fn new() -> Inbox<M> {
        Inbox { messages: Mutex::new(Vec::new()), pending: AtomicBool::new(false) }
    }

    fn messages(&self) -> MutexGuard<'_, Vec<M>> {
        // A push or a swap leaves the list whole, whatever panicked.
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message; true if the engine has to be woken for it.
    pub fn push(&self, message: M) -> bool {
        let mut messages = self.messages();
        messages.push(message);
        !self.pending.swap(true, Ordering::AcqRel)
    }

    /// Whether there are messages.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Swaps the messages with an empty list.
    pub fn take(&self, into: &mut Vec<M>) {
        let mut messages = self.messages();
        self.pending.store(false, Ordering::Release);
        std::mem::swap(&mut *messages, into);
    }
}

#[cfg(all(test, superpoll_loom))]
mod model {
    use super::*;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    /// One thread sends two messages, another one; the engine sleeps whenever there is none. A `Notify`
    /// stands for the poller's waker: a message that is left behind is a sleep that nobody ends, which
    /// loom reports as a deadlock. All orders with at most three preemptions are tried.
    #[test]
    fn model_no_message_is_left_behind() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let inbox = Arc::new(Inbox::new());
            let waker = Arc::new(Notify::new());
            let senders: Vec<_> = [(0, 2), (10, 1)]
                .into_iter()
                .map(|(first, count)| {
                    let (inbox, waker) = (inbox.clone(), waker.clone());
                    thread::spawn(move || {
                        for message in first..first + count {
                            if inbox.push(message) {
                                waker.notify();
                            }
                        }
                    })
                })
                .collect();
            let (mut seen, mut batch) = (Vec::new(), Vec::new());
            while seen.len() < 3 {
                while !inbox.is_pending() {
                    waker.wait();
                }
                inbox.take(&mut batch);
                seen.append(&mut batch);
            }
            for sender in senders {
                sender.join().unwrap();
            }
            let from = |first| seen.iter().copied().filter(move |&m| m / 10 * 10 == first);
            assert!(from(0).eq([0, 1]) && from(10).eq([10]), "in order, each once");
        });
    }
}
