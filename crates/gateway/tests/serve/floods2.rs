//! HTTP/2 clients that send more than they may, or more than is of use. Each comes to an end, and
//! the server serves others.

use std::collections::BTreeSet;
use std::time::Instant;

use superpoll_rt::BackendKind;

use crate::frames2::{
    CONTINUATION, DATA, Frame, Frames2, GOAWAY, HEADERS, LARGEST, PING, RST_STREAM, SETTINGS,
};
use crate::http2::{Trust, port};
use crate::stage::{PATIENCE, Stage, folder};

/// The most requests of a connection at a time.
const STREAMS: u32 = 128;

/// Error codes (RFC 9113, section 7).
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

struct Scene {
    _folder: tempfile::TempDir,
    trust: Trust,
    stage: Stage,
}

impl Scene {
    fn new() -> Scene {
        Scene::with("")
    }

    fn with(timeouts: &str) -> Scene {
        let (folder, trust) = (folder(), Trust::new(&[b"h2"]));
        let more = format!("[limits]\nheader_bytes = \"8KiB\"\n[timeouts]\n{timeouts}");
        let text = trust.text(folder.path()).replace("[timeouts]\n", &more);
        let stage = Stage::new(BackendKind::Epoll, 1, &text);
        Scene { _folder: folder, trust, stage }
    }

    fn connect(&self, window: u32) -> Frames2 {
        let mut client = Frames2::connect(port(&self.stage), &self.trust.config, window);
        client.send(&[Frame::new(SETTINGS, 1, 0, &[])]);
        client
    }

    /// Reads to the end of the connection, and returns the last reason that was given for it.
    fn reason(client: &mut Frames2) -> Option<u32> {
        let mut reason = None;
        while let Some(frame) = client.next() {
            if frame.kind == GOAWAY {
                reason = Some(code(&frame.payload[4..]));
            }
        }
        reason
    }

    /// Another client is served, and nothing is left of the first.
    fn goes_on(self) {
        let mut other = self.connect(LARGEST);
        other.send(&[Frame::get(1, "/small.txt")]);
        while other.next().expect("the server goes on").kind != DATA {}
        // Not while the other client is there, whose connection may be parked or end meanwhile.
        drop(other);
        self.stage.until(|engine| &engine.active, 0);
        self.stage.until(|engine| &engine.parked, 0);
        assert_eq!(self.stage.drained(), 0);
    }
}

fn code(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

fn reset(stream: u32) -> Frame {
    Frame::new(RST_STREAM, 0, stream, &[0, 0, 0, 8])
}

/// The first streams, by their numbers.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|index| 2 * index + 1)
}

#[test]
fn streams_beyond_the_limit_are_refused_and_the_others_go_on() {
    let scene = Scene::new();
    // Their responses wait for a window.
    let mut client = scene.connect(0);
    let requests: Vec<Frame> =
        streams(STREAMS + 10).map(|stream| Frame::get(stream, "/small.txt")).collect();
    client.send(&requests);
    let (mut answered, mut refused) = (BTreeSet::new(), BTreeSet::new());
    while answered.len() + refused.len() < requests.len() {
        let frame = client.next().expect("the connection goes on");
        if frame.kind == HEADERS {
            answered.insert(frame.stream);
        } else if frame.kind == RST_STREAM {
            assert_eq!(code(&frame.payload), REFUSED_STREAM);
            refused.insert(frame.stream);
        }
    }
    assert!(answered.into_iter().eq(streams(STREAMS)));
    assert!(refused.into_iter().eq(streams(STREAMS + 10).skip(STREAMS as usize)));
    // When one has ended, another may begin.
    let next = 2 * STREAMS + 101;
    client.send(&[Frame::window_update(1, 6)]);
    while client.next().expect("the connection goes on").kind != DATA {}
    client.send(&[Frame::get(next, "/small.txt"), Frame::window_update(next, 6)]);
    loop {
        let frame = client.next().expect("the connection goes on");
        if frame.kind == DATA {
            assert_eq!((frame.stream, &frame.payload[..]), (next, &b"hello\n"[..]));
            break;
        }
    }
    drop(client);
    scene.goes_on();
}

#[test]
fn a_client_that_does_not_stop_at_the_limit_is_told_to_go_away() {
    let scene = Scene::new();
    let mut client = scene.connect(0);
    // Those beyond the limit are refused, up to 1024 of them.
    let requests: Vec<Frame> =
        streams(STREAMS + 1200).map(|stream| Frame::get(stream, "/small.txt")).collect();
    let _ = client.try_send(&requests);
    assert_eq!(Scene::reason(&mut client), Some(ENHANCE_YOUR_CALM));
    drop(client);
    scene.goes_on();
}

