//! Many clients of one server: subscribers by WebSocket and server-sent events, and keep-alive
//! connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::stage::{PATIENCE, connect, response, until};

/// The last message.
pub(crate) const END: &str = "end";

/// How a subscriber gets its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    WebSocket,
    /// Server-sent events, in chunks; the last id, if there was one.
    Events(Option<u64>),
    /// Updates of Mercure, in chunks.
    Mercure,
}

/// A stream with a server, encrypted or not.
pub(crate) trait Wire: Read + Write + Send {}

impl<T: Read + Write + Send> Wire for T {}

/// A subscriber, which reads bytes as they come.
pub(crate) struct Subscriber {
    stream: Box<dyn Wire>,
    unread: Vec<u8>,
    way: Way,
}

/// A message, or bytes that are none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    Message(String),
    /// A ping, which needs no answer in so short a time, or a comment.
    SignOfLife,
}

impl Subscriber {
    /// Subscribes by WebSocket.
    pub(crate) fn new(at: SocketAddr) -> Subscriber {
        Subscriber::of(at, "/news")
    }

    /// Subscribes to the channel at a path.
    pub(crate) fn of(at: SocketAddr, path: &str) -> Subscriber {
        Subscriber::on(Box::new(connect(at)), path)
    }

    /// The same, on a stream.
    pub(crate) fn on(mut stream: Box<dyn Wire>, path: &str) -> Subscriber {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let head = response(&mut stream);
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        Subscriber { stream, unread: Vec::new(), way: Way::WebSocket }
    }

    /// Subscribes by server-sent events.
    pub(crate) fn events(at: SocketAddr) -> Subscriber {
        Subscriber::events_on(Box::new(connect(at)))
    }

    /// The same, on a stream.
    pub(crate) fn events_on(stream: Box<dyn Wire>) -> Subscriber {
        let (mut subscriber, first) = Subscriber::stream_on(stream, "/news");
        let id = first.strip_prefix("retry: 2000\nid: ").unwrap().split('-').next().unwrap();
        subscriber.way = Way::Events(Some(id.parse().unwrap()));
        subscriber
    }

    /// Subscribes to updates of a hub of Mercure.
    pub(crate) fn updates(at: SocketAddr, query: &str) -> Subscriber {
        let (subscriber, _) = Subscriber::stream_of(at, &format!("/.well-known/mercure?{query}"));
        Subscriber { way: Way::Mercure, ..subscriber }
    }

    /// Subscribes by server-sent events; returns the first one, too.
    pub(crate) fn stream_of(at: SocketAddr, target: &str) -> (Subscriber, String) {
        Subscriber::stream_on(Box::new(connect(at)), target)
    }

