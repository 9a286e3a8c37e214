//! The memory of subscribers and publishers: those that wait for a message, and those that do not
//! read.

#[path = "../channel/clients.rs"]
#[expect(dead_code, reason = "shared with the other tests of channels")]
mod clients;
#[path = "../serve/frames2.rs"]
#[expect(dead_code, reason = "shared with the tests of the web server")]
mod frames2;
mod given_back;
mod names;
mod slow;
#[path = "../serve/stage.rs"]
#[expect(dead_code, reason = "shared with the tests of the web server")]
mod stage;
mod streams;
mod sys;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use clients::{address, stage, until_subscribers};
use stage::Stage;
use superpoll_rt::BackendKind;

#[global_allocator]
static ALLOCATOR: sys::Counting = sys::Counting;

/// One test counts at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of connections before the measurement, and the number at it.
const BEFORE: usize = 500;
const COUNTED: usize = 4000;

/// The most memory of each connection, in bytes.
const BOUND: usize = 2048;

const POLL: &str = "GET /c HTTP/1.1\r\nhost: a\r\n\r\n";
const SOCKET: &str = "GET /c HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
     sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Reads the head of a response without a heap.
fn skip_head(mut stream: &TcpStream) {
    let (mut last, mut byte) = ([0; 4], [0]);
    while &last != b"\r\n\r\n" {
        stream.read_exact(&mut byte).unwrap();
        last.rotate_left(1);
        last[3] = byte[0];
    }
}

fn subscribe(stage: &Stage, request: &str, to: &mut Vec<TcpStream>, count: usize) {
    let address = address(stage);
    for _ in 0..count {
        let stream = TcpStream::connect(&address).unwrap();
        (&stream).write_all(request.as_bytes()).unwrap();
        if request == SOCKET {
            skip_head(&stream);
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

#[test]
fn a_parked_subscriber_costs_at_most_2_kib() {
    let _alone = alone();
    let limit = superpoll::limits::raise_descriptors().unwrap();
    if limit < 3 * (BEFORE + COUNTED) as u64 {
        println!("skipped: {limit} descriptors are too few");
        return;
    }
    for backend in [BackendKind::Epoll, BackendKind::Adaptive] {
        for (kind, request) in [("long-poll", POLL), ("WebSocket", SOCKET)] {
            let stage = stage(backend, 1, "");
            let mut streams = Vec::with_capacity(BEFORE + COUNTED);
            subscribe(&stage, request, &mut streams, BEFORE);
            let (before, resident_before) = (sys::bytes(), resident());
            subscribe(&stage, request, &mut streams, COUNTED);
            let cost = sys::bytes().saturating_sub(before) / COUNTED;
            let more = resident().saturating_sub(resident_before) / COUNTED;
            println!("{backend:?}, {kind}: {cost} bytes allocated, {more} resident");
            assert!(cost <= BOUND, "{backend:?}: each {kind} costs {cost} bytes");
            if request == SOCKET {
                // A message leaves nothing behind.
                let begun = Instant::now();
                stage.channel.as_ref().unwrap().publish("message");
                let mut frame = [0; 9];
                for stream in &mut streams {
                    stream.read_exact(&mut frame).unwrap();
                    assert_eq!(&frame, b"\x81\x07message");
                }
                println!("{backend:?}: a message for {} took {:?}", streams.len(), begun.elapsed());
                assert_eq!(stage.count(|engine| &engine.parked), streams.len() as u64);
                let cost = sys::bytes().saturating_sub(before) / COUNTED;
                assert!(cost <= BOUND, "{backend:?}: each {kind} costs {cost} bytes after that");
            }
        }
    }
}
