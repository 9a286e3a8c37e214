//! Connections of HTTP/2 that outlive an upgrade or a crash of a server: idle ones, and those with
//! subscribers on their streams.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use super::crowd::{END as LAST, publish_to};
use super::succession::{Nursery, rounds};
use crate::stage::{connect, until};

pub(super) const DATA: u8 = 0;
const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(super) const WINDOW_UPDATE: u8 = 8;

/// The flags of an end, of an answer, and of the end of a head.
pub(super) const END: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The use that a client makes of its table of fields (RFC 7541).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Table {
    /// It has none.
    Unused,
    /// It uses one, and gives it up when it is asked.
    GivenUp,
    /// It uses one, and does not answer when it is asked to give it up.
    Kept,
}

/// A stream of bytes, encrypted or not.
pub(super) trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

pub(super) struct Client {
    stream: Box<dyn Stream>,
    is_encrypted: bool,
    next: u32,
    table: Table,
    /// The server allows a table.
    has_room: bool,
    /// It has a field of this client there.
    is_known: bool,
    /// The changes of the table's size that the next head begins with.
    sizes: Vec<u8>,
    streams: Vec<Subscription>,
}

/// A way to get the messages of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Events,
    Socket,
    /// A long-poll, and the next one after its answer.
    Polls,
}

use Kind::{Events, Polls, Socket};

/// A stream of events, a WebSocket, or a long-poll.
struct Subscription {
    stream: u32,
    channel: &'static str,
    kind: Kind,
    /// Bytes without their end.
    rest: Vec<u8>,
    /// The id of the last event, or message of a long-poll.
    last: u64,
    /// The messages.
    heard: Vec<String>,
}

impl Subscription {
    /// Takes bytes, and checks that no event is missing or doubled.
    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        if self.kind == Polls {
            return;
        }
        if self.kind == Socket {
            while let [0x81, length, data @ ..] = &self.rest[..]
                && let Some((data, rest)) = data.split_at_checked((*length).into())
            {
                self.heard.push(String::from_utf8(data.to_vec()).unwrap());
                self.rest = rest.to_vec();
            }
            return;
        }
        let text = std::str::from_utf8(&self.rest).unwrap().to_owned();
        let (whole, rest) = text.rsplit_once("\n\n").unwrap_or(("", &text));
        for event in whole.split("\n\n").filter(|event| !event.is_empty()) {
            let (id, data) = event.strip_prefix("id: ").unwrap().split_once("\ndata: ").unwrap();
            let id = id.split('-').next().unwrap().parse().unwrap();
            assert_eq!(id, self.last + 1, "{event}");
            self.last = id;
            self.heard.push(data.to_owned());
        }
        self.rest = rest.into();
    }

    /// Takes the answer to a long-poll.
    fn end(&mut self) {
        let answer: Value = serde_json::from_slice(&std::mem::take(&mut self.rest)).unwrap();
        for message in answer["messages"].as_array().unwrap() {
            assert_eq!(message["id"], self.last + 1, "{answer}");
            self.last += 1;
            self.heard.push(message["data"].as_str().unwrap().to_owned());
        }
        assert_eq!((&answer["next"], &answer["missed"]), (&self.last.into(), &Value::Null));
    }
}

impl Client {
    pub(super) fn encrypted(config: &Arc<ClientConfig>, at: SocketAddr, table: Table) -> Client {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(config.clone(), name).unwrap();
        Client::new(Box::new(StreamOwned::new(connection, connect(at))), true, table)
    }

    pub(super) fn new(stream: Box<dyn Stream>, is_encrypted: bool, table: Table) -> Client {
        let mut client = Client {
            stream,
            is_encrypted,
            next: 1,
            table,
            has_room: true,
            is_known: false,
            sizes: Vec::new(),
            streams: Vec::new(),
        };
        client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        client.send(SETTINGS, 0, 0, &[]);
        client
    }

