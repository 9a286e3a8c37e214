//! The rights of subscribers, which go with their connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::keep::succession::Nursery;
use crate::stage::{connect, response, until};
use superpoll_test_support::tokens::{rule, token};

fn nursery() -> Nursery {
    let channel =
        format!("subscribe = \"token\", publish = \"token\", poll = \"10m\", {}", rule(""));
    Nursery::new(&format!("[[hosts.routes]]\npath = \"/private\"\nchannel = {{ {channel} }}\n"))
}

fn subscribe(nursery: &Nursery, token: &str) -> TcpStream {
    try_subscribe(nursery, token).unwrap()
}

/// Returns the head of the answer instead if it is a refusal.
fn try_subscribe(nursery: &Nursery, token: &str) -> Result<TcpStream, String> {
    let mut stream = connect(nursery.at());
    let request = format!(
        "GET /private?token={token} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let head = response(&mut stream);
    if head.starts_with("HTTP/1.1 101 ") { Ok(stream) } else { Err(head) }
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

/// How many seconds the tokens of a test last: more in each attempt.
const LIFETIMES: [i64; 4] = [5, 10, 20, 40];

const TOO_SLOW: &str = "no token has outlived the steps before its end";

/// A token for subscribing and publishing that expires soon.
struct ShortToken {
    text: String,
    /// It is valid up to this, and probably longer: it expires with a second of the clock.
    valid_until: Instant,
    expired_from: Instant,
}

impl ShortToken {
    fn new(seconds: i64) -> ShortToken {
        let lifetime = Duration::from_secs(seconds.unsigned_abs());
        let valid_until = Instant::now() + lifetime - Duration::from_secs(1);
        let text = token(&["/private"], &["/private"], seconds);
        let expired_from = Instant::now() + lifetime + Duration::from_secs(2);
        ShortToken { text, valid_until, expired_from }
    }

    fn is_valid(&self) -> bool {
        Instant::now() < self.valid_until
    }

    /// Subscribes; `None` if it may have expired before.
    fn subscribe(&self, nursery: &Nursery) -> Option<TcpStream> {
        let outcome = try_subscribe(nursery, &self.text);
        let refusal = outcome.as_ref().err();
        assert!(refusal.is_none() || !self.is_valid(), "{refusal:?}");
        outcome.ok()
    }

    /// Waits until the keeper has this many connections; `None` if it may have expired before.
    fn until_held(&self, nursery: &Nursery, count: usize) -> Option<()> {
        let mut is_held = false;
        until("the connections are held, or the token expires", || {
            is_held = nursery.holds(count);
            is_held || !self.is_valid()
        });
        (is_held && self.is_valid()).then_some(())
    }
}

/// One attempt with a token that lasts for some seconds; `None` if this process was too slow for
/// it.
fn expires_without_a_server(seconds: i64) -> Option<()> {
    let nursery = nursery();
    let first = nursery.server(&[]);
    let soon = ShortToken::new(seconds);
    let mut socket = soon.subscribe(&nursery)?;
    let mut poll = connect(nursery.at());
    let ask = format!("GET /private?token={} HTTP/1.1\r\nHost: a\r\n\r\n", soon.text);
    poll.write_all(ask.as_bytes()).unwrap();
    let mut events = connect(nursery.at());
    let stream = "Accept: text/event-stream\r\n";
    events.write_all(ask.replace("\r\n\r\n", &format!("\r\n{stream}\r\n")).as_bytes()).unwrap();
    soon.until_held(&nursery, 3)?;
    first.signal("KILL");
    drop(first.ended());
    if !soon.is_valid() {
        return None;
    }
    thread::sleep(soon.expired_from.saturating_duration_since(Instant::now()));
    let second = nursery.server(&[]);
    assert_eq!(closed(&mut socket), (1008, "the token has expired".to_owned()));
    let answer = response(&mut poll);
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    let mut all = String::new();
    events.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 200 ") && all.ends_with("\r\n0\r\n\r\n"), "{all}");
    second.signal("TERM");
    assert!(second.ended().0.success());
    Some(())
}

#[test]
fn a_token_that_expires_while_no_server_runs_ends_its_subscription() {
    LIFETIMES.into_iter().find_map(expires_without_a_server).expect(TOO_SLOW);
}

/// One attempt with a token that lasts for some seconds; `None` if this process was too slow for
/// it.
fn expires_with_the_next_server(seconds: i64) -> Option<()> {
    let nursery = nursery();
    let first = nursery.server(&[]);
    let mut reader = subscribe(&nursery, &token(&["/private"], &[], 600));
    let mut writer = subscribe(&nursery, &token(&["/private"], &["/private"], 600));
    let soon = ShortToken::new(seconds);
    let mut socket = soon.subscribe(&nursery)?;
    soon.until_held(&nursery, 3)?;
    let second = nursery.server(&["--upgrade"]);
    assert!(first.ended().0.success());
    second.says("took over");
    soon.until_held(&nursery, 3)?;
    assert_eq!(closed(&mut socket), (1008, "the token has expired".to_owned()));
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
    Some(())
}

#[test]
fn the_next_server_ends_a_subscription_in_time() {
    LIFETIMES.into_iter().find_map(expires_with_the_next_server).expect(TOO_SLOW);
}
