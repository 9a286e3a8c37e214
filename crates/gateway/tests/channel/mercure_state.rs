//! A hub of Mercure (draft-dunglas-mercure-07): sections "Reconnection, State Reconciliation and
//! Event Sourcing" and "Active Subscriptions".

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::clients::field;
use crate::hub::{Event, PATH, Subscriber, bearer, encode, get, hub, hub_with, publish};
use crate::stage::{Answer, BACKENDS};

// Reconnection, state reconciliation

#[test]
fn a_subscriber_goes_on_behind_the_last_event_that_it_has() {
    let stage = hub("history = 4");
    // Before there is any update.
    let first = Subscriber::asking(&stage, &["a"], "&Last-Event-ID=earliest", "");
    assert_eq!(first.field("last-event-id"), Some("earliest"));
    let first = Subscriber::new(&stage, &["a"], "");
    assert_eq!(first.field("last-event-id"), None);
    let place = first.last_id.clone();
    let ids: Vec<String> = (1..=4)
        .map(|number: u32| {
            let (own, data) = (format!("urn:x:{number}"), number.to_string());
            let mut pairs = vec![("topic", "a"), ("data", data.as_str())];
            if number.is_multiple_of(2) {
                pairs.push(("id", &own));
            }
            publish(&stage, &pairs)
        })
        .collect();
    let rest = |subscriber: &mut Subscriber, count: usize| -> Vec<String> {
        (0..count).map(|_| subscriber.data()).collect()
    };
    let all_of_them = ["1", "2", "3", "4"];
    for (number, id) in ids.iter().enumerate() {
        for name in ["Last-Event-ID", "lastEventID"] {
            let more = format!("&{name}={}", encode(id));
            let mut subscriber = Subscriber::asking(&stage, &["a"], &more, "");
            assert_eq!(subscriber.field("last-event-id"), Some(id.as_str()));
            assert_eq!(rest(&mut subscriber, 3 - number), all_of_them[number + 1..]);
        }
        // The field counts more.
        let (more, field) = ("&Last-Event-ID=earliest", format!("last-event-id: {id}\r\n"));
        let mut subscriber = Subscriber::asking(&stage, &["a"], more, &field);
        assert_eq!(subscriber.field("last-event-id"), Some(id.as_str()));
        assert_eq!(rest(&mut subscriber, 3 - number), all_of_them[number + 1..]);
    }
    // The place of a stream that has had no update yet.
    let mut subscriber =
        Subscriber::asking(&stage, &["a"], &format!("&Last-Event-ID={}", encode(&place)), "");
    assert_eq!(subscriber.field("last-event-id"), Some(place.as_str()));
    assert_eq!(rest(&mut subscriber, 4), all_of_them);
    for id in ["earliest", "urn:x:unknown", "#1-abc", "%00"] {
        let mut subscriber =
            Subscriber::asking(&stage, &["a"], &format!("&Last-Event-ID={}", encode(id)), "");
        assert_eq!(subscriber.field("last-event-id"), Some("earliest"), "{id}");
        assert_eq!(rest(&mut subscriber, 4), all_of_them, "{id}");
    }
    // What is not kept any more is reported by another id than the one that was asked for.
    for _ in 0..2 {
        publish(&stage, &[("topic", "b")]);
    }
    let more = format!("&Last-Event-ID={}", encode(&ids[0]));
    let mut subscriber = Subscriber::asking(&stage, &["a"], &more, "");
    assert_eq!(subscriber.field("last-event-id"), Some("earliest"));
    assert_eq!(rest(&mut subscriber, 2), ["3", "4"]);
}

