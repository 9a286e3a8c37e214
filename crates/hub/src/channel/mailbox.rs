//! The messages that wait for a subscriber with a task.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Context, Waker};

use superpoll_config::{Channel, Slow};

use super::counters;
use super::history::Since;
use super::hub::Hub;
use super::message::{Message, cost};

/// The reason for which a subscriber gets no more messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EndReason {
    /// More bytes wait for it than may.
    Slow,
    /// The channel, or the server, ends.
    Retired,
    /// The rights of the subscriber end, as its token does.
    Expired,
    /// The rights of the channel have changed.
    Changed,
    /// An operator, or the application, ends the subscription.
    Disconnected,
    /// Another channel is in the place of this one, as the log of its messages is another one.
    Replaced,
}

impl EndReason {
    /// Whether the client gets and publishes nothing any more from then on.
    pub(super) fn takes_rights(self) -> bool {
        matches!(self, EndReason::Expired | EndReason::Changed | EndReason::Disconnected)
    }
}

/// The most bytes of the history that are taken over at a time.
const FETCHED: u64 = 64 << 10;

/// Messages for one subscriber, within the limits of its channel.
#[derive(Default)]
pub(super) struct Mailbox {
    /// The messages that the subscriber had missed when it came, as far as they were taken from the
    /// history. They do not count against the limits.
    replay: RefCell<VecDeque<Message>>,
    /// The rest of them: the next message and the last one. They stay in the history until they are
    /// needed: otherwise a subscriber that reads nothing would hold all of a history that other
    /// subscribers have long left behind.
    rest: Cell<Option<(u64, u64)>>,
    queue: RefCell<VecDeque<Message>>,
    bytes: Cell<u64>,
    /// Whether messages before the first of the replay, or of the queue, were left out.
    gap_in_replay: Cell<bool>,
    gap_in_queue: Cell<bool>,
    end: Cell<Option<EndReason>>,
    waker: RefCell<Option<Waker>>,
}

/// A message that was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Taken {
    pub message: Message,
    /// Messages before it were left out.
    pub is_after_gap: bool,
}

/// The result of adding a message.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Put {
    /// How many messages were left out for it, itself included.
    pub left_out: u64,
    /// The subscriber is disconnected because of it.
    pub disconnects: bool,
}

impl Mailbox {
    /// Begins with the messages that were missed.
    pub(super) fn new(since: Since, options: &Channel) -> Mailbox {
        let Since { mut messages, last, .. } = since;
        let mut sum = 0;
        let fits = messages.iter().take_while(|message| {
            sum += cost(message);
            sum <= options.backlog_bytes
        });
        let count = fits.count().max(1);
        let rest = messages.get(count).map(|message| (message.id, last));
        messages.truncate(count);
        let (replay, rest) = (RefCell::new(messages.into()), Cell::new(rest));
        Mailbox { replay, rest, ..Mailbox::default() }
    }

