//! Subscribers that read more slowly than publishers send.

use std::io::Read;
use std::sync::atomic::Ordering;

use superpoll_gateway::channel::Hub;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Error, Message};

use crate::clients::{Events, next, socket, stage, text, until_subscribers};
use crate::stage::{BACKENDS, PATIENCE, Stage};

const LENGTH: usize = 60_000;

fn message(id: u64) -> String {
    format!("{id:06} {}", "x".repeat(LENGTH))
}

/// Publishes until an event has happened, at the pace of a subscriber that reads.
fn publish_until(hub: &Hub, mut reads: impl FnMut(u64), mut is_over: impl FnMut() -> bool) -> u64 {
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        let id = hub.publish(message(hub.last() + 1)).unwrap();
        reads(id);
        if is_over() {
            return id;
        }
        assert!(std::time::Instant::now() < end);
    }
}

#[test]
fn only_the_slow_subscriber_is_disconnected() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "history = 1, backlog_bytes = \"200KiB\"");
        let hub = stage.channel.clone().unwrap();
        let (mut slow, _) = socket(&stage, "");
        let (mut quick, _) = socket(&stage, "");
        let (events, _) = Events::new(&stage, "", "");
        let (old, _) = Events::by("1.0", &stage, "", "");
        stage.until(|engine| &engine.parked, 3);
        let counters = hub.counters();
        let reads = |id| {
            assert_eq!(next(&mut quick), message(id));
        };
        // The WebSocket and the streams of events, none of which is read.
        let is_over = || counters.disconnected.load(Ordering::Relaxed) == 3;
        let last = publish_until(&hub, reads, is_over);
        let mut id = 1;
        let end = loop {
            match slow.read() {
                Ok(Message::Text(text)) => assert!(text == message(id), "{backend:?} {id}"),
                other => break other,
            }
            id += 1;
        };
        match end {
            Ok(Message::Close(Some(close))) => assert_eq!(close.code, CloseCode::Again),
            // It was not read in time.
            Err(Error::Protocol(_) | Error::Io(_)) => {}
            other => panic!("{other:?}"),
        }
        assert!(id <= last, "{backend:?}");
        for mut events in [events, old] {
            let mut id = 1;
            while let Some(event) = events.next() {
                assert!(event.data == message(id), "{backend:?} {id}");
                id += 1;
            }
            assert!(id <= last, "{backend:?}");
        }
        assert!(counters.left_out.load(Ordering::Relaxed) > 0);
        hub.publish("after that");
        assert_eq!(next(&mut quick), "after that");
    }
}

#[test]
fn or_the_oldest_messages_are_left_out_for_it() {
    for backend in BACKENDS {
        let options = "history = 1, backlog_bytes = \"200KiB\", slow = \"drop-oldest\"";
        let stage = stage(backend, 1, options);
        let hub = stage.channel.clone().unwrap();
        let (mut slow, _) = socket(&stage, "");
        let (mut quick, _) = socket(&stage, "");
        let (events, _) = Events::new(&stage, "", "");
        let (old, _) = Events::by("1.0", &stage, "", "");
        stage.until(|engine| &engine.parked, 3);
        let counters = hub.counters();
        let reads = |id| {
            assert_eq!(next(&mut quick), message(id));
        };
        let is_over = || counters.left_out.load(Ordering::Relaxed) >= 30;
        publish_until(&hub, reads, is_over);
        hub.publish("last");
        assert_eq!(next(&mut quick), "last");
        // The subscribers that are being sent a message have a task each.
        stage.until(|engine| &engine.active, 3);
        // Whole messages, in order, the newest among them; some are missing.
        let mut ids = Vec::new();
        loop {
            let text = next(&mut slow);
            if text == "last" {
                break;
            }
            let id = text[..6].parse().unwrap();
            assert!(text == message(id), "{backend:?} {id}");
            ids.push(id);
        }
        assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
        assert!((ids.len() as u64) < hub.last() - 1, "{backend:?}");
        let mut streams = [events, old];
        for events in &mut streams {
            let (mut last, mut is_told) = (0, false);
            loop {
                let event = events.next().unwrap();
                let id: u64 = event.id.split('-').next().unwrap().parse().unwrap();
                if event.kind == "missed" {
                    is_told = true;
                    last = id;
                    continue;
                }
                assert_eq!(id, last + 1, "{backend:?}");
                last = id;
                if event.data == "last" {
                    break;
                }
            }
            assert!(is_told);
        }
        // They are parked again once they have caught up, all but that of HTTP/1.0.
        stage.until(|engine| &engine.parked, 3);
        stage.until(|engine| &engine.active, 1);
        hub.publish("again");
        assert_eq!(next(&mut slow), "again");
        for mut events in streams {
            assert_eq!(events.message(), (hub.last(), "again".to_owned()));
        }
        assert_eq!(counters.disconnected.load(Ordering::Relaxed), 0);
    }
}