#[test]
fn streams_that_are_reset_at_once_end_the_connection() {
    let scene = Scene::new();
    let mut client = scene.connect(LARGEST);
    // The server sees many of them at a time.
    let frames: Vec<Frame> =
        streams(200).flat_map(|stream| [Frame::get(stream, "/large.bin"), reset(stream)]).collect();
    let _ = client.try_send(&frames);
    assert_eq!(Scene::reason(&mut client), Some(ENHANCE_YOUR_CALM));
    drop(client);
    scene.goes_on();
}

#[test]
fn fields_without_an_end_end_the_connection() {
    let scene = Scene::new();
    for is_empty in [true, false] {
        let mut client = scene.connect(LARGEST);
        let mut begin = Frame::get(1, "/small.txt");
        begin.flags = 1;
        // A field that is not to be remembered.
        let field: &[u8] = if is_empty { &[] } else { b"\x00\x01a\x01b" };
        let mut frames = vec![begin];
        frames.extend((0..1000).map(|_| Frame::new(CONTINUATION, 0, 1, field)));
        let _ = client.try_send(&frames);
        assert_eq!(Scene::reason(&mut client), Some(ENHANCE_YOUR_CALM), "{is_empty}");
    }
    scene.goes_on();
}

#[test]
fn fields_that_are_too_large_are_refused() {
    let scene = Scene::new();
    let mut client = scene.connect(LARGEST);
    // 9 KiB as they are.
    let mut large = Frame::get(1, "/small.txt");
    for _ in 0..90 {
        large.payload.extend_from_slice(&[0, 1, b'a', 100]);
        large.payload.extend_from_slice(&[b'x'; 100]);
    }
    client.send(&[large, Frame::get(3, "/small.txt")]);
    let mut is_served = false;
    let mut is_refused = false;
    while !is_served || !is_refused {
        let frame = client.next().expect("the connection goes on");
        is_served |= (frame.kind, frame.stream) == (DATA, 3);
        if frame.kind == HEADERS && frame.stream == 1 {
            // The status is one that has no index of its own.
            let text = String::from_utf8_lossy(&frame.payload);
            assert!(frame.payload[0] != 0x88, "{text}");
            is_refused = true;
        }
        is_refused |= (frame.kind, frame.stream) == (RST_STREAM, 1);
    }
    // A few bytes that stand for many: a field of 4000 bytes, and 3000 times its index.
    let mut bomb = Frame::get(5, "/small.txt");
    bomb.payload.extend_from_slice(&[0x40, 1, b'a', 0x7f]);
    // 4000 = 127 + 3873, seven bits at a time.
    bomb.payload.extend_from_slice(&[0xa1, 0x1e]);
    bomb.payload.extend_from_slice(&[b'x'; 4000]);
    bomb.payload.extend_from_slice(&[0xbe; 3000]);
    let _ = client.try_send(&[bomb]);
    assert_eq!(Scene::reason(&mut client), Some(ENHANCE_YOUR_CALM));
    drop(client);
    scene.goes_on();
}

#[test]
fn many_frames_without_a_byte_of_a_body_end_the_connection() {
    let scene = Scene::new();
    let mut client = scene.connect(LARGEST);
    let mut post = Frame::get(1, "/small.txt");
    (post.payload[0], post.flags) = (0x83, 0b100);
    // Each stream that is open may send some.
    client.send(&[post]);
    let frames = vec![Frame::new(DATA, 0, 1, &[]); 1000];
    let end = Instant::now() + PATIENCE;
    while client.try_send(&frames).is_ok() {
        assert!(Instant::now() < end);
    }
    drop(client);
    scene.goes_on();
}

/// The server answers each of these frames, so it reads no more as soon as the answers find no
/// room.
#[test]
fn a_client_that_does_not_read_the_answers_to_its_frames_is_not_waited_for() {
    for (kind, payload) in [(PING, &[7; 8][..]), (SETTINGS, &[0, 2, 0, 0, 0, 0][..])] {
        // Where the kernels have room for all of the answers, nothing moves for lack of a request.
        let scene = Scene::with("body = \"400ms\"\nheader = \"3s\"\n");
        let mut client = scene.connect(LARGEST);
        let frames = vec![Frame::new(kind, 0, 0, payload); 1000];
        let end = Instant::now() + PATIENCE;
        while client.try_send(&frames).is_ok() {
            assert!(Instant::now() < end);
        }
        scene.stage.until(|engine| &engine.timed_out, 1);
        scene.goes_on();
    }
}
