//! A subscriber: it stays with its channel whatever happens to servers.
//!
//! It connects to a server with the position of its last message, and to the next server when it
//! has lost the connection. It acts as any client should: it does not look for
//! messages that a server does not mention.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use superpoll_rt::time;

use crate::cluster::CHANNEL;
use crate::cluster::connection::{Connection, PATIENCE};
use crate::cluster::events::{Event, Lines};
use crate::cluster::ledger::{Ledger, Position, Reader};
use crate::fanout::wire::{FIELDS, check, chunk, frame};
use crate::random::Random;
use crate::sys::process;

/// The longest pause before a subscriber connects again.
const PAUSE_MS: usize = 200;

/// The ways to subscribe.
const FORMS: usize = 3;

/// All subscribers of a process.
#[derive(Debug)]
pub(super) struct Shared {
    /// The addresses of the servers.
    pub servers: Vec<SocketAddr>,
    /// The messages that they have received.
    pub ledger: RefCell<Ledger>,
    /// The state of each.
    pub readers: RefCell<Vec<Reader>>,
    /// Subscribers that a server has accepted.
    pub accepted: Cell<usize>,
    /// Connections that were lost, and why.
    pub reasons: RefCell<BTreeMap<String, u64>>,
    /// The number of the message that ends the round, and the subscribers that have it.
    pub end: RefCell<String>,
    pub ended: Cell<usize>,
}

impl Shared {
    fn hear(&self, number: usize, server: usize, position: Position, text: &str) {
        let mut readers = self.readers.borrow_mut();
        let mut ledger = self.ledger.borrow_mut();
        readers[number].hear(&mut ledger, position, text, process::now(), server != 0);
        if *self.end.borrow() == text {
            self.ended.set(self.ended.get() + 1);
        }
    }
}

/// A subscriber.
#[derive(Debug)]
pub(super) struct Subscriber {
    /// All of its process.
    pub shared: Rc<Shared>,
    /// Its number in the process.
    pub number: usize,
    /// Its number among all.
    pub global: usize,
    /// The position with which it resumes.
    pub resume: String,
    /// The number of its server.
    pub server: usize,
    /// Whether it was accepted once.
    pub is_accepted: bool,
}

/// A frame of `superpoll.v1`.
#[derive(Deserialize)]
struct Frame<'a> {
    id: u64,
    #[serde(borrow)]
    epoch: Cow<'a, str>,
    #[serde(borrow)]
    data: Option<Cow<'a, str>>,
    #[serde(default)]
    missed: bool,
}

/// The answer to a long-poll.
#[derive(Deserialize)]
struct Polled<'a> {
    #[serde(borrow)]
    messages: Vec<Item<'a>>,
    next: u64,
    #[serde(borrow)]
    epoch: Cow<'a, str>,
    #[serde(default)]
    missed: bool,
}

#[derive(Deserialize)]
struct Item<'a> {
    id: u64,
    #[serde(borrow)]
    data: Cow<'a, str>,
}

impl Subscriber {
    /// Subscribes, and subscribes again after each lost connection.
    pub(super) async fn run(mut self) {
        let mut random = Random::new(self.global as u64);
        loop {
            let reason = match self.global % FORMS {
                0 => self.socket().await,
                1 => self.events().await,
                _ => self.polls().await,
            };
            let reason = reason.err().unwrap_or_default();
            *self.shared.reasons.borrow_mut().entry(reason).or_default() += 1;
            time::sleep(Duration::from_millis(random.below(PAUSE_MS) as u64)).await;
            self.server = (self.server + 1) % self.shared.servers.len();
        }
    }

    async fn open(&mut self, fields: &str, target: &str) -> Result<Connection, String> {
        let mut connection = Connection::open(self.shared.servers[self.server]).await?;
        connection.send(request(fields, target).as_bytes()).await?;
        Ok(connection)
    }

    fn accepted(&mut self) {
        if !std::mem::replace(&mut self.is_accepted, true) {
            self.shared.accepted.set(self.shared.accepted.get() + 1);
        }
    }

    fn hear(&mut self, position: Position, text: &str) {
        self.shared.hear(self.number, self.server, position, text);
    }

