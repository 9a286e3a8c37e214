//! The memory of subscribers and publishers: those that wait for a message, and those that do not
//! read.

mod encrypted;
mod given_back;
mod http2;
mod names;
mod several;
mod slow;
mod streams;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use superpoll_rt::BackendKind;
use superpoll_test_support::alone;

use crate::clients::{address, stage, until_subscribers};
use crate::stage::Stage;
use crate::{clients, stage, sys};

/// The number of connections before the measurement, and the number at it.
const BEFORE: usize = 500;
const COUNTED: usize = 2000;

/// The most memory of each connection, in bytes, and of a stream of events.
const BOUND: usize = 2048;
const EVENTS_BOUND: usize = 512;

const POLL: &str = "GET /c HTTP/1.1\r\nhost: a\r\n\r\n";
const SOCKET: &str = "GET /c HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
     sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

const EVENTS: &str = "GET /c HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n";

/// Reads the head of a response without a heap.
fn skip_head(stream: &TcpStream) {
    skip(stream, b"\r\n\r\n");
}

/// Reads up to some bytes without a heap, and nothing after them.
fn skip(mut stream: &TcpStream, to: &[u8]) {
    let mut room = [0; 2048];
    // An engine may have hundreds of other requests to answer first.
    let limit = 3 * stage::PATIENCE;
    let end = Instant::now() + limit;
    stream.set_read_timeout(Some(limit)).unwrap();
    loop {
        let count = stream.peek(&mut room).unwrap();
        if let Some(start) = room[..count].windows(to.len()).position(|found| found == to) {
            return stream.read_exact(&mut room[..start + to.len()]).unwrap();
        }
        let is_over = count == 0 || count == room.len() || Instant::now() > end;
        assert!(!is_over, "{}", room[..count].escape_ascii());
        std::thread::yield_now();
    }
}

fn subscribe(stage: &Stage, request: &str, to: &mut Vec<TcpStream>, count: usize) {
    let address = address(stage);
    for _ in 0..count {
        let stream = TcpStream::connect(&address).unwrap();
        (&stream).write_all(request.as_bytes()).unwrap();
        if request != POLL {
            skip_head(&stream);
        }
        if request == EVENTS {
            skip(&stream, b"\n\r\n");
        }
        to.push(stream);
    }
    until_subscribers(stage, to.len());
    stage.until(|engine| &engine.active, 0);
    stage.until(|engine| &engine.parked, to.len() as u64);
}

/// The memory of this process that is its own, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Returns the memory of each of so many connections, as soon as it is within the bound: the
/// parking lot looks after memory once a second. Ten seconds pass at most for the server beside
/// the time of the test, so that no connection reaches a limit meanwhile.
fn settled(stage: &Stage, before: usize, count: usize, bound: usize) -> usize {
    let end = Instant::now() + stage::PATIENCE;
    let mut turns = 0;
    loop {
        let cost = sys::bytes().saturating_sub(before) / count;
        if cost <= bound || Instant::now() > end {
            return cost;
        }
        match turns {
            0..10 => stage.elapse(Duration::from_secs(1)),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
        turns += 1;
    }
}

/// Asserts that all of these subscribers are there and parked, so that their memory counts.
#[track_caller]
fn are_parked(stage: &Stage, streams: &[TcpStream]) {
    assert_eq!(stage.count(|engine| &engine.parked), streams.len() as u64);
    assert_eq!(stage.channel.as_ref().unwrap().subscribers(), streams.len());
}

#[test]
fn a_parked_subscriber_costs_little() {
    alone(|| {
        let limit = superpoll::limits::raise_descriptors().unwrap();
        if limit < 3 * (BEFORE + COUNTED) as u64 {
            println!("skipped: {limit} descriptors are too few");
            return;
        }
        for backend in [BackendKind::Epoll, BackendKind::Adaptive] {
            for (kind, request, bound) in [
                ("long-poll", POLL, BOUND),
                ("WebSocket", SOCKET, BOUND),
                ("events", EVENTS, EVENTS_BOUND),
            ] {
                // No sign of life comes before the message.
                let stage = stage(backend, 1, "poll = \"1h\"");
                let epoch = format!("{:x}", stage.channel.as_ref().unwrap().epoch());
                let mut streams = Vec::with_capacity(BEFORE + COUNTED);
                subscribe(&stage, request, &mut streams, BEFORE);
                let (before, resident_before) = (sys::bytes(), resident());
                subscribe(&stage, request, &mut streams, COUNTED);
                let cost = settled(&stage, before, COUNTED, bound);
                are_parked(&stage, &streams);
                let more = resident().saturating_sub(resident_before) / COUNTED;
                println!("{backend:?}, {kind}: {cost} bytes allocated, {more} resident");
                assert!(cost <= bound, "{backend:?}: each {kind} costs {cost} bytes");
                if request != POLL {
                    // A message leaves nothing behind.
                    let begun = Instant::now();
                    stage.channel.as_ref().unwrap().publish("message");
                    let event = format!("id: 1-{epoch}\ndata: message\n\n");
                    let expected = match request {
                        SOCKET => b"\x81\x07message".to_vec(),
                        _ => format!("{:x}\r\n{event}\r\n", event.len()).into_bytes(),
                    };
                    let mut found = vec![0; expected.len()];
                    for stream in &mut streams {
                        stream.read_exact(&mut found).unwrap();
                        assert_eq!(found, expected);
                    }
                    println!(
                        "{backend:?}: a message for {} took {:?}",
                        streams.len(),
                        begun.elapsed()
                    );
                    assert_eq!(stage.count(|engine| &engine.parked), streams.len() as u64);
                    let cost = settled(&stage, before, COUNTED, bound);
                    are_parked(&stage, &streams);
                    assert!(
                        cost <= bound,
                        "{backend:?}: each {kind} costs {cost} bytes after that"
                    );
                }
            }
        }
    });
}

/// A log's line is kept until the stream ends, and nothing else of the request.
#[test]
fn a_stream_that_is_logged_does_not_keep_the_buffer_of_its_request() {
    alone(|| {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let text = format!("{}[access_log]\npath = {log:?}\n", clients::text(""));
        let stage = Stage::new(BackendKind::Epoll, 1, &text);
        let mut streams = Vec::with_capacity(1000);
        subscribe(&stage, EVENTS, &mut streams, 200);
        let before = sys::bytes();
        // So many that a list which grows once in a while counts for little.
        subscribe(&stage, EVENTS, &mut streams, 800);
        let cost = sys::bytes().saturating_sub(before) / 800;
        println!("{cost} bytes allocated");
        assert!(cost <= 1024, "each stream costs {cost} bytes");
    });
}
