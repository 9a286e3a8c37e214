//! Subscribers of a hub of Mercure, of which each gets some of the updates, through upgrades and
//! crashes.

use std::io::Write;

use crate::keep::crowd::{Received, Subscriber, publish_to};
use crate::keep::succession::Nursery;
use crate::stage::{connect, response, until};

const HUB: &str = "/.well-known/mercure";

/// Publishes an update, again until that is confirmed: it may come more than once then.
fn publish(nursery: &Nursery, topic: &str, data: &str) -> usize {
    let mut tries = 0;
    until("an update is published", || {
        tries += 1;
        publish_to(nursery.at(), HUB, &format!("topic={topic}&data={data}"))
    });
    tries
}

/// Returns the next update.
fn next(subscriber: &mut Subscriber) -> String {
    loop {
        match subscriber.receive().expect("the connection goes on") {
            Received::Message(message) => return message,
            Received::SignOfLife => {}
        }
    }
}

#[test]
fn each_subscriber_of_a_hub_gets_its_updates_and_no_other() {
    let nursery = Nursery::new(
        "[[hosts.routes]]\npath = \"/.well-known/mercure\"\n\
         mercure = { publish = \"anyone\", poll = \"10m\" }\n",
    );
    let mut server = nursery.server(&[]);
    let topics = ["even", "odd", "%7Bany%7D", "nothing&topic=odd"];
    let gets = |topic: usize, number: usize| match topic {
        0 => number.is_multiple_of(2),
        1 | 3 => !number.is_multiple_of(2),
        _ => true,
    };
    let mut subscribers: Vec<(usize, Subscriber)> = (0..12)
        .map(|number| number % topics.len())
        .map(|topic| {
            (topic, Subscriber::updates(nursery.at(), &format!("topic={}", topics[topic])))
        })
        .collect();
    let mut number = 0;
    for round in 0..8 {
        nursery.until_held(subscribers.len());
        let mut published = Vec::new();
        for _ in 0..5 {
            let topic = if number % 2 == 0 { "even" } else { "odd" };
            assert_eq!(publish(&nursery, topic, &number.to_string()), 1);
            published.push(number);
            number += 1;
        }
        // In every other round they are read only when the next server is there.
        let mut read = |published: &[usize]| {
            for (topic, subscriber) in &mut subscribers {
                for number in published.iter().filter(|number| gets(*topic, **number)) {
                    assert_eq!(next(subscriber), number.to_string(), "round {round}");
                }
            }
        };
        if round % 4 < 2 {
            read(&published);
        }
        let next = nursery.next(server, round % 2 == 0);
        next.says(&format!("took over {} connections", topics.len() * 3));
        server = next;
        if round % 4 >= 2 {
            read(&published);
        }
    }
    server.signal("TERM");
    assert!(server.ended().0.success());
}

/// A client that comes back by itself finds its place in the log of the server before.
#[test]
fn ids_stay_valid_in_the_next_server() {
    let nursery = Nursery::new(
        "[[hosts.routes]]\npath = \"/.well-known/mercure\"\nmercure = { publish = \"anyone\" }\n",
    );
    let server = nursery.server(&[]);
    publish(&nursery, "a", "first&id=urn:x:1");
    publish(&nursery, "a", "second&id=urn:x:2&private");
    publish(&nursery, "a", "third");
    server.signal("KILL");
    drop(server.ended());
    let server = nursery.server(&[]);
    let mut subscriber = Subscriber::updates(nursery.at(), "topic=a&lastEventID=urn:x:1");
    // The second one is private still.
    assert_eq!(next(&mut subscriber), "third");
    let mut subscriber = Subscriber::updates(nursery.at(), "topic=a&lastEventID=urn:x:2");
    assert_eq!(next(&mut subscriber), "third");
    server.signal("TERM");
    assert!(server.ended().0.success());
}

/// As after a change of the configuration of a running server.
#[test]
fn a_successor_with_other_rights_makes_subscribers_come_again() {
    let options = |subscribe: &str| {
        format!(
            "[[hosts.routes]]\npath = \"{HUB}\"\n\
             mercure = {{ publish = \"anyone\", subscribe = {subscribe:?} }}\n\
             [[hosts.routes]]\npath = \"/events\"\n\
             channel = {{ publish = \"anyone\", subscribe = {subscribe:?} }}\n"
        )
    };
    for upgrades in [true, false] {
        let nursery = Nursery::new(&options("anyone"));
        let server = nursery.server(&[]);
        let mut subscribers = [
            Subscriber::updates(nursery.at(), "topic=a"),
            Subscriber::stream_of(nursery.at(), "/events").0,
        ];
        let mut poll = connect(nursery.at());
        poll.write_all(b"GET /events?after=0&wait=600 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        nursery.until_held(3);
        nursery.configure(&options("local"));
        let next = nursery.next(server, upgrades);
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.receive(), None, "upgrade: {upgrades}");
        }
        assert!(response(&mut poll).starts_with("HTTP/1.1 204 "), "upgrade: {upgrades}");
        next.signal("TERM");
        assert!(next.ended().0.success());
    }
}
