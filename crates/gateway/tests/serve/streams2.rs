//! Streams of HTTP/2, frame by frame: windows, early ends, and bytes before a WebSocket begins.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::time::Duration;

use superpoll_rt::BackendKind;

use crate::frames2::{DATA, Frame, Frames2, GOAWAY, HEADERS, LARGEST, PING, RST_STREAM};
use crate::http2::{Trust, port};
use crate::stage::{BACKENDS, PATIENCE, Stage, folder};

const SIZE: usize = 64 << 10;

/// The byte at a place of a file of this size.
fn byte(place: usize) -> u8 {
    (place / 256 + place) as u8
}

/// More streams than may hold a part of their response each, none of which has a window at first.
#[test]
fn responses_without_a_window_come_whole_when_there_is_one() {
    let folder = folder();
    std::fs::write(folder.path().join("some.bin"), (0..SIZE).map(byte).collect::<Vec<u8>>())
        .unwrap();
    let trust = Trust::new(&[b"h2"]);
    for backend in BACKENDS {
        let text = trust.text(folder.path()).replace("[timeouts]", "[timeouts]\nbody = \"600s\"");
        let stage = Stage::new(backend, 1, &text);
        let stream = TcpStream::connect(("127.0.0.1", port(&stage))).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Frames2::over(stream, &trust.config, 0);
        let streams: Vec<u32> = (0..100).map(|index| 2 * index + 1).collect();
        let requests: Vec<Frame> =
            streams.iter().map(|stream| Frame::get(*stream, "/some.bin")).collect();
        client.send(&requests);
        // All heads come, and some of the streams end without their bodies.
        let mut heads = 0;
        while heads < streams.len() {
            heads += usize::from(client.next().expect("the connection goes on").kind == HEADERS);
        }
        let (reset, open): (Vec<u32>, Vec<u32>) = streams.iter().partition(|it| **it % 5 == 0);
        let resets: Vec<Frame> =
            reset.iter().map(|stream| Frame::new(RST_STREAM, 0, *stream, &[0, 0, 0, 8])).collect();
        client.send(&resets);
        let mut read: BTreeMap<u32, usize> = open.iter().map(|stream| (*stream, 0)).collect();
        // A few at a time, and the last ones first.
        for some in open.rchunks(7) {
            let updates: Vec<Frame> =
                some.iter().map(|stream| Frame::window_update(*stream, SIZE as u32)).collect();
            client.send(&updates);
            let mut left = some.len();
            while left > 0 {
                let frame = client.next().expect("the connection goes on");
                assert_eq!(frame.kind, DATA, "{backend:?}");
                let place = read.get_mut(&frame.stream).unwrap();
                for found in &frame.payload {
                    assert_eq!(*found, byte(*place));
                    *place += 1;
                }
                if frame.flags & 1 > 0 {
                    assert_eq!(*place, SIZE);
                    left -= 1;
                }
            }
        }
        stage.until(|engine| &engine.running, 0);
    }
}

/// The rest of the upload is not waited for.
#[test]
fn a_response_before_the_end_of_its_request_ends_the_stream() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let stage = Stage::new(BackendKind::Epoll, 1, &trust.text(folder.path()));
    let mut client = Frames2::connect(port(&stage), &trust.config, LARGEST / 2);
    for stream in [1, 3, 5] {
        let mut post = Frame::request(stream, "POST", "/small.txt");
        post.flags = 0b100;
        client.send(&[post, Frame::new(DATA, 0, stream, &[7; 1000])]);
        let mut kinds = Vec::new();
        while kinds.last() != Some(&RST_STREAM) {
            let frame = client.next().expect("the connection goes on");
            if frame.stream == stream {
                if frame.kind == RST_STREAM {
                    assert_eq!(frame.payload, [0; 4], "there is no error");
                }
                kinds.push(frame.kind);
            }
        }
        assert_eq!(kinds.first(), Some(&HEADERS));
        // What was under way does no harm.
        client.send(&[Frame::new(DATA, 0, stream, &[7; 1000])]);
    }
    stage.until(|engine| &engine.running, 0);
}

/// A client that does not wait for the answer to its handshake.
#[test]
fn bytes_before_a_websocket_has_begun_are_its_first() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let text = trust.text(folder.path())
        + "[[hosts.routes]]\npath = \"/c\"\nchannel = { publish = \"anyone\" }\n";
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text);
        let mut client = Frames2::connect(port(&stage), &trust.config, LARGEST / 2);
        let mut connect = Frame::request(1, "CONNECT", "/c");
        connect.flags = 0b100;
        let connect = connect.with(":protocol", "websocket").with("sec-websocket-version", "13");
        // A text, masked by zeros.
        let early = b"\x81\x85\0\0\0\0early";
        client.send(&[connect, Frame::new(DATA, 0, 1, early)]);
        let mut read = Vec::new();
        while !read.ends_with(b"\x81\x05early") {
            let frame = client.next().expect("the connection goes on");
            if frame.stream == 1 {
                assert!([HEADERS, DATA].contains(&frame.kind), "{backend:?}: {frame:?}");
                read.extend_from_slice(&frame.payload);
            }
        }
    }
}

/// It ends in any case, whatever other frames come.
#[test]
fn a_client_that_ignores_the_end_of_a_connection_does_not_keep_it() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let text = trust.text(folder.path()).replace("park", "idle = \"60s\"\nheader = \"20s\"\npark");
    let stage = Stage::new(BackendKind::Epoll, 1, &text);
    let mut client = Frames2::connect(port(&stage), &trust.config, LARGEST / 2);
    client.send(&[Frame::get(1, "/small.txt")]);
    while client.next().expect("the connection goes on").kind != DATA {}
    stage.elapse(Duration::from_secs(65));
    let there = || stage.count(|engine| &engine.parked) + stage.count(|engine| &engine.active);
    let passed = stage.elapse_until(Duration::from_secs(2), Duration::from_secs(200), || {
        let _ = client.try_send(&[Frame::new(PING, 0, 0, &[7; 8])]);
        there() == 0
    });
    assert!(passed < Duration::from_secs(100), "{passed:?}");
    let mut told = 0;
    while let Some(frame) = client.next() {
        told += u32::from(frame.kind == GOAWAY);
    }
    assert!(told > 0);
}
