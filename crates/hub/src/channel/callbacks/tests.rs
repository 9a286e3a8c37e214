//! Tests of what an application is told.

use std::collections::HashMap;

use futures_lite::future::block_on;
use superpoll_config::Channel;

use super::*;
use crate::channel::history::Since;
use crate::channel::hub::Hub;
use crate::channel::message::{Draft, Meta};
use crate::channel::presence::User;
use crate::channel::route_parts::RouteParts;

#[derive(Default)]
struct Records(Mutex<HashMap<u64, Vec<u8>>>);

impl RecordStore for Records {
    fn keep(&self, space: u64, id: u64, bytes: &[u8]) {
        assert_eq!(space, CALLBACKS);
        let mut records = self.0.lock().unwrap();
        match bytes {
            [] => drop(records.remove(&id)),
            bytes => drop(records.insert(id, bytes.to_vec())),
        }
    }

    fn trim(&self, _: u64, _: u64) {}

    fn has_room(&self) -> bool {
        true
    }
}

fn rule(events: &[CallbackEvent]) -> Option<Arc<CallbackRule>> {
    Some(Arc::new(CallbackRule { events: events.to_vec(), ..CallbackRule::default() }))
}

/// A channel, and the events of its route.
fn channel(events: &[CallbackEvent]) -> (Arc<Hub>, Arc<Callbacks>) {
    let options = Channel {
        presence: true,
        presence_grace: Duration::ZERO,
        callbacks: rule(events),
        ..Channel::default()
    };
    let parts = RouteParts::new("a.example/rooms/{room}".to_owned(), u64::MAX);
    (Hub::in_route("/rooms/1".into(), Arc::new(options), parts.clone()), parts.callbacks.clone())
}

