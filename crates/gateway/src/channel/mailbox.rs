//! What waits for a subscriber who has a task.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Context, Waker};

use super::hub::Message;
use crate::config::{Channel, Slow};

/// Why a subscriber gets nothing any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// More waits for it than may.
    Slow,
    /// The channel, or the server, ends.
    Retired,
}

/// What a message costs beside its data.
const EACH: u64 = size_of::<Message>() as u64;

fn cost(message: &Message) -> u64 {
    message.data.len() as u64 + EACH
}

/// Messages for one subscriber, within the limits of its channel.
#[derive(Default)]
pub(super) struct Mailbox {
    /// What the subscriber had missed when it came, which does not count against the limits.
    replay: RefCell<VecDeque<Message>>,
    queue: RefCell<VecDeque<Message>>,
    bytes: Cell<u64>,
    end: Cell<Option<End>>,
    waker: RefCell<Option<Waker>>,
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Put {
    /// How many messages were left out for it, itself included.
    pub left_out: u64,
    /// The subscriber is disconnected because of it.
    pub disconnects: bool,
}

impl Mailbox {
    /// Begins with what was missed.
    pub fn new(replay: Vec<Message>) -> Mailbox {
        Mailbox { replay: RefCell::new(replay.into()), ..Mailbox::default() }
    }

    /// Adds a message. What does not fit is dealt with as the channel says; a single message always fits.
    pub fn put(&self, message: Message, options: &Channel) -> Put {
        let mut put = Put::default();
        if self.end.get().is_some() {
            return put;
        }
        let cost_of_it = cost(&message);
        let mut queue = self.queue.borrow_mut();
        let mut bytes = self.bytes.get();
        while !queue.is_empty() && bytes.saturating_add(cost_of_it) > options.backlog_bytes {
            match options.slow {
                Slow::DropOldest => {
                    bytes -= queue.pop_front().as_ref().map_or(0, cost);
                    put.left_out += 1;
                }
                Slow::Disconnect => {
                    put.left_out = queue.len() as u64 + 1;
                    put.disconnects = true;
                    drop(queue);
                    self.end(End::Slow);
                    return put;
                }
            }
        }
        queue.push_back(message);
        self.bytes.set(bytes + cost_of_it);
        drop(queue);
        self.wake();
        put
    }

    /// Takes the oldest message.
    pub fn take(&self) -> Option<Message> {
        if let Some(message) = self.replay.borrow_mut().pop_front() {
            return Some(message);
        }
        let message = self.queue.borrow_mut().pop_front()?;
        self.bytes.set(self.bytes.get() - cost(&message));
        Some(message)
    }

    pub fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty() && self.replay.borrow().is_empty()
    }

    /// Ends it. Who is slow does not get the rest.
    pub fn end(&self, end: End) {
        if end == End::Slow {
            self.queue.take();
            self.replay.take();
            self.bytes.set(0);
        }
        self.end.set(self.end.get().or(Some(end)));
        self.wake();
    }

    /// Whether and why it has ended. What is in it can still be taken.
    pub fn ended(&self) -> Option<End> {
        self.end.get()
    }

    /// Has this task woken when something comes, or the end.
    pub fn remember(&self, cx: &Context<'_>) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *known = Some(cx.waker().clone());
        }
    }

    fn wake(&self) {
        let waker = self.waker.borrow().clone();
        waker.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: u64, length: usize) -> Message {
        Message { id, data: vec![b'x'; length].into(), is_text: true }
    }

    fn options(slow: Slow) -> Channel {
        Channel { backlog_bytes: 10 + 3 * EACH, slow, ..Channel::default() }
    }

    fn rest(mailbox: &Mailbox) -> Vec<u64> {
        std::iter::from_fn(|| mailbox.take()).map(|message| message.id).collect()
    }

    #[test]
    fn the_oldest_are_left_out() {
        let (mailbox, options) = (Mailbox::default(), options(Slow::DropOldest));
        for id in 1..=3 {
            assert_eq!(mailbox.put(message(id, 3), &options), Put::default());
        }
        assert_eq!(mailbox.put(message(4, 5), &options).left_out, 2);
        assert_eq!(rest(&mailbox), [3, 4]);
        assert_eq!(mailbox.put(message(5, 99), &options), Put::default());
        assert_eq!(mailbox.put(message(6, 1), &options).left_out, 1);
        assert_eq!((rest(&mailbox), mailbox.ended()), (vec![6], None));
    }

    #[test]
    fn who_is_slow_is_disconnected() {
        let (mailbox, options) = (Mailbox::default(), options(Slow::Disconnect));
        assert_eq!(mailbox.put(message(1, 10 + 2 * EACH as usize), &options), Put::default());
        let put = mailbox.put(message(2, 1), &options);
        assert_eq!(put, Put { left_out: 2, disconnects: true });
        assert_eq!(mailbox.ended(), Some(End::Slow));
        assert_eq!(mailbox.put(message(3, 1), &options), Put::default());
        assert!(mailbox.is_empty());
    }

    #[test]
    fn what_has_come_before_the_end_is_kept() {
        let (mailbox, options) = (Mailbox::default(), options(Slow::Disconnect));
        mailbox.put(message(1, 1), &options);
        mailbox.end(End::Retired);
        mailbox.put(message(2, 1), &options);
        assert_eq!((rest(&mailbox), mailbox.ended()), (vec![1], Some(End::Retired)));
    }
}