/// The model: a list of updates. Clients come and go at random, each with its own topics, and get
/// each of their updates once and in order, and no other.
#[test]
fn clients_that_come_and_go_get_each_of_their_updates_once() {
    let topics = ["/a", "/b", "/c", "/d/1", "/d/2"];
    let selectors = ["/a", "/b", "/{x}", "/d/{y}", "*", "/d/2"];
    let has = |selector: &str, topic: &str| match selector {
        "*" => true,
        "/{x}" => !topic.starts_with("/d"),
        "/d/{y}" => topic.starts_with("/d"),
        exact => exact == topic,
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let stage = hub_with(BACKENDS[3], 2, "publish = \"anyone\", history = 100000");
    let mut all: Vec<(&str, bool)> = Vec::new();
    // By its number: the selectors, the stream if it is there, the id, and the next update.
    type Reading<'a> = (Vec<&'a str>, Option<Subscriber>, String, usize);
    let mut clients: BTreeMap<usize, Reading<'_>> = BTreeMap::new();
    for step in 0..400 {
        let mut pick = |most: usize| (0..most).new_tree(&mut runner).unwrap().current();
        match pick(4) {
            0 => {
                let number = pick(8);
                let chosen = vec![selectors[pick(6)], selectors[pick(6)]];
                let last = all.len();
                let (own, stream, id, _) =
                    clients.entry(number).or_insert_with(|| (chosen, None, String::new(), last));
                if stream.is_none() {
                    let more = match id.as_str() {
                        "" => String::new(),
                        id => format!("&lastEventID={}", encode(id)),
                    };
                    let new = Subscriber::asking(&stage, own, &more, "");
                    *id = new.last_id.clone();
                    *stream = Some(new);
                }
            }
            1 => {
                let number = pick(8);
                if let Some((own, stream, id, at)) = clients.get_mut(&number)
                    && let Some(mut subscriber) = stream.take()
                {
                    // It has read some of its updates.
                    let wanted = |index: &usize| {
                        let (topic, _) = all[*index];
                        own.iter().any(|selector| has(selector, topic))
                    };
                    let some: Vec<usize> = (*at..all.len()).filter(wanted).collect();
                    let count = pick(some.len() + 1);
                    for index in &some[..count] {
                        assert_eq!(subscriber.data(), index.to_string(), "step {step}");
                        *at = index + 1;
                    }
                    *id = subscriber.last_id.clone();
                }
            }
            _ => {
                let (topic, has_id) = (topics[pick(5)], pick(2) == 0);
                let (data, own) = (all.len().to_string(), format!("urn:{}", all.len()));
                let mut pairs = vec![("topic", topic), ("data", data.as_str())];
                if has_id {
                    pairs.push(("id", &own));
                }
                publish(&stage, &pairs);
                all.push((topic, has_id));
            }
        }
    }
    publish(
        &stage,
        &[("topic", "/a"), ("topic", "/d/1"), ("topic", "/d/2"), ("topic", "/b"), ("data", "end")],
    );
    for (number, (own, stream, id, at)) in clients {
        let more = format!("&lastEventID={}", encode(&id));
        let mut stream = stream.unwrap_or_else(|| Subscriber::asking(&stage, &own, &more, ""));
        for (index, (topic, _)) in all.iter().enumerate().skip(at) {
            if own.iter().any(|selector| has(selector, topic)) {
                assert_eq!(stream.data(), index.to_string(), "client {number}");
            }
        }
        assert_eq!(stream.data(), "end");
    }
}

/// A client that reads nothing is ended, or misses updates, and holds no memory of the server.
#[test]
fn a_slow_subscriber_comes_again_and_misses_nothing_that_is_kept() {
    let stage = hub("history = 1000, backlog_bytes = \"64KiB\"");
    let mut slow = Subscriber::new(&stage, &["a"], "");
    let mut other = Subscriber::new(&stage, &["b"], "");
    let data = "x".repeat(60_000);
    for number in 0..200 {
        publish(&stage, &[("topic", "a"), ("data", &format!("{number} {data}"))]);
    }
    publish(&stage, &[("topic", "b"), ("data", "b")]);
    // Updates for others do not make a subscriber slow.
    assert_eq!(other.data(), "b");
    let number = |event: &Event| event.data.split(' ').next().unwrap().parse::<u32>().unwrap();
    let mut next = 0;
    while let Some(event) = slow.next() {
        assert_eq!(number(&event), next);
        next += 1;
    }
    assert!(next < 200, "it was not slow");
    let more = format!("&Last-Event-ID={}", encode(&slow.last_id));
    let mut again = Subscriber::asking(&stage, &["a"], &more, "");
    assert_eq!(number(&again.next().unwrap()), next);
}

// Active subscriptions

fn subscription(topic: &str, subscriber: &str) -> String {
    format!("{PATH}/subscriptions/{}/{}", standard(topic), standard(subscriber))
}

