//! A server that is restarted: upgraded, and then killed.
//!
//! The server is `superpoll serve`, as a user would start it, with a keeper process. Half of
//! the connections are subscribers by WebSocket, and half have sent one request and are kept. When
//! all are with the keeper, messages are published one after another; meanwhile the next server
//! is started, with `--upgrade`, or without it after `kill -9`. Each server serves a page with its
//! own number: the time runs from before its process is made until a new connection has received
//! its page. Then every subscriber reports the messages that it received, and every kept connection
//! sends another request. A message whose publisher got no confirmation may arrive or not, but not
//! twice.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tungstenite::client::client_with_config;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

use crate::error::{Doing, Error, Result};
use crate::findings::Named;
use crate::keep::moves::KeeperProcess;
use crate::server::clients::Clients;
use crate::server::{ProcessOptions, Server, program};
use crate::sys::{descriptor, process, socket};

/// How long it may take until connections are left with the keeper, and until a server ends or
/// begins.
const PATIENCE: Duration = Duration::from_secs(40);

/// Messages during a restart, and the pause after each.
const MESSAGES: usize = 20;
const PAUSE_NS: u64 = 25_000_000;

/// How long messages are published before the next server is started.
const BEFORE_NS: u64 = 100_000_000;

crate::by_name::named! {
    /// How a server follows the previous one.
    pub(super) enum RestartKind {
        /// The new server is told to take over.
        Upgrade = "upgrade",
        /// The previous server has been killed.
        Crash = "crash",
    }
}

/// A server, its keeper and its clients.
#[derive(Debug)]
pub(super) struct Site {
    connections: usize,
    port: u16,
    keeper: KeeperProcess,
    crowd: Clients,
    publisher: Clients,
    server: Option<Server>,
    /// How many descriptors the keeper has without connections.
    own: usize,
    number: usize,
    messages: u64,
    folder: TempDir,
}

const PROCESS: ProcessOptions = ProcessOptions { processor: None, second_thread: false };

impl Site {
    /// Starts all of them, and makes the clients connect.
    pub(super) fn start(connections: usize) -> Result<Site> {
        let failed = |e| Error::system("making a folder to be served", e);
        let folder = tempfile::tempdir().map_err(failed)?;
        let port = program::free_port()?;
        let keeper = KeeperProcess::start()?;
        let crowd = start("superpoll serve", port, Ipv4Addr::new(127, 0, 0, 2))?;
        let publisher = start("superpoll serve", port, Ipv4Addr::new(127, 0, 0, 3))?;
        let mut site = Site {
            connections,
            port,
            keeper,
            crowd,
            publisher,
            server: None,
            own: 0,
            number: 0,
            messages: 0,
            folder,
        };
        let server = site.begin(&[])?;
        site.server = Some(server);
        site.own = site.keeper.descriptors()?;
        let subscribers = connections / 2;
        site.crowd.ask::<_, Vec<u64>>(&Order::Connect(subscribers, connections - subscribers))?;
        Ok(site)
    }

    fn wrong(found: impl Into<String>) -> Error {
        Error::Work { subject: "superpoll serve", found: found.into() }
    }

    /// Starts the next server, whose page is its number.
    fn begin(&mut self, arguments: &[&str]) -> Result<Server> {
        self.number += 1;
        let page = page(self.number);
        let file = write(self.folder.path(), self.port, self.number, &page)
            .doing("writing the configuration of a server")?;
        let (file, keep) = (file.to_string_lossy(), self.keeper.path());
        let keep = keep.to_string_lossy();
        let all = [&["serve", "--workers", "1", "-c", &*file, "--keeper", &*keep][..], arguments]
            .concat();
        program::superpoll("superpoll serve", PROCESS, &all).map(|(server, _)| server)
    }

