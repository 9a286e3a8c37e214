//! Back-pressure: publishers wait until messages that were published before are delivered.
//!
//! Each engine delivers published messages to its own subscribers, in turns with everything else it
//! does. Publishers on the same engine or on another one may be faster than that. So the messages
//! on their way to an engine have a bound (`queue_bytes`): while one engine has more, nothing is
//! published, and publishers stand in a line, first come, first served. A publisher by POST waits
//! for a few seconds at most and is refused then; a WebSocket is not read meanwhile.
//!
//! The messages that the publishers in the line hold count, too: beyond [`QUEUE_FACTOR`] times
//! `queue_bytes` the next publisher is refused at once.
//!
//! This module has the line. The hub decides whose turn it is (`hub.rs`).

use std::collections::VecDeque;
use std::task::{Context, Waker};

/// How many times `queue_bytes` the messages of waiting publishers may have in all.
pub(super) const QUEUE_FACTOR: u64 = 16;

/// The channel cannot take another waiting publisher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueueFull;

/// The publishers that wait, in the order in which they came.
#[derive(Default)]
pub(super) struct PublisherQueue {
    waiting: VecDeque<WaitingPublisher>,
    next: u64,
    /// The sum of the bytes that they hold.
    bytes: u64,
}

struct WaitingPublisher {
    ticket: u64,
    bytes: u64,
    waker: Waker,
}

