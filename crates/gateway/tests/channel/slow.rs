//! Subscribers that read more slowly than publishers send.

use std::sync::atomic::Ordering;

use superpoll_gateway::channel::Hub;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Error, Message};

use crate::clients::{Events, next, socket, stage};
use crate::stage::{BACKENDS, PATIENCE};

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

/// A burst of small messages costs more than may wait for a subscriber. One that has a task gets
/// them some at a time, and is slow only if it does not read.
#[test]
fn a_burst_makes_nobody_slow_who_reads() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "history = 0, backlog_bytes = \"64KiB\"");
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
