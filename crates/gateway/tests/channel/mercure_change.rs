//! A hub of Mercure whose configuration changes.

use std::io::Read;

use serde_json::json;

use crate::hub::{PATH, Subscriber, bearer, get, hub, hub_with, publish};
use crate::stage::{BACKENDS, Stage};
use superpoll_test_support::tokens::SECRET;

fn text(route: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[timeouts]\npark = \"40ms\"\n[[hosts]]\n\
         [[hosts.routes]]\npath = {PATH:?}\n{route}\n"
    )
}

fn of_hub(more: &str) -> String {
    text(&format!("mercure = {{ token = {{ key = \"{SECRET}\", leeway = \"1ms\" }}{more} }}"))
}

/// Changes the configuration, and waits until requests are answered by it.
fn change(stage: &Stage, text: &str, target: &str, status: u16) {
    stage.change(text);
    while get(stage, target, "").status != status {}
}

/// A subscriber of a channel gets all of it; a hub has private updates.
#[test]
fn a_hub_and_a_channel_of_the_same_path_share_neither_messages_nor_subscribers() {
    let secret = [("topic", "a"), ("data", "secret"), ("private", "on")];
    let stage = hub("");
    publish(&stage, &secret);
    change(&stage, &text("channel = { history = 9 }"), &format!("{PATH}?wait=0"), 204);
    let answer = get(&stage, &format!("{PATH}?after=0&wait=0"), "");
    assert_eq!(answer.status, 204, "{answer:?}");
    let mut client = stage.connect();
    client.send(format!(
        "GET {PATH} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
    ));
    stage.until(|engine| &engine.parked, 1);
    change(&stage, &of_hub(""), &format!("{PATH}?wait=0"), 400);
    publish(&stage, &secret);
    let (mut bytes, mut room) = (Vec::new(), [0; 4096]);
    loop {
        let count = client.0.read(&mut room).unwrap();
        bytes.extend_from_slice(&room[..count]);
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("secret"), "{text}");
        if count == 0 {
            break;
        }
    }
}

/// Subscribers of before would not be among those that are reported and listed.
#[test]
fn subscribers_come_again_when_subscriptions_are_reported_from_now_on() {
    let stage = hub("");
    let mut subscriber = Subscriber::new(&stage, &["a"], "");
    let target = format!("{PATH}/subscriptions");
    change(&stage, &of_hub(", subscriptions = true"), &target, 401);
    assert_eq!(subscriber.next(), None);
    let mut subscriber = Subscriber::new(&stage, &["a"], "");
    // Another change of no consequence for subscribers.
    let text = of_hub(", subscriptions = true, message_bytes = 5");
    stage.change(&text);
    publish(&stage, &[("topic", "a"), ("data", "x")]);
    assert_eq!(subscriber.data(), "x");
}

/// Programs on this machine publish; a token says who gets private updates.
#[test]
fn a_hub_has_tokens_although_nobody_needs_one() {
    let options = format!("token = {{ key = \"{SECRET}\" }}, publish = \"local\"");
    let stage = hub_with(BACKENDS[3], 1, &options);
    let claim = json!({ "subscribe": ["a"] });
    let mut with = Subscriber::new(&stage, &["a"], &bearer(&claim));
    let mut without = Subscriber::new(&stage, &["a"], "");
    for pairs in [
        &[("topic", "a"), ("data", "secret"), ("private", "on")][..],
        &[("topic", "a"), ("data", "public")],
    ] {
        let answer = crate::hub::post(&stage, "", &crate::hub::form(pairs));
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!([with.data(), with.data()], ["secret", "public"]);
    assert_eq!(without.data(), "public");
}