    fn until_held(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let held = self.keeper.descriptors()?.saturating_sub(self.own);
            if held >= self.connections {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let all = self.connections;
                let found = format!("{held} of {all} idle connections were left with the keeper");
                return Err(Site::wrong(found));
            }
            process::sleep(10_000_000);
        }
    }

    /// Makes the next server follow the present one. Returns the nanoseconds until the new process
    /// answers; and how many connections have ended, how many messages a subscriber has missed or
    /// received twice, and how many were confirmed.
    pub(super) fn follow(&mut self, kind: RestartKind) -> Result<[Named; 5]> {
        self.until_held()?;
        let first = self.messages + 1;
        self.publisher.order(&Order::Publish(first, MESSAGES, PAUSE_NS))?;
        process::sleep(BEFORE_NS);
        let before = self.server.take();
        if kind == RestartKind::Crash {
            // Dropping kills the server and waits for its end.
            drop(before);
        } else {
            self.server = before;
        }
        let begun = process::now();
        let server = self.begin(if kind == RestartKind::Upgrade { &["--upgrade"] } else { &[] })?;
        let page = page(self.number);
        let mut said = String::new();
        while said != page {
            said = ask(self.port).unwrap_or_default();
            if process::now() - begun > PATIENCE.as_nanos() as u64 {
                return Err(Site::wrong(format!("a new server does not answer, but {said:?}")));
            }
        }
        let answer_ns = (process::now() - begun) as f64;
        if let Some(before) = self.server.replace(server) {
            let begun = Instant::now();
            while !before.has_ended() {
                if begun.elapsed() > PATIENCE {
                    return Err(Site::wrong("a server that was replaced does not end"));
                }
                process::sleep(1_000_000);
            }
        }
        let outcome: Vec<u64> = self.publisher.answer()?;
        let numbers = (first..).zip(outcome);
        let confirmed: Vec<u64> =
            numbers.filter(|(_, confirmed)| *confirmed == 1).map(|(number, _)| number).collect();
        self.messages += MESSAGES as u64 + 1;
        self.publisher.ask::<_, Vec<u64>>(&Order::End(self.messages))?;
        let count = confirmed.len() as f64;
        let found: Vec<u64> = self.crowd.ask(&Order::Hear(self.messages, confirmed))?;
        let of = |place: usize| found.get(place).map_or(f64::NAN, |&number| number as f64);
        Ok([
            ("first answer", "ns", answer_ns),
            ("dropped", "count", of(0)),
            ("lost", "count", of(1)),
            ("doubled", "count", of(2)),
            ("confirmed", "count", count),
        ])
    }
}

fn page(number: usize) -> String {
    format!("server {number}\n")
}

/// Writes a folder to serve, and a configuration.
fn write(folder: &Path, port: u16, number: usize, page: &str) -> std::io::Result<PathBuf> {
    let root = folder.join(format!("root-{number}"));
    std::fs::create_dir(&root)?;
    std::fs::write(root.join("index.html"), page)?;
    let file = folder.join(format!("server-{number}.toml"));
    let config = format!(
        "[[listeners]]\naddress = \"127.0.0.1:{port}\"\n[[hosts]]\n[[hosts.routes]]\n\
         files = {{ root = {:?} }}\n[[hosts.routes]]\npath = \"{CHANNEL}\"\n\
         channel = {{ history = 1000 }}\n[timeouts]\npark = \"50ms\"\nidle = \"24h\"\nheader = \"24h\"\n",
        root.to_string_lossy()
    );
    std::fs::write(&file, config)?;
    Ok(file)
}

// The clients of a server that is restarted: subscribers by WebSocket, keep-alive connections, and
// the publisher.

/// How long an answer may take, and all messages to arrive.
const HEARING: Duration = Duration::from_secs(20);

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
                    if begun.elapsed() > HEARING {
                        return Err(wrong(other("the last message was not confirmed in 20 s")));
                    }
                    process::sleep(1_000_000);
                }
                Ok(Vec::new())
            }
            Order::Hear(last, confirmed) => {
                let end = Instant::now() + HEARING;
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
    stream.set_read_timeout(Some(HEARING))?;
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
