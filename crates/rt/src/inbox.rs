//! The inbox of an engine: messages from other threads.
//!
//! A message goes in under a lock, and a flag says that there is one; the engine checks the flag
//! once per turn, which costs a load. Only the message that raises the flag has to wake the engine,
//! and the poller's waker makes a system call only if the engine sleeps. The engine lowers the flag
//! under the lock, before it takes the messages: a message that comes later raises the flag again,
//! and wakes again.
//!
//! An engine that ends closes its inbox under the lock and takes the messages in it. A message is
//! therefore either in that last batch, or given back to its sender. A flag next to the lock would
//! not do: a sender that had read it in time could add its message after the engine's last check. A
//! task that stays in an inbox is neither run nor dropped, so a caller that joins it would wait
//! indefinitely.
//!
//! In the `model` module below, loom tries every order, including the orders of the end. The file
//! uses nothing of this crate, as `models/` compiles it alone, with loom's atomics.

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

#[derive(Debug)]
struct Queue<M> {
    messages: Vec<M>,
    /// The engine has taken the last messages.
    is_closed: bool,
}

/// Messages in order, and whether there are any.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    queue: Mutex<Queue<M>>,
    pending: AtomicBool,
}

impl<M> Inbox<M> {
    pub(crate) fn new() -> Inbox<M> {
        let queue = Queue { messages: Vec::new(), is_closed: false };
        Inbox { queue: Mutex::new(queue), pending: AtomicBool::new(false) }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<M>> {
        // A push or a swap leaves the list whole, wherever a panic happened.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message; returns true if the engine must be woken for it.
    ///
    /// # Errors
    ///
    /// The message, if the inbox is closed. It is dropped with nothing locked.
    pub(crate) fn push(&self, message: M) -> Result<bool, M> {
        let mut queue = self.queue();
        if queue.is_closed {
            return Err(message);
        }
        queue.messages.push(message);
        Ok(!self.pending.swap(true, Ordering::AcqRel))
    }

    /// Returns the number of messages, and of messages that there is room for.
    pub(crate) fn room(&self) -> (usize, usize) {
        let queue = self.queue();
        (queue.messages.len(), queue.messages.capacity())
    }

    /// Gives back the memory that is not needed.
    pub(crate) fn shrink(&self) {
        self.queue().messages.shrink_to_fit();
    }

    /// Returns whether there are messages.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Swaps the messages with an empty list.
    pub(crate) fn take(&self, into: &mut Vec<M>) {
        let mut queue = self.queue();
        self.pending.store(false, Ordering::Release);
        std::mem::swap(&mut queue.messages, into);
    }

    /// Like [`take`](Inbox::take), and refuses all messages from now on.
    pub(crate) fn close(&self, into: &mut Vec<M>) {
        let mut queue = self.queue();
        queue.is_closed = true;
        self.pending.store(false, Ordering::Release);
        std::mem::swap(&mut queue.messages, into);
    }
}

#[cfg(all(test, superpoll_loom))]
mod model {
    use super::*;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    /// One thread sends two messages, another thread one; the engine sleeps whenever there is none.
    /// A `Notify` stands for the poller's waker. If a message is left behind, the engine sleeps and
    /// is never woken, which loom reports as a deadlock. All orders with at most three preemptions
    /// are tried.
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
                            if inbox.push(message).unwrap() {
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

    /// The same senders while the engine checks once and then ends. Each message goes to the engine
    /// or back to its sender, once. No message stays in the inbox, and from each sender the
    /// accepted messages came before the refused ones.
    #[test]
    fn model_no_message_outlives_the_end() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let inbox = Arc::new(Inbox::new());
            let senders: Vec<_> = [(0, 2), (10, 1)]
                .into_iter()
                .map(|(first, count)| {
                    let inbox = inbox.clone();
                    thread::spawn(move || {
                        let all = first..first + count;
                        all.filter_map(|message| inbox.push(message).err()).collect::<Vec<_>>()
                    })
                })
                .collect();
            let (mut seen, mut batch) = (Vec::new(), Vec::new());
            if inbox.is_pending() {
                inbox.take(&mut batch);
                seen.append(&mut batch);
            }
            inbox.close(&mut batch);
            seen.append(&mut batch);
            for sender in senders {
                // In the order in which the sender had them.
                seen.append(&mut sender.join().unwrap());
            }
            let from = |first| seen.iter().copied().filter(move |&m| m / 10 * 10 == first);
            assert!(from(0).eq([0, 1]) && from(10).eq([10]), "in order, each once");
            assert!(!inbox.is_pending() && inbox.queue().messages.is_empty());
            assert_eq!(inbox.push(20), Err(20));
        });
    }
}