fn batch(callbacks: &Callbacks) -> (Batch, Vec<Value>) {
    let batch = block_on(poll_fn(|cx| callbacks.poll_batch(cx)));
    let json: Value = serde_json::from_slice(&batch.body).unwrap();
    (batch, json["events"].as_array().unwrap().clone())
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

fn user(name: &str) -> User {
    User { name: name.into(), info: Some("[7]".into()) }
}

#[test]
fn the_application_learns_of_users_and_messages_in_their_order() {
    let all = [&CallbackEvent::OF_USERS[..], &[CallbackEvent::Published]].concat();
    let (hub, callbacks) = channel(&all);
    let queue = hub.open(&Arc::default());
    hub.enter(queue, None, user("ann"));
    hub.enter(queue, None, user("bob"));
    let meta = Meta { event: Some("news".to_owned()), ..Meta::default() };
    hub.publish_as(Draft { meta: meta.shared(), ..Draft::new("hi".into()) }).unwrap();
    hub.publish(vec![255]);
    for name in ["ann", "bob"] {
        hub.exit(queue, &name.into(), true);
        hub.end_graces(superpoll_rt::time::now() + LOOK);
    }
    let (first, events) = batch(&callbacks);
    let expected =
        ["joined", "occupied", "joined", "published", "published", "left", "left", "empty"];
    assert_eq!(names(&events), expected);
    let epoch = hub.epoch();
    let mut joined = events[0].clone();
    assert!(joined["at"].take().as_u64() > Some(1_700_000_000_000));
    let expected = json!({
        "id": format!("{epoch:x}-1-joined"), "event": "joined", "channel": "/rooms/1",
        "user": "ann", "info": [7], "users": 1, "at": null,
    });
    assert_eq!(joined, expected);
    assert_eq!(events[3]["data"], "hi");
    assert_eq!((&events[3]["type"], &events[3]["message"]), (&json!("news"), &json!(3)));
    assert_eq!((&events[4]["base64"], events[4].get("type")), (&json!("/w=="), None));
    // Until they were taken, they are told again, with the same ids.
    assert_eq!(batch(&callbacks).1, events);
    callbacks.were_told(&first);
    assert_eq!(callbacks.waiting(), (0, 0));
    // What is not wanted is not told.
    let (hub, callbacks) = channel(&[CallbackEvent::Empty]);
    let queue = hub.open(&Arc::default());
    hub.enter(queue, None, user("ann"));
    hub.publish("hi");
    assert_eq!(callbacks.waiting(), (0, 0));
}

#[test]
fn the_queue_is_bounded_and_the_application_learns_what_it_lacks() {
    let (hub, callbacks) = channel(&[CallbackEvent::Published]);
    for _ in 0..MOST + 7 {
        hub.publish("x");
    }
    assert_eq!(callbacks.waiting(), (MOST, 7));
    let mut told = 0;
    loop {
        let (first, events) = batch(&callbacks);
        callbacks.were_told(&first);
        told += first.count;
        assert!(first.count <= BATCH);
        if let Some(lost) = events.last().filter(|event| event["event"] == "lost") {
            assert_eq!((told, &lost["count"]), (MOST, &json!(7)));
            break;
        }
    }
    assert_eq!(callbacks.waiting(), (0, 0));
    let large = "x".repeat(MOST_BYTES / 2);
    for _ in 0..3 {
        hub.publish(large.clone());
    }
    assert_eq!(callbacks.waiting(), (1, 2), "their bytes are bounded as well");
    assert_eq!(batch(&callbacks).0.count, 1);
}

#[test]
fn a_successor_tells_what_is_left_and_after_a_crash_the_last_event_again() {
    let (hub, callbacks) = channel(&[CallbackEvent::Published]);
    hub.publish("before");
    let records: Arc<Records> = Arc::default();
    callbacks.record_in(records.clone());
    hub.publish("one");
    hub.publish("two");
    let (first, _) = batch(&callbacks);
    callbacks.were_told(&Batch { count: 1, ..first });
    callbacks.hand_over();
    assert_eq!(callbacks.waiting(), (0, 0));
    let mut left: Vec<(u64, CallbackRecord)> = records
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|(id, bytes)| (*id, CallbackRecord::decode(bytes).unwrap()))
        .collect();
    left.sort_by_key(|(id, _)| *id);
    let other = CallbackRecord { route: "b.example/".to_owned(), json: Bytes::new() };
    left.push((u64::MAX >> 1, other));
    let Since { messages, .. } = hub.since(Some(crate::channel::Cursor { id: 0, epoch: None }));
    let next = Hub::restore("/rooms/1".into(), hub.epoch(), messages);
    let parts = RouteParts::new("a.example/rooms/{room}".to_owned(), u64::MAX);
    next.belong_to(&parts);
    next.change(hub.options());
    parts.callbacks.restore(&left);
    next.tell_last_again();
    let (last, events) = batch(&parts.callbacks);
    let data: Vec<&str> = events.iter().map(|event| event["data"].as_str().unwrap()).collect();
    assert_eq!(data, ["one", "two", "two"]);
    assert_eq!(events[1]["id"], events[2]["id"], "it is the same event");
    parts.callbacks.record_in(records.clone());
    parts.callbacks.were_told(&last);
    assert!(records.0.lock().unwrap().is_empty());
}

#[test]
fn one_task_has_the_turn_and_the_next_one_gets_it() {
    let callbacks = Arc::new(Callbacks::new(String::new()));
    let cx = Context::from_waker(Waker::noop());
    let Poll::Ready(turn) = callbacks.poll_turn(&cx) else { panic!("nobody has it") };
    assert!(callbacks.poll_turn(&cx).is_pending());
    drop(turn);
    assert!(callbacks.poll_turn(&cx).is_ready());
}

#[test]
fn a_request_is_signed_with_its_time() {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
    // As `printf '7.{}' | openssl dgst -sha256 -hmac secret` says.
    let expected = "t=7,v1=76aad9429f417882918162a1928a38769fff65cc07b6bfa344ac9c5fb1e3448e";
    assert_eq!(signature(&key, 7, b"{}"), expected);
}
