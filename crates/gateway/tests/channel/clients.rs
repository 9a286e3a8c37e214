//! Clients of a channel.

use std::io::BufRead;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::Value;
use superpoll_gateway::Address;
use superpoll_gateway::config::Channel;
use superpoll_rt::BackendKind;
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::client::Response;
use tungstenite::{Message, WebSocket};

use crate::stage::{Answer, Client, PATIENCE, Stage};

/// Options of a channel that keeps all messages of [`subscribe_while_publishing`], whose clients
/// read none of them meanwhile, however long that takes.
pub(crate) const ROOM: &str =
    "history = 100000, backlog_bytes = \"64MiB\", queue_bytes = \"64MiB\"";

/// A server with a channel at `/c`, which has further `options`.
pub(crate) fn stage(backend: BackendKind, workers: usize, options: &str) -> Stage {
    Stage::new(backend, workers, &text(options))
}

pub(crate) fn text(options: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [timeouts]\npark = \"40ms\"\n\
         [[hosts]]\n[[hosts.routes]]\npath = \"/c\"\nchannel = {{ {options} }}\n"
    )
}

pub(crate) fn address(stage: &Stage) -> String {
    let Address::Tcp { host, port } = &stage.addresses[0] else { panic!("it is TCP") };
    format!("{}:{port}", host.as_deref().unwrap())
}

/// Reads chunks of a response until they have a text.
pub(crate) fn read_until(client: &mut Client, text: &str) {
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains(text) {
        assert!(client.chunk(&mut bytes), "the response ends without {text:?}");
    }
}

/// Waits until the channel has this many subscribers.
pub(crate) fn until_subscribers(stage: &Stage, count: usize) {
    let channel = stage.channel.as_ref().unwrap();
    let end = Instant::now() + PATIENCE;
    while channel.subscribers() != count {
        assert!(Instant::now() < end, "{} are not {count}", channel.subscribers());
        std::thread::yield_now();
    }
}

/// Waits until the channel follows a changed configuration.
pub(crate) fn until_options(stage: &Stage, changed: impl Fn(&Channel) -> bool) {
    let channel = stage.channel.as_ref().unwrap();
    let end = Instant::now() + PATIENCE;
    while !changed(&channel.options()) {
        assert!(Instant::now() < end, "{:?}", channel.options());
        std::thread::yield_now();
    }
}

/// Lets clients subscribe, each after a given message, while messages are on their way to the
/// engines. Returns the clients and the last message. Each message is its own id.
pub(crate) fn subscribe_while_publishing<T>(
    stage: &Stage,
    mut subscribe: impl FnMut(u64) -> T,
) -> (Vec<T>, u64) {
    let channel = stage.channel.as_ref().unwrap();
    let subscribed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            for id in 1..20_000 {
                assert_eq!(channel.publish(id.to_string()), Some(id));
                if subscribed.load(Ordering::Relaxed) {
                    return id;
                }
                std::thread::yield_now();
            }
            19_999
        });
        let mut clients = Vec::new();
        for number in 0..80 {
            // Some have much to catch up with, others hardly anything.
            let last = channel.last();
            clients.push(subscribe(if number % 4 == 0 { last / 2 } else { last }));
        }
        subscribed.store(true, Ordering::Relaxed);
        (clients, publisher.join().unwrap())
    })
}

/// Publishes a message, and returns its id.
pub(crate) fn publish(stage: &Stage, data: impl AsRef<[u8]>) -> u64 {
    let mut client = stage.connect();
    post(&mut client, data)
}

pub(crate) fn post(client: &mut Client, data: impl AsRef<[u8]>) -> u64 {
    let data = data.as_ref();
    let head = format!("POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", data.len());
    client.send([head.as_bytes(), data].concat());
    let answer = client.answer();
    assert_eq!(answer.status, 201, "{answer:?}");
    let json: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(field(&answer, "channel-next"), json["id"].to_string());
    json["id"].as_u64().unwrap()
}

/// A field of a response.
pub(crate) fn field<'a>(answer: &'a Answer, name: &str) -> &'a str {
    let mut fields = answer.head.lines().filter_map(|line| line.split_once(": "));
    let field = fields.find(|(found, _)| *found == name);
    field.unwrap_or_else(|| panic!("{name} in {}", answer.head)).1
}

/// Asks by long-poll, without waiting for the answer.
pub(crate) fn ask(client: &mut Client, query: &str) {
    client.send(format!("GET /c{query} HTTP/1.1\r\nhost: a\r\n\r\n"));
}

/// The messages of a long-poll's answer.
pub(crate) fn messages(answer: &Answer) -> Vec<(u64, String)> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let json: Value = serde_json::from_slice(&answer.body).unwrap();
    let messages = json["messages"].as_array().unwrap().iter();
    let text =
        |one: &Value| (one["id"].as_u64().unwrap(), one["data"].as_str().unwrap().to_owned());
    messages.map(text).collect()
}

pub(crate) fn is_missed(answer: &Answer) -> bool {
    let json: Value = serde_json::from_slice(&answer.body).unwrap();
    json["missed"] == true
}

