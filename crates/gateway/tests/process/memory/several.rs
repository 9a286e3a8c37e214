//! The memory of connections that have several channels.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use superpoll_gateway::Address;
use superpoll_rt::BackendKind;

use crate::stage::{PATIENCE, Stage};
use crate::sys;
use superpoll_test_support::alone;

const CONNECTIONS: usize = 40;
const FEW: usize = 2;
const MANY: usize = 52;

/// The most memory of a connection without its channels, and of each channel of it, in bytes.
const OF_CONNECTION: usize = 28 << 10;
const OF_CHANNEL: usize = 512;

/// Opens a connection to the first channels, and reads until the stream has begun.
fn open(stage: &Stage, channels: usize, fields: &str) -> TcpStream {
    let Address::Tcp { host, port } = &stage.addresses[0] else { panic!("it is TCP") };
    let mut stream = TcpStream::connect((host.as_deref().unwrap(), *port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let also: String = (1..channels).map(|number| format!("&also=/rooms/{number}")).collect();
    let head = format!("GET /rooms/0?x{also} HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0);
        if line == "\r\n" {
            return reader.into_inner();
        }
        assert!(!line.starts_with("HTTP/1.1 4"), "{line}");
    }
}

/// Waits until nothing is allocated or freed any more, and returns the bytes in use.
pub(crate) fn settled() -> usize {
    let (mut last, end) = (0, Instant::now() + PATIENCE);
    while last != sys::bytes() {
        assert!(Instant::now() < end);
        last = sys::bytes();
        std::thread::sleep(Duration::from_millis(100));
    }
    last
}

#[test]
fn a_connection_with_several_channels_takes_little_for_each() {
    alone(|| {
        for (kind, fields) in [
            ("server-sent events", "accept: text/event-stream\r\n"),
            (
                "superpoll.v1",
                "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
             sec-websocket-protocol: superpoll.v1\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            ),
        ] {
            let stage = Stage::new(
                BackendKind::Epoll,
                1,
                "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
             [[hosts]]\n[[hosts.routes]]\npath = \"/rooms/{room}\"\nchannel = { poll = \"10m\" }\n",
            );
            // The channels themselves, and what a first connection makes.
            let first = open(&stage, MANY, fields);
            let cost = |channels: usize| {
                let before = settled();
                let all: Vec<TcpStream> =
                    (0..CONNECTIONS).map(|_| open(&stage, channels, fields)).collect();
                let cost = settled().saturating_sub(before) / CONNECTIONS;
                stage.until(|engine| &engine.active, CONNECTIONS as u64 + 1);
                drop(all);
                stage.until(|engine| &engine.active, 1);
                cost
            };
            // The tables have grown once.
            cost(MANY);
            let (few, many) = (cost(FEW), cost(MANY));
            let each = many.saturating_sub(few) / (MANY - FEW);
            println!("{kind}: {few} bytes with {FEW} channels, {each} for each further one");
            assert!(each > 50, "{each} bytes are too few to be true");
            assert!(few <= OF_CONNECTION + FEW * OF_CHANNEL, "{kind}: {few}");
            assert!(each <= OF_CHANNEL, "{kind}: {each} for each channel");
            drop(first);
        }
    });
}