    fn stream_on(mut stream: Box<dyn Wire>, target: &str) -> (Subscriber, String) {
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut subscriber = Subscriber { stream, unread: Vec::new(), way: Way::Events(None) };
        let head = loop {
            if let Some(end) = position(&subscriber.unread, b"\r\n\r\n") {
                break subscriber.unread.drain(..end + 4).collect();
            }
            subscriber.read().unwrap();
        };
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("\r\ntransfer-encoding: chunked\r\n"), "{head}");
        let first = subscriber.chunk().unwrap();
        (subscriber, first)
    }

    /// Reads some bytes; `None` if the connection has ended.
    fn read(&mut self) -> Option<()> {
        let mut room = [0; 4096];
        let count = match self.stream.read(&mut room) {
            // An encrypted connection of a server that was killed ends without a word.
            Err(error)
                if [ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof]
                    .contains(&error.kind()) =>
            {
                0
            }
            outcome => outcome.unwrap(),
        };
        self.unread.extend_from_slice(&room[..count]);
        (count > 0).then_some(())
    }

    /// Returns the next frame: its type and its data; `None` at the end.
    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let head = |at: usize| self.unread.get(at).copied().map(usize::from);
            let length = match (head(1), head(2), head(3)) {
                (Some(126), Some(high), Some(low)) => Some((4, high << 8 | low)),
                (Some(126), ..) => None,
                (Some(length), ..) => Some((2, length)),
                _ => None,
            };
            if let Some((start, length)) = length
                && self.unread.len() >= start + length
            {
                let frame: Vec<u8> = self.unread.drain(..start + length).collect();
                return Some((frame[0], frame[start..].to_vec()));
            }
            self.read()?;
        }
    }

    /// Returns the next chunk; `None` at the end.
    fn chunk(&mut self) -> Option<String> {
        loop {
            if let Some(end) = position(&self.unread, b"\r\n") {
                let size = std::str::from_utf8(&self.unread[..end]).unwrap();
                let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("{size:?}"));
                if self.unread.len() >= end + 2 + size + 2 {
                    let chunk: Vec<u8> = self.unread.drain(..end + 2 + size + 2).collect();
                    assert!(chunk.ends_with(b"\r\n"), "{chunk:?}");
                    return String::from_utf8(chunk[end + 2..][..size].to_vec()).ok();
                }
            }
            self.read()?;
        }
    }

    /// Returns what comes next; `None` at the end.
    pub(crate) fn receive(&mut self) -> Option<Received> {
        let last = match self.way {
            Way::WebSocket => {
                return Some(match self.frame()? {
                    (0x81, data) => Received::Message(String::from_utf8(data).unwrap()),
                    (0x89, _) => Received::SignOfLife,
                    other => panic!("{other:?}"),
                });
            }
            Way::Events(last) => Some(last),
            Way::Mercure => None,
        };
        let chunk = self.chunk()?;
        if chunk.is_empty() {
            return None;
        }
        if chunk == ":\n" {
            return Some(Received::SignOfLife);
        }
        let (id, data) = chunk.strip_prefix("id: ").unwrap().split_once("\ndata: ").unwrap();
        if let Some(last) = last {
            let id: u64 = id.split('-').next().unwrap().parse().unwrap();
            assert_eq!(Some(id), last.map(|last| last + 1), "{chunk}");
            self.way = Way::Events(Some(id));
        }
        Some(Received::Message(data.strip_suffix("\n\n").unwrap().to_owned()))
    }

    /// Returns all messages up to the last.
    pub(crate) fn messages(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            match self.receive().expect("the connection goes on") {
                Received::Message(message) if message == END => return all,
                Received::Message(message) => all.push(message),
                Received::SignOfLife => {}
            }
        }
    }
}

/// Checks that all subscribers have received the same messages: each confirmed message once, in
/// order, and each unconfirmed one at most once.
pub(crate) fn check(subscribers: &mut [Subscriber], confirmed: &[String], doubtful: &[String]) {
    let first = subscribers[0].messages();
    for (number, subscriber) in subscribers.iter_mut().enumerate().skip(1) {
        assert_eq!(subscriber.messages(), first, "subscriber {number}");
    }
    let mut heard = first.clone();
    heard.retain(|message| !doubtful.contains(message));
    assert_eq!(heard, confirmed);
    let mut once = first.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), first.len());
}

/// Returns where some bytes are.
fn position(bytes: &[u8], of: &[u8]) -> Option<usize> {
    bytes.windows(of.len()).position(|window| window == of)
}

/// Publishes a message on a connection of its own. Returns whether that was confirmed.
pub(crate) fn publish(at: SocketAddr, message: &str) -> bool {
    publish_to(at, "/news", message)
}

/// The same, in the channel at a path.
pub(crate) fn publish_to(at: SocketAddr, path: &str, message: &str) -> bool {
    // The connection is accepted in any case: some process has the listener.
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{message}",
        message.len()
    );
    let mut answer = String::new();
    let asked = stream.write_all(request.as_bytes());
    let heard = asked.and_then(|()| stream.read_to_string(&mut answer));
    heard.is_ok() && answer.starts_with("HTTP/1.1 20")
}

/// Publishes messages continuously.
pub(crate) struct Publisher {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<(Vec<String>, Vec<String>)>,
}

impl Publisher {
    pub(crate) fn start(at: SocketAddr) -> Publisher {
        let ends: Arc<AtomicBool> = Arc::default();
        let told = ends.clone();
        let thread = thread::spawn(move || {
            let (mut confirmed, mut doubtful) = (Vec::new(), Vec::new());
            for number in 0.. {
                let message = format!("message {number}");
                let list = if publish(at, &message) { &mut confirmed } else { &mut doubtful };
                list.push(message);
                if told.load(Ordering::Relaxed) {
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
            // The last message has to be published for the test to end.
            until("the last message is published", || publish(at, END));
            (confirmed, doubtful)
        });
        Publisher { ends, thread }
    }

    /// Stops. Returns the messages that were confirmed, and those that were not.
    pub(crate) fn end(self) -> (Vec<String>, Vec<String>) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}