    /// Adds a message. If it does not fit, the channel's treatment of slow subscribers applies; a
    /// single message always fits.
    pub(super) fn put(&self, message: Message, options: &Channel) -> Put {
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
                    self.gap_in_queue.set(true);
                }
                Slow::Disconnect => {
                    put.left_out = queue.len() as u64 + 1;
                    put.disconnects = true;
                    drop(queue);
                    self.end(EndReason::Slow);
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

    /// Takes more of the missed messages from the history. Messages that are gone from there were
    /// left out for a slow subscriber.
    fn fetch(&self, hub: &Hub) {
        let Some((from, last)) = self.rest.get() else { return };
        let kept = hub.kept(from, last, FETCHED);
        let first = kept.messages.first().map_or(last + 1, |message| message.id);
        let next = kept.messages.last().map_or(last, |message| message.id) + 1;
        let counters = hub.counters();
        counters::count(&counters.left_out, first - from);
        self.rest.set((next <= last).then_some((next, last)));
        if first > from && kept.slow == Slow::Disconnect {
            counters::count(&counters.disconnected, 1);
            return self.end(EndReason::Slow);
        }
        if first > from {
            self.gap_in_replay.set(true);
        }
        self.replay.borrow_mut().extend(kept.messages);
    }

    /// Notes that messages before the next one are not kept any more.
    pub(super) fn note_gap(&self) {
        self.gap_in_replay.set(true);
    }

    /// Takes the oldest message.
    pub(super) fn take(&self, hub: &Hub) -> Option<Taken> {
        if self.replay.borrow().is_empty() {
            self.fetch(hub);
        }
        if let Some(message) = self.replay.borrow_mut().pop_front() {
            return Some(Taken { message, is_after_gap: self.gap_in_replay.take() });
        }
        let message = self.queue.borrow_mut().pop_front()?;
        self.bytes.set(self.bytes.get() - cost(&message));
        // Neither may stay for the message after this one.
        let gaps = [self.gap_in_replay.take(), self.gap_in_queue.take()];
        Some(Taken { message, is_after_gap: gaps.contains(&true) })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
            && self.replay.borrow().is_empty()
            && self.rest.get().is_none()
    }

    /// Ends the mailbox. A subscriber does not get the rest if it is slow, or has no right to it
    /// any more.
    pub(super) fn end(&self, end: EndReason) {
        if end != EndReason::Retired {
            self.queue.take();
            self.replay.take();
            self.rest.set(None);
            self.bytes.set(0);
        }
        self.end.set(self.end.get().or(Some(end)));
        self.wake();
    }

    /// Returns the reason for which the mailbox has ended, if it has. The messages in it can still
    /// be taken.
    pub(super) fn ended(&self) -> Option<EndReason> {
        self.end.get()
    }

    /// Remembers a task, to be woken by the next message, or by the end.
    pub(super) fn remember(&self, cx: &Context<'_>) {
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
    use std::sync::atomic::Ordering;

    use super::super::Cursor;
    use super::super::message::EACH;
    use super::*;

    fn message(id: u64, length: usize) -> Message {
        Message::new(id, vec![b'x'; length], true)
    }

    fn options(slow: Slow) -> Channel {
        Channel { backlog_bytes: 10 + 3 * EACH, slow, ..Channel::default() }
    }

    fn rest(mailbox: &Mailbox) -> Vec<u64> {
        let hub = Hub::new(Channel::default());
        std::iter::from_fn(|| mailbox.take(&hub)).map(|taken| taken.message.id).collect()
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

    /// Whether a message is behind a gap does not depend on numbers alone: a subscriber may not
    /// be meant to get all messages.
    #[test]
    fn each_gap_is_reported_once_before_the_message_behind_it() {
        let gaps = |mailbox: &Mailbox, hub: &Hub| -> Vec<(u64, bool)> {
            std::iter::from_fn(|| mailbox.take(hub))
                .map(|one| (one.message.id, one.is_after_gap))
                .collect()
        };
        let (mailbox, options) = (Mailbox::default(), options(Slow::DropOldest));
        let hub = Hub::new(Channel::default());
        for id in [2, 4, 6] {
            mailbox.put(message(id, 3), &options);
        }
        assert_eq!(gaps(&mailbox, &hub), [(2, false), (4, false), (6, false)]);
        for id in 7..=11 {
            mailbox.put(message(id, 3), &options);
        }
        assert_eq!(gaps(&mailbox, &hub), [(9, true), (10, false), (11, false)]);
        mailbox.note_gap();
        for id in 12..=16 {
            mailbox.put(message(id, 3), &options);
        }
        assert_eq!(gaps(&mailbox, &hub), [(14, true), (15, false), (16, false)]);
        // Of the history.
        let options = Channel { history: 4, backlog_bytes: 1, slow: Slow::DropOldest, ..options };
        let hub = Hub::new(options.clone());
        let publish = |count| (0..count).for_each(|_| assert!(hub.publish("x").is_some()));
        publish(4);
        let mailbox = Mailbox::new(hub.since(Some(Cursor { id: 0, epoch: None })), &options);
        publish(2);
        assert_eq!(gaps(&mailbox, &hub), [(1, false), (3, true), (4, false)]);
    }

    #[test]
    fn a_slow_subscriber_is_disconnected() {
        let (mailbox, options) = (Mailbox::default(), options(Slow::Disconnect));
        assert_eq!(mailbox.put(message(1, 10 + 2 * EACH as usize), &options), Put::default());
        let put = mailbox.put(message(2, 1), &options);
        assert_eq!(put, Put { left_out: 2, disconnects: true });
        assert_eq!(mailbox.ended(), Some(EndReason::Slow));
        assert_eq!(mailbox.put(message(3, 1), &options), Put::default());
        assert!(mailbox.is_empty());
    }

    #[test]
    fn missed_messages_stay_in_the_history_until_they_are_taken() {
        for slow in [Slow::Disconnect, Slow::DropOldest] {
            let options =
                Channel { history: 100, backlog_bytes: 10 * 1100, slow, ..Channel::default() };
            let hub = Hub::new(options.clone());
            let publish = |count: u64| {
                for _ in 0..count {
                    hub.publish(vec![b'x'; 1000]);
                }
            };
            let all = Some(Cursor { id: 0, epoch: None });
            publish(100);
            // A subscriber that reads gets all messages.
            let mailbox = Mailbox::new(hub.since(all), &options);
            assert!(mailbox.replay.borrow().len() <= 10);
            let ids: Vec<u64> =
                std::iter::from_fn(|| mailbox.take(&hub)).map(|one| one.message.id).collect();
            assert_eq!(ids, (1..=100).collect::<Vec<_>>());
            assert!(mailbox.is_empty());
            // So does a subscriber that is behind by no more than the backlog.
            let mailbox = Mailbox::new(hub.since(all), &options);
            let held = mailbox.replay.borrow().len() as u64;
            publish(held);
            for id in 1..=100 {
                assert_eq!(mailbox.take(&hub).map(|one| one.message.id), Some(id));
            }
            // For a subscriber that is further behind, some messages are gone.
            let mailbox = Mailbox::new(hub.since(all), &options);
            publish(held + 10);
            let ids: Vec<u64> =
                std::iter::from_fn(|| mailbox.take(&hub)).map(|one| one.message.id).collect();
            let first = hub.last() - 100 - held - 9 - held;
            match slow {
                Slow::Disconnect => {
                    assert_eq!(ids, (first + held..first + 2 * held).collect::<Vec<_>>());
                    assert_eq!(mailbox.ended(), Some(EndReason::Slow));
                }
                Slow::DropOldest => {
                    assert_eq!((ids.len(), mailbox.ended()), (90, None));
                    assert_eq!(hub.counters().left_out.load(Ordering::Relaxed), 10);
                }
            }
        }
    }

    #[test]
    fn nothing_is_lost_or_doubled_where_the_history_ends_and_new_messages_begin() {
        let options = Channel { history: 200, backlog_bytes: 10 * 1100, ..Channel::default() };
        for behind in [0, 1, 5, 9] {
            let hub = Hub::new(options.clone());
            for _ in 0..100 {
                hub.publish(vec![b'x'; 1000]);
            }
            let since = hub.since(Some(Cursor { id: 0, epoch: None }));
            let mailbox = Mailbox::new(since, &options);
            assert!(mailbox.rest.get().is_some());
            for id in 101..=100 + behind {
                hub.publish(vec![b'x'; 1000]);
                assert_eq!(mailbox.put(message(id, 1000), &options), Put::default());
            }
            let ids: Vec<u64> =
                std::iter::from_fn(|| mailbox.take(&hub)).map(|one| one.message.id).collect();
            assert_eq!(ids, (1..=100 + behind).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_subscriber_whose_rights_end_does_not_get_the_rest() {
        for reason in [EndReason::Expired, EndReason::Changed, EndReason::Disconnected] {
            let (mailbox, options) = (Mailbox::default(), options(Slow::Disconnect));
            mailbox.put(message(1, 1), &options);
            mailbox.end(reason);
            assert_eq!((rest(&mailbox), mailbox.ended()), (vec![], Some(reason)));
        }
    }

    #[test]
    fn messages_before_the_end_are_kept() {
        let (mailbox, options) = (Mailbox::default(), options(Slow::Disconnect));
        mailbox.put(message(1, 1), &options);
        mailbox.end(EndReason::Retired);
        mailbox.put(message(2, 1), &options);
        assert_eq!((rest(&mailbox), mailbox.ended()), (vec![1], Some(EndReason::Retired)));
    }
}
