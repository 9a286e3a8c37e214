//! The memory of connections of HTTP/2 on which nothing happens.

use std::net::TcpStream;
use std::time::Duration;

use futures_rustls::rustls::ClientConfig;
use futures_rustls::rustls::client::Resumption;
use superpoll_gateway::Address;
use superpoll_rt::BackendKind;

use super::several::settled;
use super::streams::trust;
use crate::frames2::{DATA, Frame, Frames2, HEADERS, LARGEST, SETTINGS};
use crate::stage::{Stage, folder};
use superpoll_test_support::alone;

const BEFORE: usize = 50;
const COUNTED: usize = 750;

/// The most bytes of an idle connection whose client has no table of fields, or gives it up; and of
/// one whose client keeps ten long fields.
const BOUND: usize = 700;
const BOUND_WITH_SUBSCRIBER: usize = 900;
const BOUND_WITH_THREE: usize = 1300;
const BOUND_WITH_TABLE: usize = 3 << 10;

/// A request with this many fields that the server has to remember (RFC 7541, section 6.2.1).
fn request(stream: u32, fields: u8) -> Frame {
    let mut request = Frame::get(stream, "/small.txt");
    for index in 0..fields {
        let (name, value) = (format!("x-field-{index:02}"), format!("{index:0100}"));
        request.payload.push(0x40);
        for text in [name, value] {
            request.payload.push(u8::try_from(text.len()).unwrap());
            request.payload.extend_from_slice(text.as_bytes());
        }
    }
    request
}

fn connect(port: u16, config: &ClientConfig, fields: u8) -> Frames2 {
    let mut client = Frames2::connect(port, config, LARGEST);
    client.send(&[Frame::new(SETTINGS, 1, 0, &[]), request(1, fields)]);
    let mut body = Vec::new();
    while body != b"hello\n" {
        let frame = client.next().expect("the connection goes on");
        if frame.kind == DATA {
            body.extend(frame.payload);
        }
    }
    client
}

/// How a client subscribes to a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Events,
    WebSocket,
    Poll,
}

/// Subscribes to a channel.
fn subscribe(client: &mut Frames2, stream: u32, by: By) {
    let method = if by == By::WebSocket { "CONNECT" } else { "GET" };
    let mut request = Frame::request(stream, method, "/news");
    match by {
        By::Events => {
            request.payload.extend_from_slice(b"\x00\x06accept\x11text/event-stream");
        }
        By::WebSocket => {
            request.payload.extend_from_slice(b"\x00\x09:protocol\x09websocket");
            request.payload.extend_from_slice(b"\x00\x15sec-websocket-version\x0213");
            // The stream stays open.
            request.flags = 4;
        }
        By::Poll => return client.send(&[request]),
    }
    client.send(&[request]);
    loop {
        let frame = client.next().expect("the connection goes on");
        let begins = match by {
            By::Events => frame.kind == DATA && frame.payload.starts_with(b"retry: "),
            By::WebSocket | By::Poll => frame.kind == HEADERS && frame.stream == stream,
        };
        if begins {
            return;
        }
    }
}

/// Agrees to use no table of fields, if it is asked, as it is if it has one. What the client would
/// need to go on is forgotten, so that it is not counted.
fn finish(mut client: Frames2, agrees: bool) -> TcpStream {
    if agrees {
        loop {
            let frame = client.next().expect("the connection goes on");
            if frame.kind == SETTINGS && frame.payload == [0, 1, 0, 0, 0, 0] {
                break client.send(&[Frame::new(SETTINGS, 1, 0, &[])]);
            }
        }
    }
    client.into_inner()
}

#[test]
fn an_idle_connection_of_http_2_costs_little() {
    alone(|| {
        let limit = superpoll::limits::raise_descriptors().unwrap();
        if limit < 3 * (BEFORE + COUNTED) as u64 {
            println!("skipped: {limit} descriptors are too few");
            return;
        }
        let (folder, trusted) = (folder(), tempfile::tempdir().unwrap());
        let mut config = trust(trusted.path());
        config.resumption = Resumption::disabled();
        let (cert, key) = (trusted.path().join("cert.pem"), trusted.path().join("key.pem"));
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         tls = {{ certificate = {cert:?}, key = {key:?} }}\n[timeouts]\npark = \"100ms\"\nidle = \"1h\"\n\
         [[hosts]]\n[[hosts.routes]]\npath = \"/\"\nfiles.root = {:?}\n\
         [[hosts.routes]]\npath = \"/news\"\nchannel = {{ poll = \"1h\" }}\n",
            folder.path()
        );
        let cases = [
            (0, false, &[][..], BOUND),
            (10, true, &[], BOUND),
            (10, false, &[], BOUND_WITH_TABLE),
            (0, false, &[By::Events], BOUND_WITH_SUBSCRIBER),
            (0, false, &[By::WebSocket], BOUND_WITH_SUBSCRIBER),
            (0, false, &[By::Poll], BOUND_WITH_SUBSCRIBER),
            (0, false, &[By::Events, By::WebSocket, By::Events], BOUND_WITH_THREE),
        ];
        for (fields, agrees, subscribers, bound) in cases {
            let stage = Stage::new(BackendKind::Epoll, 1, &text);
            let Address::Tcp { port, .. } = stage.addresses[0] else { panic!("it is TCP") };
            let mut streams = Vec::with_capacity(BEFORE + COUNTED);
            let mut add = |count: usize| {
                let connect = |_| {
                    let mut client = connect(port, &config, fields);
                    for (stream, by) in (3..).step_by(2).zip(subscribers) {
                        subscribe(&mut client, stream, *by);
                    }
                    client
                };
                let clients: Vec<_> = (0..count).map(connect).collect();
                streams.extend(clients.into_iter().map(|client| finish(client, agrees)));
            };
            add(BEFORE);
            // They are parked soon.
            stage.elapse(Duration::from_secs(1));
            let before = settled();
            add(COUNTED);
            let cost = super::settled(&stage, before, COUNTED, bound);
            // None of them has ended meanwhile.
            stage.until(|engine| &engine.parked, streams.len() as u64);
            println!("{fields} fields, agrees: {agrees}, {subscribers:?}: {cost} bytes");
            assert!(cost > 200, "{cost} bytes are too few to be true");
            assert!(cost <= bound, "each connection costs {cost} bytes");
        }
    });
}