    pub(super) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend_from_slice(&[kind, flags]);
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).unwrap();
    }

    /// Returns the next frame, and answers settings.
    pub(super) fn receive(&mut self) -> (u8, u8, u32, Vec<u8>) {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).unwrap();
        let takes_table = payload == [0, 1, 0, 0, 0, 0];
        if kind == SETTINGS && flags & ACK == 0 && !(takes_table && self.table == Table::Kept) {
            self.send(SETTINGS, ACK, 0, &[]);
            match &payload[..] {
                _ if takes_table => {
                    (self.has_room, self.is_known, self.sizes) = (false, false, vec![0x20]);
                }
                [0, 1, 0, 0, 0x10, 0] => {
                    self.has_room = true;
                    self.sizes.extend_from_slice(&[0x3f, 0xe1, 0x1f]);
                }
                _ => {}
            }
        }
        let of = u32::from_be_bytes(head[5..].try_into().unwrap());
        if kind == DATA
            && let Some(place) = self.streams.iter().position(|events| events.stream == of)
        {
            let events = &mut self.streams[place];
            events.take(&payload);
            if flags & END > 0 {
                assert_eq!(events.kind, Polls, "the stream goes on");
                events.end();
                let (channel, last) = (events.channel, events.last);
                self.streams[place].stream = self.ask(channel, Polls, last);
            }
        }
        (kind, flags, u32::from_be_bytes(head[5..].try_into().unwrap()), payload)
    }

    /// Returns the field `:scheme` of its requests (RFC 7541).
    fn scheme(&self) -> u8 {
        if self.is_encrypted { 0x87 } else { 0x86 }
    }

    /// Gets a file, by a request with a field that the server should know.
    fn get(&mut self) {
        let mut head = std::mem::take(&mut self.sizes);
        head.extend_from_slice(&[0x82, self.scheme(), 0x01, 1, b'a', 0x04, 6]);
        head.extend_from_slice(b"/small");
        let has_table = self.table != Table::Unused && self.has_room;
        match (has_table, self.is_known) {
            (false, _) => {}
            // The newest entry of the table.
            (_, true) => head.push(0xbe),
            (_, false) => head.extend_from_slice(b"\x40\x0dif-none-match\x03\"x\""),
        }
        self.is_known = has_table;
        let stream = self.next;
        self.next += 2;
        self.send(HEADERS, END | END_HEADERS, stream, &head);
        let (mut body, mut is_successful) = (Vec::new(), false);
        loop {
            let (kind, flags, of, payload) = self.receive();
            let is_of_channel = self.streams.iter().any(|events| events.stream == of);
            match kind {
                HEADERS if of == stream => is_successful = payload.contains(&0x88),
                DATA if of == stream => body.extend_from_slice(&payload),
                _ => assert!(of == 0 || is_of_channel, "a frame of type {kind}"),
            }
            if of == stream && flags & END > 0 {
                break;
            }
        }
        assert!(is_successful && body.ends_with(b"0123456789"));
    }

    /// Asks for the messages of a channel, a long-poll for those after the last one that it knows.
    /// Returns the number of the stream.
    pub(super) fn ask(&mut self, channel: &str, kind: Kind, last: u64) -> u32 {
        let mut head = std::mem::take(&mut self.sizes);
        match kind {
            Socket => head.extend_from_slice(b"\x02\x07CONNECT"),
            Events | Polls => head.push(0x82),
        }
        let path = match kind {
            Polls => format!("{channel}?after={last}"),
            Events | Socket => channel.to_owned(),
        };
        head.extend_from_slice(&[self.scheme(), 0x01, 1, b'a', 0x04]);
        head.push(u8::try_from(path.len()).unwrap());
        head.extend_from_slice(path.as_bytes());
        match kind {
            Socket => {
                head.extend_from_slice(b"\x00\x09:protocol\x09websocket");
                head.extend_from_slice(b"\x00\x15sec-websocket-version\x0213");
            }
            Events => head.extend_from_slice(b"\x00\x06accept\x11text/event-stream"),
            Polls => {}
        }
        let stream = self.next;
        self.next += 2;
        let end = if kind == Socket { 0 } else { END };
        self.send(HEADERS, end | END_HEADERS, stream, &head);
        stream
    }

    /// Subscribes to a channel.
    fn subscribe(&mut self, channel: &'static str, kind: Kind) {
        let stream = self.ask(channel, kind, 0);
        let mut last = 0;
        let begins_with = if kind == Events { DATA } else { HEADERS };
        let mut begins = kind == Polls;
        while !begins {
            let (is, _, of, payload) = self.receive();
            begins = of == stream && is == begins_with;
            if begins {
                let text = String::from_utf8_lossy(&payload);
                let id = text.strip_prefix("retry: 2000\nid: ");
                assert_eq!(id.is_some(), kind == Events, "{text}");
                last = id.map_or(0, |id| id.split('-').next().unwrap().parse().unwrap());
            }
        }
        let (rest, heard) = (Vec::new(), Vec::new());
        self.streams.push(Subscription { stream, channel, kind, rest, last, heard });
    }

    /// Reads until all streams have had an event.
    fn until_all_heard(&mut self, event: &str) {
        let has_heard =
            |events: &Subscription| events.heard.last().is_some_and(|last| last == event);
        while !self.streams.iter().all(has_heard) {
            self.receive();
        }
    }

    /// Reads until its long-polls have had an answer with a message.
    fn until_answered(&mut self, message: &str) {
        let is_answered = |one: &Subscription| {
            one.kind != Polls || one.heard.last().is_some_and(|last| last == message)
        };
        while !self.streams.iter().all(is_answered) {
            self.receive();
        }
    }

    /// Opens the windows of the connection and of its streams by some bytes.
    fn open_windows(&mut self) {
        let streams: Vec<u32> = self.streams.iter().map(|events| events.stream).collect();
        for stream in [0].into_iter().chain(streams) {
            self.send(WINDOW_UPDATE, 0, stream, &[0, 0, 1, 0]);
        }
    }

    /// Shows that the connection lives, without a request.
    fn ping(&mut self, round: u8) {
        self.send(PING, 0, 0, &[round; 8]);
        loop {
            if let (PING, ACK, 0, payload) = self.receive() {
                return assert_eq!(payload, [round; 8]);
            }
        }
    }
}

