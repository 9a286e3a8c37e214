//! The rights of subscribers, which go with their connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::stage::{connect, response, until};
use crate::succession::Nursery;
use crate::tokens::{rule, token};

fn nursery() -> Nursery {
    let channel =
        format!("subscribe = \"token\", publish = \"token\", poll = \"10m\", {}", rule(""));
    Nursery::new(&format!("[[hosts.routes]]\npath = \"/private\"\nchannel = {{ {channel} }}\n"))
}

fn subscribe(nursery: &Nursery, token: &str) -> TcpStream {
    let mut stream = connect(nursery.at());
    let request = format!(
        "GET /private?token={token} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let head = response(&mut stream);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    stream
}

/// Reads a frame that closes, and returns its code and its reason.
fn closed(stream: &mut TcpStream) -> (u16, String) {
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[0], 0x88, "{head:?}");
    let mut reason = vec![0; usize::from(head[1]) - 2];
    stream.read_exact(&mut reason).unwrap();
    (u16::from_be_bytes([head[2], head[3]]), String::from_utf8(reason).unwrap())
}

/// A message of a client.
const MESSAGE: [u8; 8] = [0x81, 0x82, 0, 0, 0, 0, b'h', b'i'];

#[test]
fn a_token_that_expires_while_no_server_runs_ends_its_subscription() {
    let nursery = nursery();
    let first = nursery.server(&[]);
    let soon = token(&["/private"], &["/private"], 5);
    let expires = Instant::now() + Duration::from_secs(7);
    let mut socket = subscribe(&nursery, &soon);
    let mut poll = connect(nursery.at());
    let ask = format!("GET /private?token={soon} HTTP/1.1\r\nHost: a\r\n\r\n");
    poll.write_all(ask.as_bytes()).unwrap();
    let mut events = connect(nursery.at());
    let stream = "Accept: text/event-stream\r\n";
    events.write_all(ask.replace("\r\n\r\n", &format!("\r\n{stream}\r\n")).as_bytes()).unwrap();
    nursery.until_held(3);
    first.signal("KILL");
    drop(first.ended());
    while Instant::now() < expires {
        thread::sleep(Duration::from_millis(10));
    }
    let second = nursery.server(&[]);
    assert_eq!(closed(&mut socket), (1008, "the token has expired".to_owned()));
    let answer = response(&mut poll);
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    let mut all = String::new();
    events.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 200 ") && all.ends_with("\r\n0\r\n\r\n"), "{all}");
    second.signal("TERM");
    assert!(second.ended().0.success());
}

#[test]
fn the_next_server_ends_a_subscription_in_time() {
    let nursery = nursery();
    let first = nursery.server(&[]);
    let mut soon = subscribe(&nursery, &token(&["/private"], &["/private"], 10));
    let mut reader = subscribe(&nursery, &token(&["/private"], &[], 600));
    let mut writer = subscribe(&nursery, &token(&["/private"], &["/private"], 600));
    nursery.until_held(3);
    let second = nursery.server(&["--upgrade"]);
    assert!(first.ended().0.success());
    second.says("took over");
    nursery.until_held(3);
    assert_eq!(closed(&mut soon), (1008, "the token has expired".to_owned()));
    second.signal("KILL");
    drop(second.ended());
    let third = nursery.server(&[]);
    until("the third server has the connections", || third.errors().contains("took over"));
    // Only the one that might before may publish.
    reader.write_all(&MESSAGE).unwrap();
    assert_eq!(closed(&mut reader), (1008, "you may not publish here".to_owned()));
    writer.write_all(&MESSAGE).unwrap();
    let mut frame = [0; 4];
    writer.read_exact(&mut frame).unwrap();
    assert_eq!(&frame, b"\x81\x02hi");
    third.signal("TERM");
    assert!(third.ended().0.success());
}
