//! The clients of a server that is restarted: subscribers by WebSocket, keep-alive connections, and
//! the publisher.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tungstenite::client::client_with_config;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

use crate::error::{Error, Result};
use crate::server::clients::Clients;
use crate::sys::{descriptor, process, socket};

/// How long an answer may take, and all messages to arrive.
const PATIENCE: Duration = Duration::from_secs(20);

/// The channel to which messages are published.
pub(super) const CHANNEL: &str = "/news";

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// The commands for a process of clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Open this many subscriptions, and this many connections that send one request and stay open.
    /// The answer: none.
    Connect(usize, usize),
    /// Publish this many messages from this number on, with a pause of this many nanoseconds after
    /// each. The answer: for each message whether it was confirmed.
    Publish(u64, usize, u64),
    /// Publish this message until it is confirmed; it is the last one that subscribers receive.
    End(u64),
    /// Receive up to that message, and send a request on each keep-alive connection. The second
    /// field has the messages that were confirmed. The answer: connections that have ended,
    /// messages missed, and messages received twice, over all subscribers.
    Hear(u64, Vec<u64>),
}

/// Starts clients of the server at a port, in a process of their own. They connect from an address
/// of their own, which has all ports to itself.
pub(super) fn start(subject: &'static str, port: u16, from: Ipv4Addr) -> Result<Clients> {
    let (mut subscribers, mut idle) = (Vec::new(), Vec::new());
    Clients::start(subject, move |order: Order| {
        let wrong = |e: io::Error| Error::Work { subject, found: e.to_string() };
        match order {
            Order::Connect(sockets, kept) => {
                for _ in 0..sockets {
                    subscribers.push(Subscriber::new(from, port).map_err(wrong)?);
                }
                for _ in 0..kept {
                    let mut stream = connect(from, port).map_err(wrong)?;
                    get(&mut stream).map_err(wrong)?;
                    idle.push(stream);
                }
                Ok(Vec::new())
            }
            Order::Publish(first, count, pause) => {
                let one = |number| {
                    let confirmed = publish(port, number);
                    process::sleep(pause);
                    u64::from(confirmed)
                };
                Ok((first..first + count as u64).map(one).collect())
            }
            Order::End(number) => {
                let begun = Instant::now();
                while !publish(port, number) {
                    if begun.elapsed() > PATIENCE {
                        return Err(wrong(other("the last message was not confirmed in 20 s")));
                    }
                    process::sleep(1_000_000);
                }
                Ok(Vec::new())
            }
            Order::Hear(last, confirmed) => {
                let end = Instant::now() + PATIENCE;
                let (mut dropped, mut lost, mut doubled) = (0, 0, 0);
                for subscriber in &mut subscribers {
                    let (heard, is_over) = subscriber.hear(last, end);
                    dropped += u64::from(is_over);
                    let missed = confirmed.iter().filter(|number| !heard.contains_key(number));
                    lost += missed.count() as u64 + u64::from(!heard.contains_key(&last));
                    doubled += heard.values().map(|times| times - 1).sum::<u64>();
                }
                dropped += idle.iter_mut().map(|one| u64::from(get(one).is_err())).sum::<u64>();
                Ok(vec![dropped, lost, doubled])
            }
        }
    })
}

fn other(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}

fn connect(from: Ipv4Addr, port: u16) -> io::Result<TcpStream> {
    let socket = socket::connect_from(from, port)?;
    // The run must not leave ports occupied.
    descriptor::reset_on_close(&socket)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends a request on a connection that stays open, and reads the answer.
fn get(stream: &mut TcpStream) -> io::Result<String> {
    stream.write_all(GET)?;
    let head = head(stream)?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    match length {
        Some(length) if head.starts_with("HTTP/1.1 200 ") => {
            let mut body = vec![0; length];
            stream.read_exact(&mut body)?;
            Ok(String::from_utf8_lossy(&body).into_owned())
        }
        _ => Err(other(format!("an answer was {head:?}"))),
    }
}

/// Reads to the end of an answer's head, and no further.
fn head(stream: &mut impl Read) -> io::Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
        if head.len() > 8192 {
            return Err(other("the head of an answer does not end"));
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Sends a request on a new connection and returns the answer.
pub(super) fn ask(port: u16) -> io::Result<String> {
    get(&mut connect(Ipv4Addr::LOCALHOST, port)?)
}

/// Publishes a message on a connection of its own; returns whether it was confirmed.
fn publish(port: u16, number: u64) -> bool {
    let message = number.to_string();
    let request = format!(
        "POST {CHANNEL} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{message}",
        message.len()
    );
    let answer = connect(Ipv4Addr::LOCALHOST, port).and_then(|mut stream| {
        stream.write_all(request.as_bytes())?;
        head(&mut stream)
    });
    answer.is_ok_and(|head| head.starts_with("HTTP/1.1 201 "))
}

/// A subscriber by WebSocket, which reads messages on command.
struct Subscriber(WebSocket<TcpStream>);

impl Subscriber {
    fn new(from: Ipv4Addr, port: u16) -> io::Result<Subscriber> {
        // There are thousands of them, and the default is 128 KiB for each.
        let config = WebSocketConfig::default().read_buffer_size(4096);
        let address = format!("ws://localhost{CHANNEL}");
        match client_with_config(address, connect(from, port)?, Some(config)) {
            Ok((socket, _)) => Ok(Subscriber(socket)),
            Err(error) => Err(other(format!("a WebSocket's handshake was answered {error}"))),
        }
    }

    /// Returns how often each message came, up to the last message or the end of the patience, and
    /// whether the connection is over.
    fn hear(&mut self, last: u64, end: Instant) -> (HashMap<u64, u64>, bool) {
        let mut heard = HashMap::new();
        loop {
            // A subscriber that received data just now may be in the middle of a message.
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let limited = self.0.get_ref().set_read_timeout(Some(left));
            let message = match limited.map_err(tungstenite::Error::Io).and_then(|()| self.0.read())
            {
                Ok(Message::Ping(_)) => continue,
                Ok(message) => message,
                Err(tungstenite::Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    return (heard, false);
                }
                Err(_) => return (heard, true),
            };
            let Some(number) = message.to_text().ok().and_then(|text| text.parse().ok()) else {
                return (heard, true);
            };
            *heard.entry(number).or_default() += 1;
            if number == last {
                return (heard, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_where_its_body_begins() {
        let mut answer = &b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"[..];
        assert!(head(&mut answer).unwrap().starts_with("HTTP/1.1 200 OK"));
        assert_eq!(answer, b"ok");
        assert!(head(&mut &b"HTTP/1.1 200"[..]).is_err());
        assert!(head(&mut io::repeat(b'x')).unwrap_err().to_string().contains("does not end"));
    }
}
