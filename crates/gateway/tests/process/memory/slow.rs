//! The memory that is held for subscribers that read nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use superpoll_rt::BackendKind;

use super::several::settled;
use super::{EVENTS, POLL, SOCKET, skip_head};
use crate::clients::{address, publish, stage, until_subscribers};
use crate::stage::{PATIENCE, Stage};
use crate::sys;
use superpoll_test_support::{alone, connect_narrow};

const MIB: usize = 1 << 20;

/// A client whose kernel takes as little as it can.
fn connect(stage: &Stage, request: &str) -> TcpStream {
    let stream = connect_narrow(address(stage), Some(4096));
    (&stream).write_all(request.as_bytes()).unwrap();
    stream
}

/// Posts a message, and returns the status.
fn post(mut stream: &TcpStream, request: &[u8]) -> u16 {
    stream.write_all(request).unwrap();
    let (mut room, mut length) = ([0; 1024], 0);
    while !room[..length].windows(2).any(|two| two == b"}\n" || two == b"t\n") {
        let count = stream.read(&mut room[length..]).unwrap();
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&room[..length]));
        length += count;
    }
    std::str::from_utf8(&room[9..12]).unwrap().parse().unwrap()
}

#[test]
fn publishers_wait_for_undelivered_messages() {
    const SUBSCRIBERS: usize = 200;
    const PUBLISHERS: usize = 50;
    const EACH: usize = 60;
    alone(|| {
        let stage = stage(BackendKind::Epoll, 1, "slow = \"drop-oldest\", history = 10");
        let subscribers: Vec<TcpStream> =
            (0..SUBSCRIBERS).map(|_| connect(&stage, SOCKET)).collect();
        subscribers.iter().for_each(skip_head);
        until_subscribers(&stage, SUBSCRIBERS);
        let head = "POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: 65536\r\n\r\n";
        let request = [head.as_bytes(), &[b'x'; 65536]].concat();
        let publishers: Vec<TcpStream> =
            (0..PUBLISHERS).map(|_| TcpStream::connect(address(&stage)).unwrap()).collect();
        let (before, published) = (sys::bytes(), AtomicUsize::new(0));
        sys::peak();
        std::thread::scope(|scope| {
            for publisher in &publishers {
                scope.spawn(|| {
                    publisher.set_read_timeout(Some(PATIENCE)).unwrap();
                    for _ in 0..EACH {
                        let status = post(publisher, &request);
                        assert!(matches!(status, 201 | 503), "{status}");
                        published.fetch_add(usize::from(status == 201), Ordering::Relaxed);
                    }
                });
            }
        });
        let peak = sys::peak().saturating_sub(before);
        let published = published.into_inner();
        println!("{} MiB published, at most {} MiB held", published / 16, peak / MIB);
        let hub = stage.channel.as_ref().unwrap();
        assert_eq!(hub.last(), published as u64);
        assert!(published > EACH, "some are let in");
        // The history, the messages on their way, and for each connection its buffers.
        let bound = 8 * MIB + (SUBSCRIBERS + 2 * PUBLISHERS) * 128 * 1024;
        assert!(peak < bound, "{} of {} MiB", peak / MIB, bound / MIB);
    });
}

#[test]
fn the_history_is_not_copied_for_clients_that_do_not_read() {
    const CLIENTS: usize = 60;
    const HISTORY: usize = 100;
    alone(|| {
        for (kind, request) in [
            ("long-poll", POLL.to_owned()),
            ("WebSocket", SOCKET.to_owned()),
            ("events", EVENTS.to_owned()),
        ] {
            let stage = stage(BackendKind::Epoll, 1, "slow = \"drop-oldest\"");
            for _ in 0..HISTORY {
                publish(&stage, [b'x'; 65536]);
            }
            let request = request.replace("/c ", "/c?after=0 ");
            let before = sys::bytes();
            sys::peak();
            let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(&stage, &request)).collect();
            clients.iter().for_each(skip_head);
            // The client has asked for more than the kernel's buffers hold; wait until nothing
            // moves.
            settled();
            let each = sys::peak().saturating_sub(before) / CLIENTS;
            println!("{kind}: {} KiB each", each / 1024);
            assert!(each < 320 * 1024, "{kind}: {} KiB each", each / 1024);
            // A client that reads gets all of it.
            let mut client = stage.connect();
            client.send("GET /c?after=0 HTTP/1.0\r\nhost: a\r\n\r\n");
            let mut all = Vec::new();
            client.0.read_to_end(&mut all).unwrap();
            let begin = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            let json: serde_json::Value = serde_json::from_slice(&all[begin..]).unwrap();
            assert_eq!(json["messages"].as_array().unwrap().len(), HISTORY);
            assert_eq!(json["next"], HISTORY);
            assert!(json.get("missed").is_none());
        }
    });
}

/// Each ping asks for a pong, which waits for room; until then the client is not read.
#[test]
fn a_client_that_sends_and_does_not_read_is_not_read_either() {
    const CLIENTS: usize = 30;
    alone(|| {
        let stage = stage(BackendKind::Epoll, 1, "");
        let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(&stage, SOCKET)).collect();
        clients.iter().for_each(skip_head);
        until_subscribers(&stage, CLIENTS);
        let ping = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[b'?'; 125]].concat();
        let pings = ping.repeat(100);
        let before = sys::bytes();
        sys::peak();
        // Until neither kernel takes more. A frame that is cut is continued.
        let mut sent = [0; CLIENTS];
        let (mut idle_rounds, end) = (0, Instant::now() + PATIENCE);
        while idle_rounds < 10 {
            assert!(Instant::now() < end, "{sent:?} bytes were taken");
            idle_rounds += 1;
            for (mut client, sent) in clients.iter().zip(&mut sent) {
                client.set_nonblocking(true).unwrap();
                while let Ok(count) = client.write(&pings[*sent % pings.len()..]) {
                    *sent += count;
                    idle_rounds = 0;
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let each = sys::peak().saturating_sub(before) / CLIENTS;
        println!(
            "{} KiB each, {} KiB sent",
            each / 1024,
            sent.iter().sum::<usize>() / CLIENTS / 1024
        );
        assert!(sent.iter().all(|sent| *sent > 100_000), "{sent:?}");
        assert!(each < 320 * 1024, "{} KiB each", each / 1024);
        assert_eq!(stage.channel.as_ref().unwrap().subscribers(), CLIENTS);
    });
}