/// Returns the settings of a client that trusts a nursery's server, and the server's address.
pub(super) fn settings(nursery: &Nursery) -> (Arc<ClientConfig>, SocketAddr) {
    let mut roots = RootCertStore::empty();
    let certificate = std::fs::read(nursery.site.path("cert.pem")).unwrap();
    roots.add(PemObject::from_pem_slice(&certificate).unwrap()).unwrap();
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    (Arc::new(config), ([127, 0, 0, 1], nursery.tls.unwrap()).into())
}

/// Connects with TLS or without.
fn begin(
    nursery: &Nursery,
    (config, at): (&Arc<ClientConfig>, SocketAddr),
    is_plain: bool,
    table: Table,
) -> Client {
    match is_plain {
        true => Client::new(Box::new(connect(nursery.at())), false, table),
        false => Client::encrypted(config, at, table),
    }
}

#[test]
fn idle_connections_of_http_2_go_on_through_many_upgrades_and_crashes() {
    let nursery = Nursery::encrypted("");
    let mut server = nursery.server(&[]);
    let (config, at) = settings(&nursery);
    let kinds = [Table::Unused, Table::GivenUp, Table::Kept];
    let mut clients: Vec<Client> = (0..12)
        .map(|number| begin(&nursery, (&config, at), number % 2 > 0, kinds[number % kinds.len()]))
        .collect();
    for client in &mut clients {
        client.get();
        client.get();
    }
    let all = clients.len();
    for round in 0..2 * rounds() {
        // Those that were asked to give up their tables answer only when they read.
        for client in clients.iter_mut().filter(|client| client.table == Table::GivenUp) {
            client.ping(1);
        }
        nursery.until_held(all);
        server = nursery.next(server, round % 2 == 0);
        server.says(&format!("took over {all} connections"));
        for (number, client) in clients.iter_mut().enumerate() {
            match (number + round) % 4 {
                0 => client.ping(u8::try_from(round).unwrap_or(u8::MAX)),
                1 => {}
                _ => client.get(),
            }
        }
    }
    for client in &mut clients {
        client.get();
    }
    server.signal("TERM");
    assert!(server.ended().0.success());
}

