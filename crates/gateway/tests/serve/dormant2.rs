//! HTTP/2 connections that are parked while they are idle: clients do not notice it.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use superpoll_rt::BackendKind;

use crate::frames2::{
    DATA, Frame, Frames2, GOAWAY, HEADERS, LARGEST, PING, PRIORITY, RST_STREAM, SETTINGS,
    WINDOW_UPDATE,
};
use crate::http2::{Trust, port};
use crate::stage::{BACKENDS, PATIENCE, Stage, folder};

/// The settings by which the server takes the table of fields away, and gives it back.
const NO_TABLE: &[u8] = &[0, 1, 0, 0, 0, 0];
const TABLE: &[u8] = &[0, 1, 0, 0, 0x10, 0];

/// Longer than a connection without a request is left as it is.
const QUIET: Duration = Duration::from_millis(60);

/// The window that the server has for a connection.
const WINDOW: usize = 1 << 20;

/// A client that agrees to all settings, and counts what the server allows it.
struct Client {
    frames: Frames2,
    next: u32,
    /// How often the server has given the table back.
    woken: usize,
    /// How much the client may send.
    window: usize,
    /// The server allows a table.
    has_table: bool,
    /// The table has an entry.
    has_entry: bool,
    /// What the next head has to say first about the size of the table (RFC 7541, section 4.2).
    sizes: Vec<u8>,
}

impl Client {
    fn new(stage: &Stage, trust: &Trust, window: u32) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port(stage))).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut frames = Frames2::over(stream, &trust.config, window);
        frames.send(&[Frame::new(SETTINGS, 1, 0, &[])]);
        Client {
            frames,
            next: 1,
            woken: 0,
            window: 65_535,
            has_table: true,
            has_entry: false,
            sizes: Vec::new(),
        }
    }

    /// Returns the next frame that is not about settings or windows.
    fn next(&mut self) -> Option<Frame> {
        loop {
            let frame = self.frames.next()?;
            match frame.kind {
                SETTINGS if frame.flags == 1 || frame.payload.len() > 6 => {}
                SETTINGS => {
                    self.has_table = frame.payload == TABLE;
                    assert!(self.has_table || frame.payload == NO_TABLE, "{frame:?}");
                    self.woken += usize::from(self.has_table);
                    self.frames.send(&[Frame::new(SETTINGS, 1, 0, &[])]);
                    if self.has_table {
                        self.sizes.extend([0x3f, 0xe1, 0x1f]);
                    } else {
                        (self.sizes, self.has_entry) = (vec![0x20], false);
                        return Some(frame);
                    }
                }
                WINDOW_UPDATE if frame.stream == 0 => {
                    let more = u32::from_be_bytes(frame.payload[..].try_into().unwrap());
                    assert!(more > 0);
                    self.window += more as usize;
                    assert!(self.window <= WINDOW, "{}", self.window);
                }
                _ => return Some(frame),
            }
        }
    }

    /// Returns the number of the next stream.
    fn begin(&mut self) -> u32 {
        self.next += 2;
        self.next - 2
    }

    /// Returns the first frame of a request after what has to be said about the table.
    fn head(&mut self, mut request: Frame) -> Frame {
        request.payload.splice(..0, std::mem::take(&mut self.sizes));
        request
    }

    /// Gets a file of six bytes. The request has a field that the server has to remember.
    fn get(&mut self) {
        let stream = self.begin();
        let mut request = self.head(Frame::get(stream, "/small.txt"));
        if self.has_table {
            request.payload.extend_from_slice(b"\x40\x03x-a\x01b");
            self.has_entry = true;
        }
        self.frames.send(&[request]);
        let mut body = Vec::new();
        while body != b"hello\n" {
            let frame = self.next().expect("the connection goes on");
            assert!([DATA, HEADERS, SETTINGS].contains(&frame.kind), "{frame:?}");
            if frame.kind == DATA {
                assert_eq!(frame.stream, stream);
                body.extend(frame.payload);
            }
        }
    }

    /// Lets time pass until the server has parked the connection. It asks for the table before.
    fn fall_asleep(&mut self, stage: &Stage) {
        let end = Instant::now() + PATIENCE;
        while stage.count(|engine| &engine.parked) == 0 {
            assert!(Instant::now() < end, "it is not parked");
            stage.elapse(QUIET);
            while self.has_entry {
                let frame = self.next().expect("the connection goes on");
                assert!(![RST_STREAM, GOAWAY].contains(&frame.kind), "{frame:?}");
            }
        }
    }
}

fn text(trust: &Trust, folder: &std::path::Path) -> String {
    trust.text(folder)
        + "[[hosts.routes]]\npath = \"/c\"\nchannel = { slow = \"drop-oldest\", history = 1 }\n"
}

fn stage(trust: &Trust, folder: &std::path::Path, backend: BackendKind) -> Stage {
    Stage::new(backend, 1, &text(trust, folder))
}

