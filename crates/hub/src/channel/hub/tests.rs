//! Tests of the channel itself.

use proptest::prelude::*;

use super::super::message::{Meta, Update};
use super::*;

fn hub(history: usize) -> Arc<Hub> {
    Hub::new(Channel { history, ..Channel::default() })
}

fn at(id: u64) -> Option<Cursor> {
    Some(Cursor { id, epoch: None })
}

fn taken(hub: &Hub, queue_id: u64) -> Vec<u64> {
    hub.take_queued(queue_id).iter().map(|one| one.id).collect()
}

#[test]
fn valid_utf8_is_published_as_text() {
    let hub = hub(9);
    assert_eq!(hub.publish("ä"), Some(1));
    assert_eq!(hub.publish(&b"\xe4"[..]), Some(2));
    assert_eq!(hub.publish(""), Some(3));
    let found: Vec<bool> = hub.since(at(0)).messages.iter().map(|one| one.is_text).collect();
    assert_eq!(found, [true, false, true]);
}

#[test]
fn an_id_from_before_a_restart_counts_as_missed() {
    let hub = hub(9);
    hub.publish("a");
    let epoch = Some(hub.epoch());
    assert!(!hub.since(Some(Cursor { id: 1, epoch })).missed);
    let other = Some(hub.epoch() - 1);
    let since = hub.since(Some(Cursor { id: 1, epoch: other }));
    assert!(since.missed && since.messages.len() == 1);
    // The subscriber has read more than there ever was.
    let since = hub.since(at(2));
    assert!(since.missed && since.messages.len() == 1);
}

#[test]
fn nothing_is_dropped_while_subscribers_of_another_server_are_to_come() {
    let kept = |hub: &Hub| hub.since(at(0)).messages.len();
    for history in [0, 1, 3] {
        let options = Channel { history, ..Channel::default() };
        let before = |id| Message::new(id, "before", true);
        let hub = Hub::restore("/c".into(), 7, vec![before(1), before(2)]);
        hub.change(options.clone());
        for _ in 0..5 {
            hub.publish("meanwhile");
        }
        assert_eq!((kept(&hub), hub.since(at(0)).missed), (7, false), "history {history}");
        hub.finish_gathering();
        assert_eq!(kept(&hub), history);
        hub.publish("after");
        assert_eq!(kept(&hub), history);
        // Not indefinitely, though.
        let hub = Hub::restore("/c".into(), 7, Vec::new());
        hub.change(options);
        for _ in 0..20 {
            hub.publish(vec![b'x'; 1 << 20]);
        }
        assert_eq!(kept(&hub), history);
    }
}

/// An update of Mercure can have much more of topics than of data.
#[test]
fn what_is_gathered_counts_with_its_topics() {
    let hub = Hub::restore("/c".into(), 7, Vec::new());
    hub.change(Channel { history: 3, ..Channel::default() });
    for _ in 0..20 {
        let update = Update { topics: vec!["x".repeat(1 << 20)], ..Update::default() };
        let meta = Meta { update: Some(Box::new(update)), ..Meta::default() };
        let draft = Draft { meta: Some(Arc::new(meta)), ..Draft::new(Bytes::new()) };
        assert!(hub.publish_as(draft).is_ok());
    }
    assert_eq!(hub.since(at(0)).messages.len(), 3);
}

#[test]
fn an_engine_without_subscribers_gets_no_messages() {
    let hub = hub(9);
    let inboxes: [Arc<Inbox>; 2] = Default::default();
    let (one, other) = (hub.open(&inboxes[0]), hub.open(&inboxes[1]));
    hub.join(one, None);
    hub.publish("a");
    hub.publish("b");
    assert_eq!(inboxes.each_ref().map(|inbox| inbox.take_listed()), [vec![one], vec![]]);
    assert_eq!(taken(&hub, one), [1, 2]);
    assert!(taken(&hub, other).is_empty());
    hub.publish("c");
    hub.leave(one);
    assert!(taken(&hub, one).is_empty());
    hub.close(one);
    assert!(taken(&hub, one).is_empty());
}

#[test]
fn a_channel_is_listed_once_until_its_queue_was_found_empty() {
    let (hub, inbox) = (hub(9), Arc::<Inbox>::default());
    let queue_id = hub.open(&inbox);
    hub.join(queue_id, None);
    hub.publish("a");
    hub.publish("b");
    assert_eq!(inbox.take_listed(), [queue_id]);
    hub.publish("c");
    assert_eq!((inbox.take_listed(), taken(&hub, queue_id)), (vec![], vec![1, 2, 3]));
    hub.publish("d");
    assert_eq!((inbox.take_listed(), taken(&hub, queue_id)), (vec![], vec![4]));
    assert!(taken(&hub, queue_id).is_empty());
    hub.publish("e");
    assert_eq!((inbox.take_listed(), taken(&hub, queue_id)), (vec![queue_id], vec![5]));
}

proptest! {
    /// Against a list of all messages that were ever published.
    #[test]
    fn the_history_is_the_end_of_the_published_messages(
        steps in prop::collection::vec((0_usize..6, 0_usize..8, 0_u64..40), 0..60),
    ) {
        let hub = hub(3);
        let (mut all, mut kept, mut history) = (Vec::new(), 0_usize, 3_usize);
        for (kind, limit, after) in steps {
            match kind {
                0 => {
                    history = limit;
                    kept = kept.min(history);
                    hub.change(Channel { history, ..Channel::default() });
                }
                _ => {
                    let data = format!("message {}", all.len());
                    all.push(data.clone());
                    kept = (kept + 1).min(history);
                    prop_assert_eq!(hub.publish(data), Some(all.len() as u64));
                }
            }
            let last = all.len() as u64;
            let since = hub.since(at(after));
            let begin = if after <= last { after as usize } else { 0 };
            let oldest = all.len() - kept;
            prop_assert_eq!(since.last, last);
            prop_assert_eq!(since.missed, after > last || begin < oldest);
            let found: Vec<(u64, &[u8])> =
                since.messages.iter().map(|one| (one.id, &one.data[..])).collect();
            let expected: Vec<(u64, &[u8])> = (begin.max(oldest)..all.len())
                .map(|index| (index as u64 + 1, all[index].as_bytes()))
                .collect();
            prop_assert_eq!(found, expected);
            let now = hub.since(None);
            prop_assert_eq!(now, Since { messages: vec![], missed: false, last });
        }
    }
}