/// Each connection has up to three streams, of one channel or of two. Messages are published up to
/// the moment at which the server ends, so that some of them are on their way; those for long-polls
/// before that.
#[test]
fn subscribers_on_streams_go_on_through_many_upgrades_and_crashes() {
    subscribers_go_on(&Nursery::encrypted(""));
}

/// Those without TLS need no setting for that.
#[test]
fn subscribers_on_streams_without_tls_go_on() {
    subscribers_go_on(&Nursery::new(""));
}

fn subscribers_go_on(nursery: &Nursery) {
    let mut server = nursery.server(&[]);
    let tls = nursery.tls.map(|_| settings(nursery));
    const NEWS: &str = "/news";
    const NOTES: &str = "/notes/a";
    const CALLS: &str = "/notes/b";
    let kinds: [&[(&str, Kind)]; 7] = [
        &[(NEWS, Events), (CALLS, Polls)],
        &[(NEWS, Socket)],
        &[(NEWS, Events), (NEWS, Events)],
        &[(NEWS, Events), (NOTES, Events)],
        &[(NEWS, Socket), (NEWS, Events), (NEWS, Socket)],
        &[(NOTES, Socket), (NEWS, Socket), (NOTES, Events)],
        &[(CALLS, Polls), (CALLS, Polls)],
    ];
    let count = std::env::var("SUPERPOLL_KEEP_CLIENTS");
    let count = count.ok().and_then(|count| count.parse().ok()).unwrap_or(21);
    let mut clients: Vec<Client> = (0..count)
        .map(|number: usize| {
            let tables = [Table::Unused, Table::GivenUp, Table::Unused];
            let table = tables[number % tables.len()];
            let mut client = match &tls {
                Some((config, at)) if number % 7 <= 4 => Client::encrypted(config, *at, table),
                _ => Client::new(Box::new(connect(nursery.at())), false, table),
            };
            client.get();
            for (channel, kind) in kinds[number % kinds.len()] {
                client.subscribe(channel, *kind);
            }
            client
        })
        .collect();
    let all = clients.len();
    let mut published: Vec<(&str, String)> = Vec::new();
    let mut publish = |channel: &'static str, message: &str| {
        until("a message is published", || publish_to(nursery.at(), channel, message));
        published.push((channel, message.to_owned()));
    };
    for round in 0..2 * rounds() {
        for (number, client) in clients.iter_mut().enumerate() {
            match (number + round) % 5 {
                0 => client.ping(u8::try_from(round).unwrap_or(u8::MAX)),
                1 => {
                    client.open_windows();
                    // The answer shows that the keeper does not have the connection as it was.
                    client.ping(2);
                }
                2 => client.get(),
                3 => client.ping(1),
                _ => {}
            }
        }
        // A response is not left, so a long-poll has its answer before the server ends.
        let call = format!("call {round}");
        publish(CALLS, &call);
        clients.iter_mut().for_each(|client| client.until_answered(&call));
        for client in clients.iter_mut().filter(|client| client.table == Table::GivenUp) {
            client.ping(1);
        }
        nursery.until_held(all);
        for number in 0..=round % 4 {
            publish(NEWS, &format!("news {number} of {round}"));
            if (number + round) % 3 == 0 {
                publish(NOTES, &format!("notes {number} of {round}"));
            }
        }
        server = nursery.next(server, round % 2 == 0);
        server.says(&format!("took over {all} connections"));
    }
    publish(NEWS, LAST);
    publish(NOTES, LAST);
    publish(CALLS, LAST);
    for client in &mut clients {
        client.until_all_heard(LAST);
        client.get();
        for Subscription { channel, heard, kind, .. } in &client.streams {
            let all = published.iter().filter(|(of, _)| of == channel);
            assert!(all.map(|(_, message)| message).eq(heard), "{channel} {kind:?}: {heard:?}");
        }
    }
    server.signal("TERM");
    assert!(server.ended().0.success());
}