#[test]
fn an_idle_connection_is_dormant_and_goes_on() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    for backend in BACKENDS {
        let stage = stage(&trust, folder.path(), backend);
        let mut client = Client::new(&stage, &trust, LARGEST);
        let end = Instant::now() + PATIENCE;
        let mut rounds = 0;
        // Some requests come just before the connection falls asleep.
        while client.woken < 3 || rounds < 5 {
            assert!(Instant::now() < end, "{backend:?}");
            for _ in 0..3 {
                client.get();
            }
            client.fall_asleep(&stage);
            rounds += 1;
        }
        // A client that goes without a word.
        drop(client);
        stage.until(|engine| &engine.parked, 0);
        stage.until(|engine| &engine.active, 0);
        assert_eq!(stage.count(|engine| &engine.broken), 0);
    }
}

#[test]
fn what_comes_late_does_not_harm() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let stage = stage(&trust, folder.path(), BackendKind::Epoll);
    let mut client = Client::new(&stage, &trust, LARGEST / 2);
    for round in 0..3 {
        client.get();
        client.fall_asleep(&stage);
        let (woken, window) = (client.woken, client.window);
        client.frames.send(&[
            Frame::window_update(1, 10),
            Frame::new(PRIORITY, 0, 1, &[0, 0, 0, 0, 7]),
            Frame::new(RST_STREAM, 0, 1, &[0, 0, 0, 8]),
            Frame::window_update(0, 1),
            Frame::new(PING, 0, 0, &[round; 8]),
        ]);
        assert_eq!(client.next().unwrap(), Frame::new(PING, 1, 0, &[round; 8]));
        // The server has not taken the connection up for that.
        stage.until(|engine| &engine.parked, 1);
        assert_eq!((client.woken, client.window), (woken, window));
    }
    client.get();
    // A stream that has ended cannot begin again.
    client.fall_asleep(&stage);
    let request = client.head(Frame::get(1, "/small.txt"));
    client.frames.send(&[request]);
    while let Some(frame) = client.next() {
        assert!(frame.kind != HEADERS && frame.kind != DATA, "{frame:?}");
    }
    stage.until(|engine| &engine.active, 0);
}

#[test]
fn the_windows_are_those_of_before() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let stage = stage(&trust, folder.path(), BackendKind::Epoll);
    let mut client = Client::new(&stage, &trust, LARGEST);
    let post = |stream: u32| {
        let mut head = vec![0x83, 0x87, 0x01, 1, b'a', 0x04, 2];
        head.extend_from_slice(b"/c");
        Frame::new(HEADERS, 0b100, stream, &head)
    };
    // The first answer shows that the server has said how large its window is.
    client.get();
    let (mut sent, mut expected) = (0, BTreeMap::new());
    while sent < 5 * WINDOW {
        client.fall_asleep(&stage);
        let mut frames = Vec::new();
        for _ in 0..6 {
            let stream = client.begin();
            frames.push(client.head(post(stream)));
            for piece in 0..4 {
                frames.push(Frame::new(DATA, u8::from(piece == 3), stream, &[b'x'; 15_000]));
            }
            expected.insert(stream, ());
        }
        // All of it at once, more than a new connection is allowed.
        let length = 6 * 4 * 15_000;
        assert!(client.window >= length, "{} bytes are allowed", client.window);
        client.window -= length;
        sent += length;
        client.frames.send(&frames);
        while !expected.is_empty() {
            let frame = client.next().expect("the connection goes on");
            assert!(![RST_STREAM, GOAWAY].contains(&frame.kind), "{frame:?}");
            if frame.kind == HEADERS {
                expected.remove(&frame.stream).unwrap();
            }
        }
    }
    assert!(stage.count(|engine| &engine.parkings) > 3);
}

#[test]
fn a_response_takes_no_more_than_the_window_of_its_client() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let stage = stage(&trust, folder.path(), BackendKind::Epoll);
    let mut client = Client::new(&stage, &trust, LARGEST);
    // `Frames2` has given the connection the largest window, and the responses use some of it up.
    let mut left = u64::from(LARGEST);
    for _ in 0..2 {
        let stream = client.begin();
        let request = client.head(Frame::get(stream, "/large.bin"));
        client.frames.send(&[request]);
        let mut read = 0;
        while read < 16 << 20 {
            let frame = client.next().expect("the connection goes on");
            if frame.kind == DATA {
                read += frame.payload.len();
            }
        }
        left -= read as u64;
        client.fall_asleep(&stage);
        // The sum is the largest window again; more would be an error.
        let more = u32::try_from(u64::from(LARGEST) - left).unwrap();
        client.frames.send(&[Frame::window_update(0, more)]);
        left = u64::from(LARGEST);
        client.get();
        left -= 6;
        client.fall_asleep(&stage);
    }
    assert!(client.woken > 0);
    // One more byte than the largest window allows.
    client.frames.send(&[Frame::window_update(0, 7)]);
    while let Some(frame) = client.next() {
        assert!(![HEADERS, DATA].contains(&frame.kind), "{frame:?}");
    }
    stage.until(|engine| &engine.active, 0);
}

