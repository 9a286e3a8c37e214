//! Subscribing by server-sent events.

use std::io::BufRead;
use std::time::Duration;

use crate::clients::{Event, Events, publish, socket, stage, text, until_subscribers};
use crate::stage::{BACKENDS, Stage};

/// Streams of HTTP/1.1 are parked, those of HTTP/1.0 are not.
const VERSIONS: [&str; 2] = ["1.0", "1.1"];

fn everywhere() -> impl Iterator<Item = (superpoll_rt::BackendKind, &'static str)> {
    BACKENDS.into_iter().flat_map(|backend| VERSIONS.map(|version| (backend, version)))
}

#[test]
fn messages_come_as_events() {
    for (backend, version) in everywhere() {
        let stage = stage(backend, 1, "");
        let epoch = format!("{:x}", stage.channel.as_ref().unwrap().epoch());
        let (mut events, id) = Events::by(version, &stage, "", "");
        assert_eq!(id, format!("0-{epoch}"));
        publish(&stage, "one");
        publish(&stage, "two\nlines");
        publish(&stage, b"\xff");
        let event = |kind: &str, id: u64, data: &str| Event {
            kind: kind.to_owned(),
            id: format!("{id}-{epoch}"),
            data: data.to_owned(),
            is_comment: false,
        };
        assert_eq!(events.next(), Some(event("message", 1, "one")), "{backend:?}");
        assert_eq!(events.next(), Some(event("message", 2, "two\nlines")));
        assert_eq!(events.next(), Some(event("base64", 3, "/w==")));
        drop(events);
        // Writers see the end, and so do readers.
        let channel = stage.channel.clone().unwrap();
        let end = std::time::Instant::now() + crate::stage::PATIENCE;
        while channel.subscribers() > 0 {
            publish(&stage, "is anybody there?");
            assert!(std::time::Instant::now() < end, "{backend:?}");
        }
    }
}

#[test]
fn a_client_that_has_gone_is_no_subscriber_any_more() {
    for (backend, version) in everywhere() {
        let stage = stage(backend, 1, "");
        for gets_a_message in [false, true] {
            let mut clients: Vec<_> =
                (0..20).map(|_| Events::by(version, &stage, "", "").0).collect();
            until_subscribers(&stage, 20);
            if gets_a_message {
                publish(&stage, "hello");
                clients.iter_mut().for_each(|client| drop(client.message()));
            }
            // Long before anything would be written to them.
            drop(clients);
            until_subscribers(&stage, 0);
        }
    }
}

/// Like a browser whose page is loaded again: the new connection may come before the end of the old
/// one is seen.
#[test]
fn a_page_that_is_loaded_again_does_not_lock_itself_out() {
    let text = text("").replace("[timeouts]", "[limits]\nconnections_per_client = 4\n[timeouts]");
    for (backend, version) in everywhere() {
        let stage = Stage::new(backend, 1, &text);
        for _ in 0..20 {
            let (events, _) = Events::by(version, &stage, "", "");
            drop(events);
            stage.until(|engine| &engine.active, 0);
            stage.until(|engine| &engine.parked, 0);
        }
        assert_eq!(stage.count(|engine| &engine.refused), 0, "{backend:?}");
    }
}

#[test]
fn a_returning_client_gets_the_missed_messages() {
    for (backend, version) in everywhere() {
        let stage = stage(backend, 1, "history = 3");
        let (mut events, _) = Events::by(version, &stage, "", "");
        for id in 1..=5 {
            publish(&stage, id.to_string());
        }
        assert_eq!(events.message(), (1, "1".to_owned()));
        let last = events.next().unwrap().id;
        drop(events);
        let (mut events, id) =
            Events::by(version, &stage, "?after=5", &format!("last-event-id: {last}\r\n"));
        assert_eq!(id, last);
        publish(&stage, "6");
        for id in 3..=6 {
            assert_eq!(events.message(), (id, id.to_string()), "{backend:?}");
        }
        // The third is not kept any more.
        let (mut events, id) =
            Events::by(version, &stage, "", &format!("last-event-id: {last}\r\n"));
        assert!(id.starts_with("3-"), "{id}");
        let missed = events.next().unwrap();
        assert_eq!((&missed.kind[..], &missed.id, &missed.data[..]), ("missed", &id, "true"));
        assert_eq!(events.message(), (4, "4".to_owned()));
        let (mut events, _) =
            Events::by(version, &stage, "", "last-event-id: of another server\r\n");
        assert_eq!(events.next().unwrap().kind, "missed");
        assert_eq!(events.message(), (4, "4".to_owned()));
    }
}

