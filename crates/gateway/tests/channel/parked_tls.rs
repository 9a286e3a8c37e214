//! Subscribers over encrypted connections, which are parked between two records.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::ServerName;
use futures_rustls::rustls::version::{TLS12, TLS13};
use futures_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};
use superpoll_gateway::Address;
use superpoll_rt::BackendKind;
use superpoll_test_support::connect_narrow;

use crate::clients::{post, publish, text, until_subscribers};
use crate::stage::{BACKENDS, PATIENCE, Stage};
use crate::tls::Trust;

const LAST: &str = "MESSAGE:120|;";

const ROOM: &str =
    "history = 1000, backlog_bytes = \"64MiB\", queue_bytes = \"64MiB\", message_bytes = \"1MiB\"";

/// A plain listener to publish at, and one that encrypts.
fn stage(trust: &Trust, backend: BackendKind) -> Stage {
    let encrypted = format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n{}", trust.tls());
    let text = text(ROOM).replace("[timeouts]", &format!("{encrypted}[timeouts]"));
    Stage::new(backend, 1, &text)
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Connects with one of the suites of a version, in turn.
fn connect(stage: &Stage, trust: &Trust, number: usize) -> Stream {
    let mut provider = ring::default_provider();
    // Those that go with the certificate's kind of key.
    let suite = provider.cipher_suites[number % 6];
    provider.cipher_suites = vec![suite];
    let version = if suite.tls13().is_some() { &TLS13 } else { &TLS12 };
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(trust.roots())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let Address::Tcp { port, .. } = stage.addresses[1] else { panic!("it is TCP") };
    let stream = connect_narrow(("127.0.0.1", port), Some(16 << 10));
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(client, stream)
}

/// Reads as many bytes as there have to be, slowly at times, and changes keys in between.
fn read_all(stream: &mut Stream, length: usize, number: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut room = vec![0; 30_000];
    for round in 0.. {
        if all.len() >= length {
            break;
        }
        if round % 7 == number % 7 {
            thread::sleep(Duration::from_millis(5));
        }
        if round % 11 == 3 && stream.conn.protocol_version() == Some(TLS13.version) {
            stream.conn.refresh_traffic_keys().unwrap();
            stream.flush().unwrap();
        }
        let count = stream.read(&mut room);
        match count
            .unwrap_or_else(|error| panic!("{error} behind {}", String::from_utf8_lossy(&all)))
        {
            0 => panic!("the end after {} of {length} bytes", all.len()),
            count => all.extend_from_slice(&room[..count]),
        }
    }
    all
}

/// The bodies of messages are taken out of what a subscriber was sent; each stands between marks.
fn bodies(bytes: &[u8]) -> Vec<usize> {
    let text = String::from_utf8_lossy(bytes);
    let mut found = Vec::new();
    for part in text.split("MESSAGE:").skip(1) {
        let (number, rest) = part.split_once('|').unwrap();
        let number: usize = number.parse().unwrap();
        let body: String = rest.chars().take_while(|one| *one != ';').collect();
        assert!(body == expected_body(number), "message {number}");
        found.push(number);
    }
    found
}

/// From a byte to more than a record, and now and then far more than a socket has room for.
fn expected_body(number: usize) -> String {
    let length = match number % 10 {
        9 => 400_000,
        8 => 16_384,
        rest => rest * rest * 30,
    };
    char::from(b'a' + (number % 26) as u8).to_string().repeat(length)
}

/// In each suite, each form of subscription gets each message once and in order: whether the
/// connection is parked, has no room, or changes its keys.
#[test]
fn every_message_arrives_once_and_in_order() {
    const MESSAGES: usize = 120;
    let trust = Trust::new(&[]);
    for backend in [BACKENDS[0], BACKENDS[BACKENDS.len() - 1]] {
        let stage = stage(&trust, backend);
        let requests = [
            "GET /c HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n",
            "GET /c HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
            "GET /c HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
             sec-websocket-protocol: superpoll.v1\r\n\r\n",
        ];
        let mut streams = Vec::new();
        for number in 0..27 {
            let mut stream = connect(&stage, &trust, number);
            stream.write_all(requests[number % 3].as_bytes()).unwrap();
            streams.push(stream);
        }
        until_subscribers(&stage, streams.len());
        stage.until(|engine| &engine.parked, streams.len() as u64);
        let is_published = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = streams
            .into_iter()
            .enumerate()
            .map(|(number, mut stream)| {
                let is_published = is_published.clone();
                thread::spawn(move || {
                    if number % 4 == 1 {
                        // Its socket is full by then.
                        while !is_published.load(Ordering::Acquire) {
                            thread::sleep(Duration::from_millis(1));
                        }
                    }
                    let mut all = Vec::new();
                    let has_last = |all: &[u8]| {
                        let tail = &all[all.len().saturating_sub(64)..];
                        tail.windows(LAST.len()).any(|window| window == LAST.as_bytes())
                    };
                    while !has_last(&all) {
                        let more = read_all(&mut stream, 1, number);
                        all.extend_from_slice(&more);
                    }
                    (bodies(&all), stream)
                })
            })
            .collect();
        let mut publisher = stage.connect();
        for number in 0..MESSAGES {
            post(&mut publisher, format!("MESSAGE:{number}|{};", expected_body(number)));
        }
        post(&mut publisher, LAST);
        is_published.store(true, Ordering::Release);
        drop(publisher);
        let mut streams = Vec::new();
        for reader in readers {
            let (found, stream) = reader.join().unwrap();
            assert_eq!(found, (0..=MESSAGES).collect::<Vec<_>>(), "{backend:?}");
            streams.push(stream);
        }
        stage.until(|engine| &engine.parked, streams.len() as u64);
        drop(streams);
        until_subscribers(&stage, 0);
    }
}

/// A long-poll is parked, and its connection goes on with the next request.
#[test]
fn a_long_poll_waits_in_the_parking_lot_and_its_connection_goes_on() {
    let trust = Trust::new(&[]);
    for (number, backend) in BACKENDS.into_iter().enumerate() {
        let stage = stage(&trust, backend);
        let mut stream = connect(&stage, &trust, 2 * number);
        for round in 1..=3 {
            let request = format!("GET /c?after={} HTTP/1.1\r\nhost: a\r\n\r\n", round - 1);
            stream.write_all(request.as_bytes()).unwrap();
            until_subscribers(&stage, 1);
            stage.until(|engine| &engine.parked, 1);
            publish(&stage, format!("message {round}"));
            let mut all = Vec::new();
            while !all.ends_with(b"}\n") {
                all.extend(read_all(&mut stream, 1, 1));
            }
            let text = String::from_utf8(all).unwrap();
            assert!(text.contains(&format!("message {round}")), "{text}");
        }
    }
}

/// A client that says something while it waits is answered before its time, and loses nothing.
#[test]
fn what_a_client_sends_behind_a_long_poll_ends_its_wait() {
    let trust = Trust::new(&[]);
    let stage = stage(&trust, BACKENDS[0]);
    let mut stream = connect(&stage, &trust, 0);
    let request = b"GET /c HTTP/1.1\r\nhost: a\r\n\r\n";
    stream.write_all(request).unwrap();
    stage.until(|engine| &engine.parked, 1);
    // Half of the next request, and then the rest: both are answered.
    stream.write_all(b"GET /missing HTTP/1.1\r\n").unwrap();
    let mut all = Vec::new();
    while !all.ends_with(b"\r\n\r\n") {
        all.extend(read_all(&mut stream, 1, 1));
    }
    assert!(all.starts_with(b"HTTP/1.1 204"), "{}", String::from_utf8_lossy(&all));
    stream.write_all(b"host: a\r\n\r\n").unwrap();
    let all = read_all(&mut stream, 12, 1);
    assert!(all.starts_with(b"HTTP/1.1 404"), "{}", String::from_utf8_lossy(&all));
}

/// A record in parts, garbage, and ends of all kinds at a parked connection: the subscriber goes,
/// and the client is told why.
#[test]
fn a_parked_client_that_breaks_the_protocol_is_told_and_removed() {
    let trust = Trust::new(&[]);
    for backend in BACKENDS {
        let stage = stage(&trust, backend);
        for (accept, bytes) in [
            ("text/event-stream", &b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..]),
            ("text/event-stream", &[23, 3, 3, 0xff, 0xff]),
            (
                "text/event-stream",
                &[23, 3, 3, 0, 19, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            ),
            ("*/*", &[21, 3, 3, 0, 2, 1, 0]),
        ] {
            let mut stream = connect(&stage, &trust, 0);
            let request = format!("GET /c HTTP/1.1\r\nhost: a\r\naccept: {accept}\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            until_subscribers(&stage, 1);
            stage.until(|engine| &engine.parked, 1);
            stream.sock.write_all(bytes).unwrap();
            until_subscribers(&stage, 0);
            let end = Instant::now() + PATIENCE;
            let mut room = [0; 4096];
            let error = loop {
                assert!(Instant::now() < end);
                match stream.read(&mut room) {
                    Ok(0) => break io::Error::other("an end as if nothing had happened"),
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert!(error.to_string().contains("alert"), "{backend:?}: {error}");
        }
        // A part of a record only keeps its own connection busy.
        let mut stream = connect(&stage, &trust, 0);
        stream
            .write_all(b"GET /c HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n")
            .unwrap();
        until_subscribers(&stage, 1);
        stage.until(|engine| &engine.parked, 1);
        stream.sock.write_all(&[23, 3, 3]).unwrap();
        stage.until(|engine| &engine.parked, 0);
        publish(&stage, "it still gets this");
        let mut all = Vec::new();
        while !String::from_utf8_lossy(&all).contains("it still gets this") {
            all.extend(read_all(&mut stream, 1, 1));
        }
        drop(stream);
        until_subscribers(&stage, 0);
    }
}

/// The beginning of a record does not keep an idle connection longer than that of a request, and a
/// stream of events no longer than two silences.
#[test]
fn the_beginning_of_a_record_is_not_waited_for_indefinitely() {
    let trust = Trust::new(&[]);
    for backend in [BACKENDS[0], BACKENDS[BACKENDS.len() - 1]] {
        let encrypted = format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n{}", trust.tls());
        // A silence is ten minutes.
        let text = text("poll = \"20m\"").replace(
            "[timeouts]",
            &format!("{encrypted}[timeouts]\nheader = \"1h\"\nidle = \"1d\""),
        );
        let stage = Stage::new(backend, 1, &text);
        let mut idle = connect(&stage, &trust, 0);
        idle.write_all(b"GET /nothing HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        assert!(idle.read(&mut [0; 4096]).unwrap() > 0);
        stage.until(|engine| &engine.parked, 1);
        let mut events = connect(&stage, &trust, 1);
        events
            .write_all(b"GET /c HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n")
            .unwrap();
        until_subscribers(&stage, 1);
        stage.until(|engine| &engine.parked, 2);
        for stream in [&mut idle, &mut events] {
            stream.sock.write_all(&[23, 3, 3, 0]).unwrap();
        }
        stage.until(|engine| &engine.parked, 0);
        let minutes = |count: u64| Duration::from_secs(60 * count);
        stage.elapse(minutes(8));
        until_subscribers(&stage, 1);
        stage.elapse(minutes(15));
        until_subscribers(&stage, 0);
        stage.elapse(minutes(30));
        assert_eq!(stage.count(|engine| &engine.timed_out), 0, "{backend:?}");
        stage.elapse(minutes(15));
        stage.until(|engine| &engine.timed_out, 1);
        stage.until(|engine| &engine.active, 0);
        drop((idle, events));
        assert_eq!(stage.drained(), 0);
    }
}