/// A response that takes long is no reason to park the connection, with a table or without.
#[test]
fn a_client_keeps_its_table_while_a_response_is_under_way() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let stage = stage(&trust, folder.path(), BackendKind::Epoll);
    let mut client = Client::new(&stage, &trust, 1000);
    client.get();
    let stream = client.begin();
    let request = client.head(Frame::get(stream, "/large.bin"));
    client.frames.send(&[request]);
    let mut read = 0;
    for round in 1..=20 {
        while read < round * 1000 {
            let frame = client.next().expect("the connection goes on");
            assert!([DATA, HEADERS].contains(&frame.kind), "{frame:?}");
            read += if frame.kind == DATA { frame.payload.len() } else { 0 };
        }
        stage.elapse(QUIET);
        client.frames.send(&[Frame::window_update(stream, 1000)]);
    }
    assert!(client.has_entry && stage.count(|engine| &engine.parkings) == 0);
}

/// Publishes a message by a client of its own.
fn publish(stage: &Stage, trust: &Trust, text: &[u8]) {
    let mut client = Client::new(stage, trust, LARGEST);
    let stream = client.begin();
    let mut request = client.head(Frame::request(stream, "POST", "/c"));
    request.flags = 4;
    client.frames.send(&[request, Frame::new(DATA, 1, stream, text)]);
    while client.next().expect("the connection goes on").kind != HEADERS {}
}

/// They are taken up by a message, and by the end of their time.
#[test]
fn long_polls_on_a_dormant_connection_are_answered() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    for backend in BACKENDS {
        let stage = stage(&trust, folder.path(), backend);
        let mut client = Client::new(&stage, &trust, LARGEST);
        client.get();
        let ask = |client: &mut Client, target: &str| {
            let stream = client.begin();
            let request = client.head(Frame::get(stream, target));
            client.frames.send(&[request]);
            stream
        };
        for round in 0..3 {
            let short = ask(&mut client, &format!("/c?after={round}&wait=20"));
            let long = ask(&mut client, &format!("/c?after={round}&wait=1000"));
            client.fall_asleep(&stage);
            // Its time is over.
            stage.elapse(Duration::from_secs(21));
            let mut answered = Vec::new();
            while answered.is_empty() {
                let frame = client.next().expect("the connection goes on");
                answered
                    .extend((frame.kind == HEADERS).then_some((frame.stream, frame.payload[0])));
            }
            // The place of the status 204 in the table (RFC 7541).
            assert_eq!(answered, [(short, 0x80 | 9)], "{backend:?}");
            client.fall_asleep(&stage);
            publish(&stage, &trust, b"some news");
            let mut body = Vec::new();
            loop {
                let frame = client.next().expect("the connection goes on");
                match frame.kind {
                    HEADERS => assert_eq!(frame.payload[0], 0x80 | 8, "the status is 200"),
                    DATA => body.extend(frame.payload),
                    _ => {}
                }
                if frame.stream == long && frame.flags & 1 > 0 {
                    break;
                }
            }
            let text = String::from_utf8(body).unwrap();
            assert!(
                text.contains(&format!("\"id\":{},\"data\":\"some news\"", round + 1)),
                "{text}"
            );
        }
        drop(client);
        stage.until(|engine| &engine.active, 0);
        assert_eq!(stage.count(|engine| &engine.broken), 0);
    }
}

#[test]
fn a_dormant_connection_is_told_to_go_away() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let text = text(&trust, folder.path()).replace("park", "idle = \"600s\"\npark");
    for drains in [true, false] {
        let stage = Stage::new(BackendKind::Epoll, 1, &text);
        let mut client = Client::new(&stage, &trust, LARGEST);
        client.get();
        client.fall_asleep(&stage);
        if drains {
            stage.drain();
        } else {
            stage.elapse(Duration::from_secs(500));
            assert_eq!(stage.count(|engine| &engine.parked), 1);
            let (step, most) = (Duration::from_secs(1), Duration::from_secs(200));
            stage.elapse_until(step, most, || stage.count(|engine| &engine.parked) == 0);
        }
        // It is told twice, and answers the ping in between.
        let mut told = 0;
        while let Some(frame) = client.next() {
            match frame.kind {
                GOAWAY => {
                    assert_eq!(frame.payload[4..8], [0; 4]);
                    told += 1;
                }
                PING => client.frames.send(&[Frame::new(PING, 1, 0, &frame.payload)]),
                _ => assert_eq!(frame.kind, SETTINGS),
            }
        }
        assert!(told >= 2, "{told}, drains: {drains}");
        assert_eq!(stage.drained(), 0);
    }
}

#[test]
fn a_client_that_does_not_agree_is_served() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let stage = stage(&trust, folder.path(), BackendKind::Epoll);
    let mut client = Frames2::connect(port(&stage), &trust.config, LARGEST);
    client.send(&[Frame::new(SETTINGS, 1, 0, &[])]);
    for stream in [1, 3, 5] {
        client.send(&[Frame::get(stream, "/small.txt")]);
        loop {
            let frame = client.next().expect("the connection goes on");
            assert!(frame.kind != SETTINGS || frame.payload != TABLE);
            if frame.kind == DATA && frame.stream == stream && frame.flags & 1 == 1 {
                break;
            }
        }
        stage.elapse(2 * QUIET);
    }
    // It keeps its table.
    stage.until(|engine| &engine.parked, 1);
}
