//! HTTP/2 without TLS, by clients that know of it (RFC 9113, section 3.3).

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_rustls::rustls::pki_types::ServerName;
use futures_rustls::rustls::{ClientConnection, StreamOwned};
use superpoll_gateway::Address;
use superpoll_rt::BackendKind;
use superpoll_test_support::find;

use crate::frames2::{
    DATA, Frame, Frames2, GOAWAY, HEADERS, LARGEST, PING, PREFACE, SETTINGS, bytes_of,
};
use crate::http2::Trust;
use crate::stage::{BACKENDS, PATIENCE, Stage, folder};

/// A request after which another one may come.
const GET: &str = "GET /small.txt HTTP/1.1\r\nhost: a\r\n\r\n";

/// Long enough for the server to read all that its clients have sent before.
const MOMENT: Duration = Duration::from_millis(1);

fn connect(address: &Address) -> TcpStream {
    let stream = TcpStream::connect(address.to_string()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Returns the body of the response on a stream, which must be there whole.
fn body<S: Read + Write>(client: &mut Frames2<S>, stream: u32) -> Vec<u8> {
    let (mut body, mut has_head) = (Vec::new(), false);
    loop {
        let frame = client.next().expect("the connection goes on");
        if frame.stream == stream {
            match frame.kind {
                // The status 200 has an index of its own (RFC 7541).
                HEADERS => has_head = frame.payload.contains(&0x88),
                DATA => body.extend_from_slice(&frame.payload),
                _ => panic!("{frame:?}"),
            }
            if frame.flags & 1 > 0 {
                assert!(has_head, "another status");
                return body;
            }
        }
    }
}

/// Gets a file of six bytes.
fn get<S: Read + Write>(client: &mut Frames2<S>, stream: u32) {
    client.send(&[Frame::get(stream, "/small.txt").by_http()]);
    assert_eq!(body(client, stream), b"hello\n");
}

/// Returns all that the server sends until it closes the connection, but for the date.
fn answer(stream: &mut (impl Read + Write)) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.lines().filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("\n")
}

/// Returns the answer to bytes that come at once and are the last.
fn answer_to(address: &Address, before: &str, bytes: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(&[before.as_bytes(), bytes].concat()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    answer(&mut stream)
}

#[test]
fn the_preface_may_come_in_any_pieces() {
    let folder = folder();
    for backend in BACKENDS {
        let stage = Stage::of_files(backend, 1, folder.path());
        let request = Frame::get(1, "/small.txt").by_http();
        let frames = bytes_of(&[Frame::new(SETTINGS, 0, 0, &[]), request]);
        let all = [PREFACE, &frames].concat();
        let check = |pieces: &[&[u8]]| {
            let mut client = Frames2(connect(&stage.addresses[0]));
            for (index, piece) in pieces.iter().enumerate() {
                if index > 0 {
                    stage.elapse(MOMENT);
                }
                client.0.write_all(piece).unwrap();
            }
            assert_eq!(body(&mut client, 1), b"hello\n", "{backend:?} {}", pieces[0].len());
            get(&mut client, 3);
        };
        check(&[&all]);
        check(&all.chunks(1).collect::<Vec<_>>());
        for place in 1..=PREFACE.len() {
            let (first, second) = all.split_at(place);
            check(&[first, second]);
            check(&[first, &all[place..PREFACE.len()], &frames]);
        }
        stage.until(|engine| &engine.active, 0);
        assert_eq!(stage.count(|engine| &engine.broken), 0);
        assert!(stage.refused_heads().is_empty());
    }
}

/// The second request of a connection cannot be a preface, so it shows what HTTP/1 answers.
#[test]
fn bytes_that_only_begin_like_the_preface_are_malformed_requests() {
    let folder = folder();
    let stage = Stage::of_files(BackendKind::Adaptive, 1, folder.path());
    let address = &stage.addresses[0];
    let first = answer_to(address, GET, b"");
    assert!(first.starts_with("HTTP/1.1 200 ") && first.ends_with("hello"), "{first}");
    for place in 0..PREFACE.len() {
        let mut near = PREFACE.to_vec();
        near[place] = b'X';
        let expected = answer_to(address, GET, &near);
        let expected = expected.strip_prefix(&*first).expect("the first answer").trim_start();
        assert!(expected.starts_with("HTTP/1.1 "), "{place}: {expected}");
        assert_eq!(answer_to(address, "", &near), expected, "{place}");
        for cut in 1..near.len() {
            let mut stream = connect(address);
            stream.write_all(&near[..cut]).unwrap();
            stage.elapse(MOMENT);
            // The server may have refused it already.
            let _ = stream.write_all(&near[cut..]);
            assert_eq!(answer(&mut stream), expected, "{place} in pieces of {cut}");
        }
    }
    // A part of it that is all.
    for length in 1..PREFACE.len() {
        let expected = answer_to(address, GET, &PREFACE[..length]);
        let expected = expected.strip_prefix(&*first).expect("the first answer").trim_start();
        let has_version = length >= "PRI * HTTP/2.0".len();
        assert_eq!(expected.starts_with("HTTP/1.1 505 "), has_version, "{length}: {expected}");
        assert_eq!(answer_to(address, "", &PREFACE[..length]), expected, "{length}");
    }
    // A preface in a wrong place.
    let refused = answer_to(address, GET, PREFACE);
    let refused = refused.strip_prefix(&*first).unwrap().trim_start();
    assert!(refused.starts_with("HTTP/1.1 505 "), "{refused}");
    assert_eq!(answer_to(address, "\r\n", PREFACE), refused);
}

#[test]
fn half_a_preface_is_not_waited_for() {
    let folder = folder();
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[timeouts]\nheader = \"600s\"\n\
         [[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n",
        folder.path()
    );
    let stage = Stage::new(BackendKind::Epoll, 1, &text);
    let halves = [3, 14, 18, 23].map(|length| &PREFACE[..length]);
    let mut clients = halves.map(|half| {
        let mut client = connect(&stage.addresses[0]);
        client.write_all(half).unwrap();
        client
    });
    stage.elapse(Duration::from_secs(500));
    assert_eq!(stage.count(|engine| &engine.timed_out), 0);
    stage.elapse(Duration::from_secs(150));
    for client in &mut clients {
        let answer = answer(client);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    stage.until(|engine| &engine.timed_out, 4);
}

#[test]
fn connections_are_parked_before_and_after_requests_and_told_of_the_end() {
    let folder = folder();
    for backend in BACKENDS {
        let stage = Stage::of_files(backend, 1, folder.path());
        let stream = connect(&stage.addresses[0]);
        stage.until(|engine| &engine.parked, 1);
        let mut client = Frames2::begin(stream, LARGEST);
        client.send(&[Frame::new(SETTINGS, 1, 0, &[])]);
        for stream in [1, 3, 5] {
            get(&mut client, stream);
            stage.until(|engine| &engine.parked, 1);
        }
        client.send(&[Frame::new(PING, 0, 0, &[7; 8])]);
        while client.next().expect("the connection goes on").kind != PING {}
        stage.until(|engine| &engine.parked, 1);
        stage.drain();
        let mut told = 0;
        while let Some(frame) = client.next() {
            match frame.kind {
                GOAWAY => told += 1,
                PING => client.send(&[Frame::new(PING, 1, 0, &frame.payload)]),
                _ => assert_eq!(frame.kind, SETTINGS),
            }
        }
        assert!(told > 0, "{backend:?}");
        assert_eq!(stage.drained(), 0);
    }
}

/// Returns what has arrived at a client that has not read it, once that ends so.
fn arrived(stream: &TcpStream, end: &[u8]) -> Vec<u8> {
    find("the server has said all", || {
        let mut room = [0; 4096];
        let count = stream.peek(&mut room).unwrap();
        room[..count].ends_with(end).then(|| room[..count].to_vec())
    })
}

/// A kernel that is sent bytes for a closed connection resets it, and the client's kernel then
/// throws away what the client has not read.
#[test]
fn a_client_that_goes_on_sending_gets_the_last_bytes() {
    let folder = folder();
    let update = || Frame::window_update(0, 1);
    for backend in BACKENDS {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n[limits]\nrequests_per_connection = 1\n\
             [[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n",
            folder.path()
        );
        let stage = Stage::new(backend, 1, &text);
        let gone =
            |last, code| bytes_of(&[Frame::new(GOAWAY, 0, 0, &[0, 0, 0, last, 0, 0, 0, code])]);
        // It breaks the protocol, which is seen in the middle of a frame.
        let mut broken = Frames2::begin(connect(&stage.addresses[0]), LARGEST);
        broken.0.write_all(&[0, 0, 6, PING, 0, 0, 0, 0, 0]).unwrap();
        let refused = arrived(&broken.0, &gone(0, 6));
        broken.0.write_all(&[0; 6]).unwrap();
        // It has had its last response.
        let mut served = Frames2::begin(connect(&stage.addresses[0]), LARGEST);
        served.send(&[Frame::get(1, "/small.txt").by_http()]);
        let (mut ping, mut has_body) = (None, false);
        while ping.is_none() || !has_body {
            let frame = served.next().expect("the connection goes on");
            has_body |= frame.kind == DATA;
            ping = ping.or((frame.kind == PING).then_some(Frame { flags: 1, ..frame }));
        }
        served.send(&[ping.unwrap()]);
        let told = arrived(&served.0, &gone(1, 0));
        for (client, expected) in [(broken, refused), (served, told)] {
            let Frames2(mut stream) = client;
            stream.write_all(&bytes_of(&[update(), update()])).unwrap();
            let mut read = Vec::new();
            let outcome = stream.read_to_end(&mut read);
            assert!(outcome.is_ok() && read == expected, "{backend:?}: {outcome:?}, {read:?}");
        }
        stage.until(|engine| &engine.active, 0);
    }
}

fn listeners(folder: &Path, trust: &Trust) -> String {
    let path = folder.join("socket");
    format!(
        "[[listeners]]\naddress = \"unix:{}\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = true\n\
         [admin]\naddress = \"127.0.0.1:0\"\n",
        path.display()
    ) + &trust.text(folder)
}

#[test]
fn sockets_in_the_file_system_and_listeners_behind_proxies_speak_it() {
    let folder = folder();
    let stage = Stage::new(BackendKind::Epoll, 1, &listeners(folder.path(), &Trust::new(&[])));
    let stream = UnixStream::connect(folder.path().join("socket")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    get(&mut Frames2::begin(stream, LARGEST), 1);
    for cut in [0, 10, PREFACE.len()] {
        let mut stream = connect(&stage.addresses[1]);
        let header = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n";
        stream.write_all(&[header, &PREFACE[..cut]].concat()).unwrap();
        stage.elapse(MOMENT);
        stream.write_all(&PREFACE[cut..]).unwrap();
        let mut client = Frames2(stream);
        client.send(&[Frame::new(SETTINGS, 0, 0, &[])]);
        get(&mut client, 1);
    }
}

/// Operators are served by HTTP/1. A client of TLS has agreed on another protocol, or on none.
#[test]
fn the_admin_listener_and_encrypted_connections_do_not_speak_it() {
    let folder = folder();
    for protocols in [&[][..], &[&b"http/1.1"[..]]] {
        let trust = Trust::new(protocols);
        let text = listeners(folder.path(), &trust);
        let stage = Stage::new(BackendKind::Epoll, 1, &text);
        let (encrypted, admin) = (&stage.addresses[2], &stage.addresses[3]);
        let refused = answer_to(admin, "", PREFACE);
        assert!(refused.starts_with("HTTP/1.1 505 "), "{refused}");
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::new(trust.config.clone()), name).unwrap();
        let mut stream = StreamOwned::new(client, connect(encrypted));
        stream.write_all(PREFACE).unwrap();
        assert_eq!(answer(&mut stream), refused);
    }
}

/// A request is one of `http`, whatever the client calls it.
#[test]
fn requests_are_not_encrypted_ones() {
    let folder = folder();
    let trust = Trust::new(&[]);
    let text = trust.text(folder.path());
    let text = format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n{text}")
        .replace("[[hosts]]\n", "[[hosts]]\nhttps = \"always\"\n");
    let stage = Stage::new(BackendKind::Epoll, 1, &text);
    let mut client = Frames2::begin(connect(&stage.addresses[0]), LARGEST);
    let request = Frame::get(1, "/small.txt");
    let frames = [request.clone().by_http(), Frame { stream: 3, ..request }];
    let heads = frames.map(|frame| {
        client.send(&[frame]);
        loop {
            let frame = client.next().expect("the connection goes on");
            if frame.kind == HEADERS {
                break String::from_utf8_lossy(&frame.payload).into_owned();
            }
        }
    });
    let port = stage.addresses[1].to_string().rsplit(':').next().unwrap().to_owned();
    let secure = format!("https://a:{port}/small.txt");
    assert!(heads[0].contains("308") && heads[0].contains(&secure), "{heads:?}");
    assert!(heads[1].contains("421"), "{heads:?}");
    assert!(!heads.concat().contains("strict-transport-security"), "{heads:?}");
}

#[test]
fn events_and_websockets_have_streams() {
    let folder = folder();
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\npath = \"/c\"\n\
         channel = {{ publish = \"anyone\" }}\n[[hosts.routes]]\nfiles.root = {:?}\n",
        folder.path()
    );
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text);
        let mut client = Frames2::begin(connect(&stage.addresses[0]), LARGEST / 2);
        let mut connect = Frame::request(1, "CONNECT", "/c").by_http();
        connect.flags = 0b100;
        let connect = connect.with(":protocol", "websocket").with("sec-websocket-version", "13");
        let events = Frame::get(3, "/c").by_http().with("accept", "text/event-stream");
        client.send(&[connect, events]);
        let mut begun = 0;
        while begun < 2 {
            let frame = client.next().expect("the connection goes on");
            begun += usize::from(frame.kind == HEADERS && frame.payload.contains(&0x88));
        }
        // A text, masked by zeros, that reaches both.
        client.send(&[Frame::new(DATA, 0, 1, b"\x81\x85\0\0\0\0hello")]);
        let (mut socket, mut stream) = (Vec::new(), Vec::new());
        while !socket.ends_with(b"\x81\x05hello") || !stream.ends_with(b"data: hello\n\n") {
            let frame = client.next().expect("the connection goes on");
            match (frame.kind, frame.stream) {
                (DATA, 1) => socket.extend_from_slice(&frame.payload),
                (DATA, 3) => stream.extend_from_slice(&frame.payload),
                (_, 1 | 3) => panic!("{backend:?}: {frame:?}"),
                _ => {}
            }
        }
        get(&mut client, 5);
    }
}
