//! Channels of a path with parameters go on with the next server.

use std::net::SocketAddr;

use crate::keep::crowd::{END, Subscriber, publish_to};
use crate::keep::succession::Nursery;
use crate::stage::{connect, get, until};

const ROOMS: usize = 60;

fn room(number: usize) -> String {
    format!("/rooms/{number}")
}

fn publish_everywhere(at: SocketAddr, message: &str) {
    for number in 0..ROOMS {
        until("a room has the message", || {
            publish_to(at, &room(number), &format!("{message} {number}"))
        });
    }
}

#[test]
fn named_channels_and_their_subscribers_outlive_an_upgrade_and_crashes() {
    let nursery = Nursery::new("");
    let at = nursery.at();
    let mut server = nursery.server(&[]);
    let mut subscribers: Vec<Subscriber> =
        (0..ROOMS).map(|number| Subscriber::of(at, &room(number))).collect();
    publish_everywhere(at, "first");
    nursery.until_held(ROOMS);
    let mut expected = vec!["first".to_owned()];
    for turn in 0..6 {
        // The second way in which a server ends is a crash.
        if turn % 2 == 0 {
            let next = nursery.server(&["--upgrade"]);
            assert!(server.ended().0.success());
            server = next;
        } else {
            server.signal("KILL");
            drop(server.ended());
            server = nursery.server(&[]);
        }
        server.says("took over");
        let message = format!("turn {turn}");
        publish_everywhere(at, &message);
        expected.push(message);
        // A channel that is made here is known to the next server as well. It has no subscriber, so
        // its route is one whose channels are dropped much later than a turn takes.
        assert!(publish_to(at, &format!("/notes/{turn}"), "kept"));
        if turn > 0 {
            let path = format!("/notes/{}?after=0", turn - 1);
            let answer = get(&mut connect(at), &path);
            assert!(answer.contains("\"data\":\"kept\""), "{answer}");
        }
        nursery.until_held(ROOMS);
    }
    for (number, subscriber) in subscribers.iter_mut().enumerate() {
        until("the end is published", || publish_to(at, &room(number), END));
        let expected: Vec<String> =
            expected.iter().map(|message| format!("{message} {number}")).collect();
        assert_eq!(subscriber.messages(), expected);
    }
    server.signal("TERM");
    assert!(server.ended().0.success());
}