/// The kernel would hold up to 4 MiB for each, of which `backlog_bytes` knows nothing. With
/// `drop-oldest` these are the messages that a client reads first, however old they are.
#[test]
fn the_kernel_holds_little_for_a_subscriber_that_reads_nothing() {
    let socket_fields = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let json_fields = format!("{socket_fields}sec-websocket-protocol: superpoll.v1\r\n");
    let options = "history = 1, backlog_bytes = \"200KiB\", slow = \"drop-oldest\"";
    for backend in BACKENDS {
        let text = text(options) + "[[hosts.routes]]\npath = \"/d\"\nchannel = {}\n";
        let stage = Stage::new(backend, 1, &text);
        let hub = stage.channel.clone().unwrap();
        let events_fields = "accept: text/event-stream\r\n";
        let mut clients: Vec<_> = [
            ("/c HTTP/1.1", socket_fields),
            ("/c HTTP/1.1", &json_fields),
            ("/c?also=/d HTTP/1.1", &json_fields),
            ("/c HTTP/1.1", events_fields),
            ("/c HTTP/1.0", events_fields),
            ("/c?also=/d HTTP/1.1", events_fields),
        ]
        .map(|(target, fields)| {
            let mut client = stage.connect();
            client.send(format!("GET {target}\r\nhost: a\r\n{fields}\r\n"));
            ((target, fields), client)
        })
        .into();
        let (mut quick, _) = socket(&stage, "");
        until_subscribers(&stage, clients.len() + 1);
        let reads = |id| assert_eq!(next(&mut quick), message(id));
        let counters = hub.counters();
        // More than the kernel would take for all of them.
        let left_out = || counters.left_out.load(Ordering::Relaxed) >= 100 * 6;
        publish_until(&hub, reads, left_out);
        hub.publish("the last message");
        assert_eq!(next(&mut quick), "the last message");
        for (request, client) in &mut clients {
            let (mut bytes, mut room) = (Vec::new(), [0; 4096]);
            while !bytes.ends_with(b"the last message") {
                let end = bytes.len().saturating_sub(100);
                if bytes[end..].windows(16).any(|found| found == b"the last message") {
                    break;
                }
                let count = client.0.read(&mut room).unwrap();
                assert_ne!(count, 0, "{backend:?}, {request:?}");
                bytes.extend_from_slice(&room[..count]);
            }
            assert!(bytes.len() < 1 << 20, "{backend:?}, {request:?}: {} bytes", bytes.len());
        }
    }
}

/// A burst of small messages costs more than may wait for a subscriber. One that has a task gets
/// them some at a time, and is slow only if it does not read.
#[test]
fn a_burst_makes_nobody_slow_who_reads() {
    for backend in BACKENDS {
        // The kernel takes the messages that a client on a busy machine has not come to yet.
        let options = "history = 0, backlog_bytes = \"64KiB\", unsent_bytes = \"1GiB\"";
        let stage = stage(backend, 1, options);
        let (mut events, _) = Events::by("1.0", &stage, "", "");
        let hub = stage.channel.clone().unwrap();
        let publisher = std::thread::spawn(move || {
            for id in 1..=20_000_u64 {
                assert_eq!(hub.publish(id.to_string()), Some(id));
            }
        });
        for id in 1..=20_000 {
            assert_eq!(events.message(), (id, id.to_string()), "{backend:?}");
        }
        publisher.join().unwrap();
    }
}
