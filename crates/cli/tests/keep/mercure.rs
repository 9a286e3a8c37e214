//! Subscribers of a hub of Mercure, of which each gets some of the updates, through upgrades and
//! crashes.

use crate::crowd::{Received, Subscriber, publish_to};
use crate::stage::until;
use crate::succession::Nursery;

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
        let next = if round % 2 == 0 {
            let next = nursery.server(&["--upgrade"]);
            assert!(server.ended().0.success());
            next
        } else {
            server.signal("KILL");
            drop(server.ended());
            nursery.server(&[])
        };
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