    fn missed(&mut self) {
        self.shared.readers.borrow_mut()[self.number].missed();
    }

    /// Subscribes by WebSocket with `superpoll.v1`.
    async fn socket(&mut self) -> Result<(), String> {
        let fields = format!("{FIELDS}sec-websocket-protocol: superpoll.v1\r\n");
        let target = format!("{CHANNEL}?after={}", self.resume);
        let mut connection = self.open(&fields, &target).await?;
        let head = time::timeout(PATIENCE, connection.head(check));
        head.await.map_err(|_| "a handshake is not answered")??;
        self.accepted();
        let mut reply = Vec::new();
        loop {
            let bytes = std::mem::take(&mut connection.bytes);
            let mut taken = 0;
            loop {
                let hear = &mut |text: &[u8]| self.frame(text);
                match frame(&bytes[taken..], hear, &mut reply)? {
                    0 => break,
                    length => taken += length,
                }
            }
            connection.bytes = bytes;
            connection.take(taken);
            if !reply.is_empty() {
                connection.send(&reply).await?;
                reply.clear();
            }
            connection.more().await?;
        }
    }

    fn frame(&mut self, text: &[u8]) -> Result<(), String> {
        let frame: Frame<'_> =
            serde_json::from_slice(text).map_err(|error| format!("a frame: {error}"))?;
        let position = Position::of(frame.id, &frame.epoch)?;
        if frame.missed {
            self.missed();
        }
        if let Some(data) = frame.data {
            self.hear(position, &data);
        }
        self.resume = position.to_string();
        Ok(())
    }

    /// Subscribes by server-sent events.
    async fn events(&mut self) -> Result<(), String> {
        let fields = format!("accept: text/event-stream\r\nlast-event-id: {}\r\n", self.resume);
        let mut connection = self.open(&fields, CHANNEL).await?;
        let head = time::timeout(PATIENCE, connection.head(|_| Ok(())));
        let answer = head.await.map_err(|_| "a stream of events is not answered")??;
        if answer.code != 200 {
            return Err(format!("a stream of events is answered {}", answer.code));
        }
        self.accepted();
        let mut lines = Lines::default();
        loop {
            let bytes = std::mem::take(&mut connection.bytes);
            let mut taken = 0;
            while let Some((data, length)) = chunk(&bytes[taken..])? {
                if data.is_empty() {
                    return Err("the stream of events ended".to_owned());
                }
                let mut wrong = Ok(());
                lines.take(data, &mut |event| match event {
                    Event::Missed => self.missed(),
                    Event::Message(text, id) => match Position::parse(&id) {
                        Ok(position) => self.hear(position, &text),
                        Err(error) => wrong = Err(error),
                    },
                });
                wrong?;
                if let Some(id) = &lines.last_id {
                    self.resume.clone_from(id);
                }
                taken += length;
            }
            connection.bytes = bytes;
            connection.take(taken);
            connection.more().await?;
        }
    }

    /// Subscribes by long-polls on one connection.
    async fn polls(&mut self) -> Result<(), String> {
        let mut connection = self.open("", &format!("{CHANNEL}?after={}", self.resume)).await?;
        self.accepted();
        loop {
            let answer = connection.head(|_| Ok(())).await?;
            match answer.code {
                200 => {
                    let body = connection.body(answer).await?;
                    self.polled(&body)?;
                }
                204 => {}
                code => return Err(format!("a long-poll is answered {code}")),
            }
            let target = format!("{CHANNEL}?after={}", self.resume);
            connection.send(request("", &target).as_bytes()).await?;
        }
    }

    fn polled(&mut self, body: &[u8]) -> Result<(), String> {
        let polled: Polled<'_> =
            serde_json::from_slice(body).map_err(|error| format!("a long-poll: {error}"))?;
        if polled.missed {
            self.missed();
        }
        for item in &polled.messages {
            self.hear(Position::of(item.id, &polled.epoch)?, &item.data);
        }
        self.resume = Position::of(polled.next, &polled.epoch)?.to_string();
        Ok(())
    }
}

fn request(fields: &str, target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: cluster\r\n{fields}\r\n")
}