impl PublisherQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the first one's waker.
    pub(super) fn first(&self) -> Option<Waker> {
        self.waiting.front().map(|waiting| waiting.waker.clone())
    }

    /// Returns all of their wakers.
    pub(super) fn all(&self) -> Vec<Waker> {
        self.waiting.iter().map(|waiting| waiting.waker.clone()).collect()
    }

    pub(super) fn is_first(&self, ticket: Option<u64>) -> bool {
        self.waiting.front().map(|first| first.ticket) == ticket
    }

    pub(super) fn enter(&mut self, bytes: u64, cx: &Context<'_>) -> u64 {
        let ticket = self.next;
        self.next += 1;
        self.bytes += bytes;
        self.waiting.push_back(WaitingPublisher { ticket, bytes, waker: cx.waker().clone() });
        ticket
    }

    fn index(&self, ticket: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&ticket, |waiting| waiting.ticket).ok()
    }

    pub(super) fn remember(&mut self, ticket: u64, cx: &Context<'_>) {
        if let Some(index) = self.index(ticket) {
            self.waiting[index].waker.clone_from(cx.waker());
        }
    }

    pub(super) fn leave(&mut self, ticket: u64) {
        let left = self.index(ticket).and_then(|index| self.waiting.remove(index));
        self.bytes -= left.map_or(0, |left| left.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Poll, Wake};

    use proptest::prelude::*;
    use superpoll_config::Channel;

    use super::super::hub::{Hub, PublishTurn};
    use super::super::message::{EACH, Message, cost};
    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A publisher, how often it was woken, and whether it got the answer that it has to wait.
    struct Publisher {
        turn: PublishTurn,
        woken: Arc<Count>,
        seen: usize,
    }

    fn hub(queue_bytes: u64) -> Arc<Hub> {
        Hub::new(Channel { queue_bytes, history: 1000, ..Channel::default() })
    }

    fn poll(publisher: &mut Publisher, bytes: u64) -> Poll<Result<(), QueueFull>> {
        let waker = Waker::from(publisher.woken.clone());
        publisher.seen = publisher.woken.0.load(Ordering::Relaxed);
        publisher.turn.poll(bytes, &Context::from_waker(&waker))
    }

    /// Appends a message of `length` bytes to the queue of each engine that has subscribers.
    fn enqueue(queued: &mut [u64; 2], joined: [usize; 2], length: usize) {
        for (queued, _) in queued.iter_mut().zip(joined).filter(|(_, count)| *count > 0) {
            *queued += length as u64 + EACH;
        }
    }

    proptest! {
        /// Publishers come, are asked again when they are woken, and go; engines take and deliver,
        /// are joined and left.
        #[test]
        fn publishers_proceed_in_order_within_each_engines_limit(
            steps in prop::collection::vec((0_usize..8, 0_usize..100), 1..300),
        ) {
            let hub = hub(1000);
            let queue_ids = [hub.open(&Arc::default()), hub.open(&Arc::default())];
            let mut joined = [0_usize; 2];
            let mut taken: [Vec<Message>; 2] = Default::default();
            let mut delivered: [Vec<u64>; 2] = Default::default();
            // The cost of the messages that each engine has not taken yet.
            let mut queued = [0_u64; 2];
            let mut waiting: VecDeque<Publisher> = VecDeque::new();
            let mut published = 0;
            for (kind, number) in steps {
                let which = number % 2;
                match kind {
                    0..=2 => {
                        let (turn, woken) = (PublishTurn::new(&hub), Arc::default());
                        let mut publisher = Publisher { turn, woken, seen: 0 };
                        match poll(&mut publisher, 100) {
                            Poll::Ready(Ok(())) => {
                                prop_assert!(waiting.is_empty(), "others were first");
                                published += 1;
                                prop_assert_eq!(hub.publish(vec![0; number]), Some(published));
                                enqueue(&mut queued, joined, number);
                            }
                            Poll::Pending => waiting.push_back(publisher),
                            Poll::Ready(Err(QueueFull)) => {
                                prop_assert!(waiting.len() as u64 * 100 + 100 > 1000 * QUEUE_FACTOR);
                            }
                        }
                    }
                    3 if !waiting.is_empty() => drop(waiting.remove(number % waiting.len())),
                    4 if joined[which] < 2 => {
                        hub.join(queue_ids[which], None);
                        joined[which] += 1;
                    }
                    5 if joined[which] > 0 => {
                        hub.leave(queue_ids[which]);
                        joined[which] -= 1;
                        if joined[which] == 0 {
                            queued[which] = 0;
                        }
                    }
                    6 if taken[which].is_empty() => {
                        taken[which] = hub.take_queued(queue_ids[which]);
                        queued[which] = 0;
                    }
                    7 if !taken[which].is_empty() => {
                        let rest = taken[which].split_off(taken[which].len().min(1 + number % 3));
                        let some = std::mem::replace(&mut taken[which], rest);
                        delivered[which].extend(some.iter().map(|message| message.id));
                        hub.delivered(queue_ids[which], some.iter().map(cost).sum());
                    }
                    _ => {}
                }
                // Each publisher that was woken is asked; only the first one can be let in.
                let mut index = 0;
                while index < waiting.len() {
                    let publisher = &mut waiting[index];
                    if publisher.woken.0.load(Ordering::Relaxed) == publisher.seen {
                        index += 1;
                        continue;
                    }
                    if poll(publisher, 100) == Poll::Ready(Ok(())) {
                        prop_assert_eq!(index, 0, "it was not its turn");
                        waiting.pop_front();
                        published += 1;
                        prop_assert_eq!(hub.publish(vec![0; number]), Some(published));
                        enqueue(&mut queued, joined, number);
                        index = 0;
                    } else {
                        index += 1;
                    }
                }
                // No publisher waits without a reason.
                prop_assert!(waiting.is_empty() || !hub.has_room_without_waiting());
                for which in 0..2 {
                    let on_their_way = hub.on_their_way(queue_ids[which]);
                    prop_assert!(on_their_way < 1000 + 100 + EACH);
                    if joined[which] > 0 {
                        let taken: u64 = taken[which].iter().map(cost).sum();
                        prop_assert_eq!(on_their_way, queued[which] + taken);
                    }
                }
            }
            for ids in &delivered {
                prop_assert!(ids.is_sorted_by(|one, next| one < next));
            }
            prop_assert_eq!(hub.last(), published);
        }
    }

    #[test]
    fn no_publisher_overtakes_one_that_was_woken() {
        let hub = hub(10);
        let queue_id = hub.open(&Arc::default());
        hub.join(queue_id, None);
        hub.publish("message");
        let mut publishers: [Publisher; 2] = std::array::from_fn(|_| {
            let (turn, woken) = (PublishTurn::new(&hub), Arc::default());
            Publisher { turn, woken, seen: 0 }
        });
        assert!(poll(&mut publishers[0], 7).is_pending());
        hub.delivered(queue_id, hub.take_queued(queue_id).iter().map(cost).sum());
        assert_eq!(publishers[0].woken.0.load(Ordering::Relaxed), 1);
        // There is room, and the second publisher comes before the first has had its turn.
        assert!(poll(&mut publishers[1], 7).is_pending());
        assert_eq!(poll(&mut publishers[0], 7), Poll::Ready(Ok(())));
        assert_eq!(poll(&mut publishers[1], 7), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_leaving_subscriber_releases_its_undelivered_bytes() {
        let hub = hub(10);
        let queue_id = hub.open(&Arc::default());
        hub.join(queue_id, None);
        hub.publish("message");
        assert!(!hub.has_room());
        let (turn, woken) = (PublishTurn::new(&hub), Arc::default());
        let mut publisher = Publisher { turn, woken, seen: 0 };
        assert!(poll(&mut publisher, 7).is_pending());
        hub.leave(queue_id);
        assert_eq!(publisher.woken.0.load(Ordering::Relaxed), 1);
        // The next subscriber of this engine does not pay for the previous one.
        hub.join(queue_id, None);
        assert_eq!(hub.on_their_way(queue_id), 0);
        assert_eq!(poll(&mut publisher, 7), Poll::Ready(Ok(())));
    }

    #[test]
    fn waiting_publishers_learn_that_another_server_took_over() {
        let hub = hub(10);
        let queue_id = hub.open(&Arc::default());
        hub.join(queue_id, None);
        hub.publish("message");
        let (turn, woken) = (PublishTurn::new(&hub), Arc::default());
        let mut publisher = Publisher { turn, woken, seen: 0 };
        assert!(poll(&mut publisher, 7).is_pending());
        hub.hand_over();
        assert_eq!(publisher.woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&mut publisher, 7), Poll::Ready(Ok(())));
        assert_eq!(hub.publish("late"), None);
    }

    #[test]
    fn the_publisher_queue_has_a_limit() {
        let hub = hub(10);
        let queue_id = hub.open(&Arc::default());
        hub.join(queue_id, None);
        hub.publish("message");
        let mut waiting: Vec<Publisher> = (0..17)
            .map(|_| Publisher { turn: PublishTurn::new(&hub), woken: Arc::default(), seen: 0 })
            .collect();
        let mut last = waiting.pop().unwrap();
        for publisher in &mut waiting {
            assert!(poll(publisher, 10).is_pending());
        }
        assert_eq!(poll(&mut last, 10), Poll::Ready(Err(QueueFull)));
        drop(waiting.pop());
        assert!(poll(&mut last, 10).is_pending());
    }
}