/// A subscriber by WebSocket.
pub(crate) fn socket(stage: &Stage, query: &str) -> (WebSocket<TcpStream>, Response) {
    let request = format!("ws://{}/c{query}", address(stage)).into_client_request().unwrap();
    let stream = TcpStream::connect(address(stage)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    tungstenite::client::client(request, stream).unwrap()
}

/// The next message, which is text.
pub(crate) fn next(socket: &mut WebSocket<TcpStream>) -> String {
    loop {
        match socket.read().unwrap() {
            Message::Text(text) => return text.to_string(),
            Message::Ping(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A stream of events.
pub(crate) struct Events {
    pub client: Client,
    is_chunked: bool,
    /// Text of chunks that was not returned yet.
    text: String,
}

/// An event of the stream.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Event {
    pub kind: String,
    pub id: String,
    pub data: String,
    /// It was a comment.
    pub is_comment: bool,
}

impl Events {
    /// Subscribes by HTTP/1.1, and returns the place of the stream.
    pub(crate) fn new(stage: &Stage, query: &str, more: &str) -> (Events, String) {
        Events::by("1.1", stage, query, more)
    }

    /// Subscribes by a version of HTTP. Streams of HTTP/1.0 are not parked.
    pub(crate) fn by(version: &str, stage: &Stage, query: &str, more: &str) -> (Events, String) {
        let mut client = stage.connect();
        client.send(format!(
            "GET /c{query} HTTP/{version}\r\nhost: a\r\naccept: text/event-stream\r\n{more}\r\n"
        ));
        Events::answered(client)
    }

    /// Reads the answer up to the place of the stream.
    pub(crate) fn answered(mut client: Client) -> (Events, String) {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(client.0.read_line(&mut head).unwrap(), 0, "{head}");
        }
        assert!(head.contains(" 200 OK\r\n"), "{head}");
        assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
        assert!(head.contains("cache-control: no-store\r\n"), "{head}");
        assert!(head.contains("x-accel-buffering: no\r\n"), "{head}");
        assert!(head.contains("\r\ndate: "), "{head}");
        let is_chunked = head.contains("transfer-encoding: chunked\r\n");
        assert!(is_chunked || head.starts_with("HTTP/1.0 "), "{head}");
        let mut events = Events { client, is_chunked, text: String::new() };
        assert_eq!(events.line().as_deref(), Some("retry: 2000"));
        let id =
            events.line().and_then(|line| Some(line.strip_prefix("id: ")?.to_owned())).unwrap();
        // The field has the place in one channel. That in several could make the head too long for
        // proxies, and a hub of Mercure has a place only if it was asked for.
        let is_of_one = id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let place = head.lines().find_map(|line| line.strip_prefix("last-event-id: "));
        assert_eq!(place, is_of_one.then_some(&id[..]), "{head}");
        (events, id)
    }

    /// Returns the next line; `None` at the end.
    fn line(&mut self) -> Option<String> {
        if self.is_chunked {
            return self.line_of_chunks();
        }
        let mut line = String::new();
        (self.client.0.read_line(&mut line).unwrap() > 0)
            .then(|| line.strip_suffix('\n').unwrap().to_owned())
    }

    fn line_of_chunks(&mut self) -> Option<String> {
        let mut bytes = Vec::new();
        if self.text.is_empty() && self.client.chunk(&mut bytes) {
            self.text = String::from_utf8(bytes).unwrap();
            // No event is spread over two chunks.
            let is_whole = self.text.ends_with("\n\n") || self.text == ":\n";
            assert!(is_whole || self.text.starts_with("retry: "), "{:?}", self.text);
        }
        let (line, rest) = self.text.split_once('\n')?;
        let (line, rest) = (line.to_owned(), rest.to_owned());
        self.text = rest;
        Some(line)
    }

    /// Returns the next event, read as the standard requires; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let mut event = Event { kind: "message".to_owned(), ..Event::default() };
        let mut data = Vec::new();
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("id", id)) => id.clone_into(&mut event.id),
                Some(("event", kind)) => kind.clone_into(&mut event.kind),
                Some(("data", line)) => data.push(line.to_owned()),
                _ if line == ":" => {
                    assert_eq!((&event.id[..], data.len()), ("", 0), "a comment within an event");
                    return Some(Event { is_comment: true, ..event });
                }
                _ => {
                    assert_eq!(line, "");
                    // Some libraries would deliver it as an empty message.
                    assert!(!data.is_empty(), "an event without data: {event:?}");
                    event.data = data.join("\n");
                    return Some(event);
                }
            }
        }
    }

    /// The next message's id and data.
    pub(crate) fn message(&mut self) -> (u64, String) {
        loop {
            let event = self.next().unwrap();
            if !event.is_comment {
                assert_eq!(event.kind, "message", "{event:?}");
                return (event.id.split('-').next().unwrap().parse().unwrap(), event.data);
            }
        }
    }

    /// Whether nothing more comes.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.client.is_closed()
    }
}
