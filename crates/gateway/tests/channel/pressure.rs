//! More is published than can be delivered at once: publishers wait, and nothing is lost, doubled
//! or reordered.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use superpoll_rt::BackendKind;
use tungstenite::{Error, Message, WebSocket};

use crate::clients::{Events, ask, messages, socket, stage, until_subscribers};
use crate::stage::{BACKENDS, Client, PATIENCE, Stage};

const POSTERS: u64 = 5;
const SOCKETS: u64 = 3;

/// How far publishers go ahead of the slowest reader that keeps up: the number of messages that the
/// channel keeps for each reader.
const AHEAD: u64 = 100;

/// The number of messages of each publisher; more if `SUPERPOLL_PRESSURE` says so.
fn rounds() -> u64 {
    std::env::var("SUPERPOLL_PRESSURE").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// A number that looks random.
fn random(seed: u64) -> u64 {
    let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// The message that a publisher sends as its next one: its name, its number, and up to some
/// kilobytes more.
fn message(publisher: u64, number: u64) -> String {
    let length = random(publisher * 1_000_003 + number) % 9000;
    format!("{publisher} {number} {}", "x".repeat(usize::try_from(length).unwrap()))
}

/// Returns the publisher of a message, and its number.
fn name(text: &str) -> (u64, u64) {
    let mut parts = text.split(' ').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap(), parts.next().unwrap())
}

/// The messages that readers have got by now.
struct Progress {
    readers: Vec<AtomicU64>,
}

impl Progress {
    fn slowest(&self) -> u64 {
        self.readers.iter().map(|reader| reader.load(Ordering::Relaxed)).min().unwrap()
    }

    /// Waits until the readers that keep up are not far behind.
    fn wait(&self, stage: &Stage) {
        let hub = stage.channel.as_ref().unwrap();
        let end = Instant::now() + PATIENCE;
        while hub.last() > self.slowest() + AHEAD {
            assert!(Instant::now() < end, "{} of {}", self.slowest(), hub.last());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Publishes by POST, repeats refused messages, and returns the ids.
fn post(stage: &Stage, progress: &Progress, publisher: u64) -> Vec<u64> {
    let mut client = stage.connect();
    let mut ids = Vec::new();
    for number in 0..rounds() {
        let data = message(publisher, number);
        loop {
            progress.wait(stage);
            client.send(format!(
                "POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{data}",
                data.len()
            ));
            let answer = client.answer();
            if answer.status == 503 {
                assert!(answer.head.contains("retry-after: 1\r\n"), "{}", answer.head);
                continue;
            }
            assert_eq!(answer.status, 201, "{answer:?}");
            let json: Value = serde_json::from_slice(&answer.body).unwrap();
            ids.push(json["id"].as_u64().unwrap());
            break;
        }
    }
    ids
}

/// Publishes by WebSocket. It is a subscriber as well, which reads the messages that are there.
fn send(stage: &Stage, progress: &Progress, mut socket: WebSocket<TcpStream>, publisher: u64) {
    let (mut seen, total) = (0, (POSTERS + SOCKETS) * rounds());
    for number in 0..rounds() {
        progress.wait(stage);
        socket.send(Message::text(message(publisher, number))).unwrap();
        socket.get_mut().set_nonblocking(true).unwrap();
        loop {
            match socket.read() {
                Ok(Message::Text(_)) => seen += 1,
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        socket.get_mut().set_nonblocking(false).unwrap();
    }
    while seen < total {
        seen += u64::from(matches!(socket.read().unwrap(), Message::Text(_)));
    }
}

/// Reads until the last message.
fn read(mut next: impl FnMut() -> Vec<(Option<u64>, String)>, progress: &AtomicU64) -> Vec<String> {
    let (mut all, total) = (Vec::new(), (POSTERS + SOCKETS) * rounds());
    while (all.len() as u64) < total {
        for (id, text) in next() {
            assert!(id.is_none_or(|id| id == all.len() as u64 + 1), "{id:?}");
            all.push(text);
        }
        progress.store(all.len() as u64, Ordering::Relaxed);
    }
    all
}

fn poll(client: &mut Client, last: &mut u64) -> Vec<(Option<u64>, String)> {
    ask(client, &format!("?after={last}"));
    let found = messages(&client.answer());
    *last = found.last().map_or(*last, |(id, _)| *id);
    found.into_iter().map(|(id, text)| (Some(id), text)).collect()
}

/// The messages of a subscriber that did not read until all were published.
fn late(mut socket: WebSocket<TcpStream>) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        match socket.read() {
            Ok(Message::Text(text)) if text == "end" => return all,
            Ok(Message::Text(text)) => all.push(text.to_string()),
            Ok(Message::Close(_)) | Err(Error::Io(_) | Error::Protocol(_)) => return all,
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn check(backend: BackendKind, workers: usize, slow: &str) {
    let options = format!(
        "queue_bytes = \"20KiB\", backlog_bytes = \"1MiB\", history = 200, slow = \"{slow}\""
    );
    let stage = &stage(backend, workers, &options);
    let readers = 5;
    let progress = &Progress { readers: (0..readers).map(|_| AtomicU64::new(0)).collect() };
    let (sockets, lates): (Vec<_>, Vec<_>) =
        (0..2).map(|_| (socket(stage, "").0, socket(stage, "").0)).unzip();
    let events: Vec<_> = (0..2).map(|_| Events::new(stage, "", "").0).collect();
    let senders: Vec<_> = (0..SOCKETS).map(|_| socket(stage, "").0).collect();
    until_subscribers(stage, 2 + 2 + 2 + senders.len());
    let (ids, found) = std::thread::scope(|scope| {
        let mut places = progress.readers.iter();
        let mut reading = Vec::new();
        for mut socket in sockets {
            let place = places.next().unwrap();
            let mut next = move || vec![(None, crate::clients::next(&mut socket))];
            reading.push(scope.spawn(move || read(&mut next, place)));
        }
        for mut events in events {
            let place = places.next().unwrap();
            let mut next = move || {
                let (id, text) = events.message();
                vec![(Some(id), text)]
            };
            reading.push(scope.spawn(move || read(&mut next, place)));
        }
        let (mut client, mut last, place) = (stage.connect(), 0, places.next().unwrap());
        reading.push(scope.spawn(move || read(|| poll(&mut client, &mut last), place)));
        let posting: Vec<_> = (0..POSTERS)
            .map(|publisher| scope.spawn(move || post(stage, progress, publisher)))
            .collect();
        for (publisher, socket) in (POSTERS..).zip(senders) {
            scope.spawn(move || send(stage, progress, socket, publisher));
        }
        let ids: Vec<_> = posting.into_iter().map(|one| one.join().unwrap()).collect();
        (ids, reading.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>())
    });
    let total = (POSTERS + SOCKETS) * rounds();
    assert_eq!(stage.channel.as_ref().unwrap().last(), total);
    // The model: each publisher's messages in its order, and messages with a known id at that id.
    let all = &found[0];
    let mut next: BTreeMap<u64, u64> = BTreeMap::new();
    for (id, text) in (1..).zip(all) {
        let (publisher, number) = name(text);
        let expected = next.entry(publisher).or_insert(0);
        assert_eq!(number, *expected, "of publisher {publisher}");
        assert!(text == &message(publisher, number));
        if let Some(ids) = ids.get(usize::try_from(publisher).unwrap()) {
            assert_eq!(ids[usize::try_from(number).unwrap()], id);
        }
        *expected += 1;
    }
    assert!(
        next.len() as u64 == POSTERS + SOCKETS && next.values().all(|count| *count == rounds())
    );
    for other in &found[1..] {
        assert!(other == all, "{backend:?}: subscribers got different messages");
    }
    // A slow subscriber gets some of them, in order: all up to its end, or with some left out.
    stage.channel.as_ref().unwrap().publish("end");
    for socket in lates {
        let found = late(socket);
        if slow == "disconnect" {
            assert!(found == all[..found.len()]);
        }
        let mut rest = all.iter();
        assert!(found.iter().all(|text| rest.any(|other| other == text)), "{backend:?}");
    }
}

#[test]
fn fast_subscribers_get_every_message_once_and_in_order() {
    for (index, backend) in BACKENDS.into_iter().enumerate() {
        check(backend, 1 + index % 2, ["disconnect", "drop-oldest"][index % 2]);
        check(backend, 2 - index % 2, ["drop-oldest", "disconnect"][index % 2]);
    }
}
