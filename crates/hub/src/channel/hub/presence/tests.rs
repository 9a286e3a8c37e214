//! Tests of join and leave events.

use proptest::prelude::*;
use serde_json::Value;
use superpoll_config::Channel;

use super::*;
use crate::channel::hub::NotPublished;
use crate::channel::inbox::Inbox;
use crate::channel::message::{Message, cost};

fn options() -> Channel {
    Channel { presence: true, history: 100_000, ..Channel::default() }
}

/// The events of a channel in order: type, number, subject, and how many were left out.
type Event = (String, u64, Option<String>, u64);

fn event(message: &Message) -> Event {
    let json: Value = serde_json::from_slice(&message.data).unwrap();
    let sub = json["sub"].as_str().map(str::to_owned);
    let left_out = json["left_out"].as_u64().unwrap_or(0);
    (message.event().unwrap().to_owned(), json["subscribers"].as_u64().unwrap(), sub, left_out)
}

fn events(hub: &Hub) -> Vec<Event> {
    events_after(hub, 0)
}

fn events_after(hub: &Hub, id: u64) -> Vec<Event> {
    let all = hub.since(Some(Cursor { id, epoch: None }));
    assert!(!all.missed);
    all.messages.iter().filter(|message| message.event().is_some()).map(event).collect()
}

fn told(change: &str, number: u64, sub: Option<&str>) -> Event {
    (change.to_owned(), number, sub.map(str::to_owned), 0)
}

#[test]
fn everyone_is_told_who_comes_and_goes() {
    let hub = Hub::new(options());
    let inboxes: [Arc<Inbox>; 2] = Default::default();
    let (one, other) = (hub.open(&inboxes[0]), hub.open(&inboxes[1]));
    hub.enter(one, None, Some("ann"));
    hub.enter(other, None, None);
    // A long-poll is not told of.
    hub.join(one, None);
    hub.leave(one);
    hub.exit(one, Some("ann"), true);
    hub.exit(other, None, false);
    let expected =
        [told("join", 1, Some("ann")), told("join", 2, None), told("leave", 1, Some("ann"))];
    assert_eq!(events(&hub), expected);
    // Each engine has the events since its first subscriber came, that one's own included.
    assert!(hub.take_queued(one).is_empty());
    let hub = Hub::new(options());
    let queue = hub.open(&inboxes[0]);
    hub.enter(queue, None, None);
    let own: Vec<Event> = hub.take_queued(queue).iter().map(event).collect();
    assert_eq!(own, [told("join", 1, None)]);
}

#[test]
fn without_the_option_no_one_is_told() {
    let hub = Hub::new(Channel::default());
    let queue = hub.open(&Arc::default());
    hub.enter(queue, None, Some("ann"));
    hub.exit(queue, Some("ann"), true);
    assert_eq!((hub.last(), hub.subscribers()), (0, 0));
}

#[test]
fn only_the_server_publishes_these_types() {
    let draft = |event: &str| {
        let meta = Meta { event: Some(event.to_owned()), ..Meta::default() };
        Draft { meta: Some(Arc::new(meta)), ..Draft::new("x".into()) }
    };
    let hub = Hub::new(options());
    for event in ["join", "leave"] {
        assert_eq!(hub.publish_as(draft(event)).unwrap_err(), NotPublished::Reserved);
    }
    assert!(hub.publish_as(draft("joined")).is_ok());
    hub.change(Channel::default());
    assert!(hub.publish_as(draft("join")).is_ok());
}

#[test]
fn a_flood_takes_no_more_memory_than_a_publisher_and_the_number_is_right_in_the_end() {
    let queue_bytes = 4096;
    let hub = Hub::new(Channel { queue_bytes, ..options() });
    let queue = hub.open(&Arc::default());
    for number in 1..=5_000 {
        hub.enter(queue, None, None);
        let most = queue_bytes + 512;
        assert!(hub.on_their_way(queue) < most, "{} after {number}", hub.on_their_way(queue));
    }
    let before = events(&hub).len();
    assert!((10..100).contains(&before), "{before}");
    // The engine delivers.
    let taken = hub.take_queued(queue).iter().map(cost).sum();
    hub.delivered(queue, taken);
    let all = events(&hub);
    let left_out = 5_000 - before as u64;
    assert_eq!(all.last().unwrap(), &("join".to_owned(), 5_000, None, left_out));
    assert_eq!(all.len(), before + 1);
    // It is told once.
    hub.delivered(queue, 0);
    assert_eq!(events(&hub).len(), all.len());
}

