//! The memory after a flood.

use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

use superpoll_rt::BackendKind;

use super::{POLL, SOCKET, resident, skip_head};
use crate::clients::{address, publish, text};
use crate::stage::{PATIENCE, Stage};
use superpoll_test_support::{alone, connect_narrow};

const MIB: usize = 1 << 20;

#[test]
#[cfg(target_env = "gnu")]
fn memory_is_given_back_after_a_flood() {
    const CLIENTS: usize = 600;
    alone(|| {
        // Nobody reads, and on a slow machine that takes longer than a body may usually pause.
        let text = text("history = 100").replace("[timeouts]\n", "[timeouts]\nbody = \"1h\"\n");
        let stage = Stage::new(BackendKind::Epoll, 1, &text);
        for _ in 0..100 {
            publish(&stage, [b'x'; 65536]);
        }
        // Or the flood would take up what the messages have left.
        crate::sys::trim();
        let (before, allocated) = (resident(), crate::sys::bytes());
        let request = POLL.replace("/c ", "/c?after=0 ");
        let clients: Vec<TcpStream> = (0..CLIENTS)
            .map(|_| {
                let stream = connect_narrow(address(&stage), Some(4096));
                (&stream).write_all(request.as_bytes()).unwrap();
                stream
            })
            .collect();
        clients.iter().for_each(skip_head);
        let end = Instant::now() + PATIENCE;
        // In part in pages that the messages have left.
        while crate::sys::bytes() < allocated + 20 * MIB {
            let flood = crate::sys::bytes().saturating_sub(allocated);
            assert!(Instant::now() < end, "{} MiB", flood / MIB);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        // Some connections that have come last stay: fewer than those whose parking alone makes
        // memory be given back.
        let mut parked = Vec::new();
        let answering = CLIENTS as u64;
        for _ in 0..10 {
            let stream = TcpStream::connect(address(&stage)).unwrap();
            (&stream).write_all(SOCKET.as_bytes()).unwrap();
            skip_head(&stream);
            parked.push(stream);
        }
        stage.until(|engine| &engine.parked, 10);
        stage.until(|engine| &engine.active, answering);
        drop(clients);
        stage.until(|engine| &engine.active, 0);
        // If much was given back during the flood already, the next time may be a minute later.
        let end = Instant::now() + 4 * PATIENCE;
        while resident() > before + 12 * MIB {
            assert!(Instant::now() < end, "{} MiB are kept", (resident() - before) / MIB);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    });
}

/// Heads that never end are most of the memory of an attack, which may come several times.
#[test]
#[cfg(target_env = "gnu")]
fn memory_is_given_back_after_heads_that_have_never_ended() {
    const CLIENTS: usize = 600;
    alone(|| {
        let text = format!("{}[limits]\nheader_bytes = \"64KiB\"\n", text(""));
        let text = text.replace("[timeouts]\n", "[timeouts]\nheader = \"1h\"\n");
        let stage = Stage::new(BackendKind::Epoll, 1, &text);
        crate::sys::trim();
        let (before, allocated) = (resident(), crate::sys::bytes());
        let field = format!("X-Field: {}\r\n", "x".repeat(900));
        let head = format!("GET /c HTTP/1.1\r\nHost: a\r\n{}", field.repeat(60));
        for _ in 0..3 {
            let clients: Vec<TcpStream> = (0..CLIENTS)
                .map(|_| {
                    let mut stream = TcpStream::connect(address(&stage)).unwrap();
                    stream.write_all(head.as_bytes()).unwrap();
                    stream
                })
                .collect();
            let end = Instant::now() + PATIENCE;
            while crate::sys::bytes() < allocated + 30 * MIB {
                let flood = crate::sys::bytes().saturating_sub(allocated);
                assert!(Instant::now() < end, "{} MiB", flood / MIB);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            drop(clients);
            stage.until(|engine| &engine.active, 0);
        }
        let end = Instant::now() + 4 * PATIENCE;
        while resident() > before + 12 * MIB {
            assert!(Instant::now() < end, "{} MiB are kept", (resident() - before) / MIB);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    });
}