/// The bytes that the expansion of `{variable}` encodes (RFC 6570).
const ENCODED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn standard(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, ENCODED).to_string()
}

#[test]
fn subscriptions_are_reported_and_listed() {
    let stage = hub("subscriptions = true");
    let events = format!("{PATH}/subscriptions{{/topic}}{{/subscriber}}");
    let reader = bearer(&json!({ "subscribe": [events], "payload": { "who": "reader" } }));
    let mut reports = Subscriber::new(&stage, &[&events], &reader);
    let own: Value = serde_json::from_str(&reports.data()).unwrap();
    assert_eq!((&own["topic"], &own["active"]), (&json!(events), &json!(true)));
    assert_eq!(own["payload"], json!({ "who": "reader" }));
    let mut blind = Subscriber::new(&stage, &[&events, "x"], "");

    let topics = ["https://example.com/{selector}", "b"];
    let claim = json!({ "payload": { "foo": "bar" } });
    let subscriber = Subscriber::new(&stage, &topics, &bearer(&claim));
    let mut reported = Vec::new();
    // The two of `blind` come first.
    for _ in 0..4 {
        let event = reports.next().unwrap();
        let document: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(document["@context"], "https://mercure.rocks/");
        assert_eq!(document["type"], "Subscription");
        reported.push(document);
    }
    let (one, two) = (&reported[2], &reported[3]);
    assert_eq!((&one["topic"], &two["topic"]), (&json!(topics[0]), &json!(topics[1])));
    assert_eq!(one["subscriber"], two["subscriber"], "it is one subscriber");
    assert_eq!(one["payload"], json!({ "foo": "bar" }));
    let who = one["subscriber"].as_str().unwrap();
    assert_eq!(one["id"], subscription(topics[0], who));

    let list = |target: &str, fields: &str| get(&stage, target, fields);
    let json = |answer: &Answer| serde_json::from_slice::<Value>(&answer.body).unwrap();
    let all = list(&format!("{PATH}/subscriptions"), &reader);
    assert_eq!(all.status, 200, "{all:?}");
    assert_eq!(field(&all, "content-type"), "application/ld+json");
    assert!(field(&all, "link").contains("rel=\"mercure\""));
    let document = json(&all);
    assert_eq!(document["@context"], "https://mercure.rocks/");
    assert_eq!(document["type"], "Subscriptions");
    assert_eq!(document["id"], format!("{PATH}/subscriptions"));
    assert_eq!(document["subscriptions"].as_array().unwrap().len(), 5);
    assert_eq!(document["lastEventID"], reports.last_id);
    let of_topic = json(&list(&format!("{PATH}/subscriptions/{}", standard(topics[0])), &reader));
    let found = of_topic["subscriptions"].as_array().unwrap();
    assert_eq!((found.len(), &found[0]["subscriber"]), (1, &json!(who)));
    let single = json(&list(&subscription(topics[1], who), &reader));
    assert_eq!((&single["topic"], &single["active"]), (&json!("b"), &json!(true)));
    assert_eq!(single["lastEventID"], reports.last_id);
    let nobody = subscription("b", "urn:uuid:00000000-0000-4000-8000-000000000000");
    assert_eq!(list(&nobody, &reader).status, 404);

    // Nobody without the right sees any of it.
    assert_eq!(list(&format!("{PATH}/subscriptions"), "").status, 401);
    let other = bearer(&json!({ "subscribe": ["https://example.com/{x}"] }));
    assert_eq!(list(&format!("{PATH}/subscriptions"), &other).status, 403);

    drop(subscriber);
    for topic in topics {
        let document: Value = serde_json::from_str(&reports.data()).unwrap();
        assert_eq!((&document["topic"], &document["active"]), (&json!(topic), &json!(false)));
        assert_eq!(document["subscriber"], who);
    }
    assert_eq!(list(&subscription(topics[1], who), &reader).status, 404);
    publish(&stage, &[("topic", "x"), ("data", "x")]);
    assert_eq!(blind.data(), "x", "it was told of subscriptions");
    // They are no part of a hub that does not have them.
    let stage = hub("");
    let all = get(&stage, &format!("{PATH}/subscriptions"), &reader);
    assert_eq!(all.status, 404);
}