/// Subscribers come and go on several threads. Each number differs by one from the number before.
#[test]
fn numbers_and_order_are_right_with_several_engines() {
    let hub = Hub::new(Channel { queue_bytes: 1 << 30, ..options() });
    let threads = 4;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let hub = &hub;
            scope.spawn(move || {
                let queue = hub.open(&Arc::default());
                let mut here = 0;
                for step in 0..2_000_u32 {
                    if here > 0 && step.wrapping_mul(2_654_435_761) >> 31 == thread % 2 {
                        hub.exit(queue, Some("one"), true);
                        here -= 1;
                    } else {
                        hub.enter(queue, None, Some("one"));
                        here += 1;
                    }
                }
                for _ in 0..here {
                    hub.exit(queue, Some("one"), true);
                }
            });
        }
    });
    let mut before = 0;
    let all = events(&hub);
    assert!(all.len() >= 8_000);
    for (change, number, ..) in all {
        let expected = if change == "join" { before + 1 } else { before - 1 };
        assert_eq!(number, expected);
        before = number;
    }
    assert_eq!(before, 0);
}

/// A channel as a successor gets it, with the messages of another.
fn succeed(hub: &Hub) -> Arc<Hub> {
    let messages = hub.since(Some(Cursor { id: 0, epoch: None })).messages;
    let next = Hub::restore("/c".into(), hub.epoch(), messages);
    next.change(options());
    next
}

#[test]
fn a_successor_tells_only_of_subscribers_that_were_lost() {
    let hub = Hub::new(options());
    let queue = hub.open(&Arc::default());
    for _ in 0..3 {
        hub.enter(queue, None, None);
    }
    for lost in 0..=3_u64 {
        let next = succeed(&hub);
        let queue = next.open(&Arc::default());
        for _ in lost..3 {
            next.join(queue, None);
            next.keep_present(queue);
        }
        assert_eq!(next.last(), 3);
        // Those that are still to come are counted.
        next.enter(queue, None, Some("new"));
        assert_eq!(events(&next).last().unwrap(), &told("join", 4, Some("new")));
        next.finish_gathering();
        let all = events(&next);
        match lost {
            0 => assert_eq!(all.len(), 4),
            _ => {
                assert_eq!(all.last().unwrap(), &("leave".to_owned(), 4 - lost, None, lost));
                assert_eq!(all.len(), 5);
            }
        }
        next.exit(queue, Some("new"), true);
        assert_eq!(events(&next).last().unwrap(), &told("leave", 3 - lost, Some("new")));
    }
}

#[test]
fn a_successor_that_does_not_know_the_number_tells_it_when_all_have_come() {
    let hub = Hub::new(Channel { presence: false, ..options() });
    hub.publish("x");
    let next = succeed(&hub);
    let queue = next.open(&Arc::default());
    next.enter(queue, None, Some("new"));
    next.join(queue, None);
    next.keep_present(queue);
    assert!(events(&next).is_empty());
    next.finish_gathering();
    assert_eq!(events(&next), [("join".to_owned(), 2, None, 1)]);
}

#[test]
fn nothing_is_told_once_another_server_goes_on() {
    let hub = Hub::new(options());
    let queue = hub.open(&Arc::default());
    hub.enter(queue, None, None);
    hub.hand_over();
    hub.exit(queue, None, true);
    hub.delivered(queue, 0);
    assert_eq!(hub.last(), 1);
}

proptest! {
    /// Against a count. Whatever is left out, every event has the right number, and what was left
    /// out is accounted for.
    #[test]
    fn every_number_is_right(steps in prop::collection::vec((0..3_usize, 0..4_u8), 1..200)) {
        let hub = Hub::new(Channel { queue_bytes: 300, ..options() });
        let queues: Vec<u64> = (0..3).map(|_| hub.open(&Arc::default())).collect();
        let mut here = [0_u64; 3];
        let (mut changes, mut accounted, mut seen) = (0, 0, 0);
        for (at, step) in steps {
            let is_change = match step {
                0 | 1 => {
                    hub.enter(queues[at], None, Some("a"));
                    here[at] += 1;
                    true
                }
                2 if here[at] > 0 => {
                    hub.exit(queues[at], Some("a"), true);
                    here[at] -= 1;
                    true
                }
                _ => {
                    let taken = hub.take_queued(queues[at]).iter().map(cost).sum();
                    hub.delivered(queues[at], taken);
                    false
                }
            };
            changes += u64::from(is_change);
            for (_, number, sub, left_out) in &events_after(&hub, seen) {
                prop_assert_eq!(*number, here.iter().sum::<u64>());
                // One of its own has no subject, and tells of no further subscriber.
                accounted += left_out + u64::from(sub.is_some());
            }
            seen = hub.last();
        }
        for queue in &queues {
            let taken = hub.take_queued(*queue).iter().map(cost).sum();
            hub.delivered(*queue, taken);
        }
        accounted += events_after(&hub, seen).iter().map(|(.., left_out)| left_out).sum::<u64>();
        prop_assert_eq!(accounted, changes);
    }
}