#[test]
fn in_silence_there_are_comments() {
    for version in VERSIONS {
        // A sign of life after ten minutes.
        let stage = stage(BACKENDS[3], 1, "poll = \"20m\"");
        let (mut events, _) = Events::by(version, &stage, "", "");
        stage.elapse(Duration::from_secs(8 * 60));
        publish(&stage, "a");
        let event = events.next().unwrap();
        assert_eq!((event.is_comment, &event.data[..]), (false, "a"));
        for _ in 0..3 {
            stage.elapse(Duration::from_secs(12 * 60));
            assert!(events.next().unwrap().is_comment);
        }
        publish(&stage, "b");
        assert_eq!(events.message(), (2, "b".to_owned()));
    }
}

#[test]
fn large_messages_and_many_come_in_order() {
    for (backend, version) in everywhere() {
        let stage = stage(backend, 2, "message_bytes = \"1MiB\", backlog_bytes = \"64MiB\"");
        let channel = stage.channel.clone().unwrap();
        let (mut events, _) = Events::by(version, &stage, "", "");
        let (mut other, _) = socket(&stage, "");
        while channel.subscribers() < 2 {
            std::thread::yield_now();
        }
        let large = |id: usize| format!("{id} {}", "x".repeat(id % 7 * 100_000));
        let publisher = std::thread::spawn(move || {
            for id in 1..=50 {
                channel.publish(large(id));
            }
        });
        for id in 1..=50 {
            assert_eq!(events.message(), (id as u64, large(id)), "{backend:?}");
            assert_eq!(crate::clients::next(&mut other), large(id), "{backend:?}");
        }
        publisher.join().unwrap();
    }
}

/// The rest of a GET that announces a body.
const BODIES: [(&str, &str); 4] = [
    // None of it comes, a part, all of it but later, and a chunked body without an end.
    ("content-length: 10\r\n", ""),
    ("content-length: 10\r\n", "12345"),
    ("content-length: 10\r\n", "1234567890"),
    ("transfer-encoding: chunked\r\n", "5\r\n12345\r\n"),
];

#[test]
fn a_client_that_has_gone_is_noticed_though_its_body_was_not_sent() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        for (field, body) in BODIES {
            let request = "GET /c HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n";
            let mut client = stage.connect();
            client.send(format!("{request}{field}\r\n"));
            until_subscribers(&stage, 1);
            client.send(body);
            // The messages come whatever becomes of the body.
            publish(&stage, "hello");
            let mut line = String::new();
            while !line.starts_with("data: hello") {
                line.clear();
                assert_ne!(client.0.read_line(&mut line).unwrap(), 0, "{backend:?} {body:?}");
            }
            drop(client);
            until_subscribers(&stage, 0);
            stage.until(|engine| &engine.active, 0);
        }
    }
}

#[test]
fn a_body_that_never_comes_does_not_end_a_stream() {
    let text = text("").replace("[timeouts]", "[timeouts]\nbody = \"5s\"");
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text);
        let (mut events, _) = Events::new(&stage, "", "content-length: 10\r\n");
        stage.elapse(Duration::from_secs(20));
        publish(&stage, "still there");
        assert_eq!(events.message(), (1, "still there".to_owned()), "{backend:?}");
        drop(events);
        until_subscribers(&stage, 0);
    }
}
