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

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::findings::Named;
use crate::keep::moves::KeeperProcess;
use crate::server::clients::{self, Clients};
use crate::server::crowd::{Crowd, Order, Settings};
use crate::server::http::{Client, request};
use crate::server::program::{PROCESS, until};
use crate::server::wire::{Form, Opening, Subscription, Transport, message};
use crate::server::{Server, program};
use crate::sys::process;

/// How long it may take until connections are left with the keeper, and until a server ends or
/// begins.
const PATIENCE: Duration = Duration::from_secs(40);

/// Messages during a restart, and the pause after each.
const MESSAGES: usize = 20;
const PAUSE_NS: u64 = 25_000_000;

/// Connections that are opened, or asked, at the same time.
const IN_FLIGHT: usize = 50;

const NAME: &str = "superpoll serve";

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
    subscribers: Crowd,
    kept: Crowd,
    publisher: Clients,
    server: Option<Server>,
    /// How many descriptors the keeper has without connections.
    own: usize,
    number: usize,
    messages: u64,
    folder: TempDir,
}

impl Site {
    /// Starts all of them, and makes the clients connect.
    pub(super) fn start(connections: usize) -> Result<Site> {
        let folder = program::folder("keep")?;
        let port = program::free_port()?;
        let keeper = KeeperProcess::start()?;
        let crowd = |number, opening| {
            let from = clients::address(number);
            Crowd::start(Settings { subject: NAME, from, port, opening, bytes: MESSAGE, tls: None })
        };
        let mut site = Site {
            connections,
            port,
            keeper,
            subscribers: crowd(0, Opening::Subscribe(SUBSCRIPTION))?,
            // Each server has another page.
            kept: crowd(1, Opening::Get(b""))?,
            publisher: publisher(port)?,
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
        site.subscribers.ask(&Order::Open { count: subscribers, at_once: IN_FLIGHT })?;
        let count = connections - subscribers;
        site.kept.ask(&Order::Open { count, at_once: IN_FLIGHT })?;
        Ok(site)
    }

    fn wrong(found: impl Into<String>) -> Error {
        Error::Work { subject: NAME, found: found.into() }
    }

    /// Starts the next server, whose page is its number.
    fn begin(&mut self, arguments: &[&str]) -> Result<Server> {
        self.number += 1;
        let own = self.folder.path().join(self.number.to_string());
        let page = program::page(&own, page(self.number).as_bytes())?;
        let routes = [page, program::channel(CHANNEL, "history = 1000")];
        let listener = program::listener(self.port);
        let configuration = program::configuration(&listener, &routes, "park = \"50ms\"");
        let keeper = self.keeper.path();
        let keeper = ["--keeper", &*keeper.to_string_lossy()];
        let more = [&keeper[..], arguments].concat();
        program::superpoll_serve(NAME, PROCESS, &own, &configuration, &more)
            .map(|started| started.0)
    }

    fn until_held(&self) -> Result<()> {
        let all = self.connections;
        until(&format!("{all} idle connections were not left with the keeper"), PATIENCE, || {
            Ok(self.keeper.descriptors()?.saturating_sub(self.own) >= all)
        })
    }

    /// Makes the next server follow the present one. Returns the nanoseconds until the new process
    /// answers; and how many connections have ended, how many messages a subscriber has missed or
    /// received twice, and how many were confirmed.
    pub(super) fn follow(&mut self, kind: RestartKind) -> Result<[Named; 5]> {
        self.until_held()?;
        let first = self.messages + 1;
        self.publisher.order(&Publish::Some(first, MESSAGES))?;
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
            said = client(self.port).get("/").map(|(_, said)| said).unwrap_or_default();
            if process::now() - begun > PATIENCE.as_nanos() as u64 {
                return Err(Site::wrong(format!("a new server does not answer, but {said:?}")));
            }
        }
        let answer_ns = (process::now() - begun) as f64;
        if let Some(before) = self.server.replace(server) {
            until("a server that was replaced does not end", PATIENCE, || Ok(before.has_ended()))?;
        }
        let outcome: Vec<u64> = self.publisher.answer()?;
        let numbers = (first..).zip(outcome);
        let confirmed: Vec<u64> =
            numbers.filter(|(_, confirmed)| *confirmed == 1).map(|(number, _)| number).collect();
        self.messages += MESSAGES as u64 + 1;
        self.publisher.ask::<_, Vec<u64>>(&Publish::Last(self.messages))?;
        let count = confirmed.len() as f64;
        self.subscribers.order(&Order::Follow(self.messages, confirmed))?;
        let heard = self.subscribers.report()?;
        self.kept.order(&Order::Ask { count: usize::MAX, at_once: IN_FLIGHT })?;
        let kept = self.kept.report()?;
        let there = heard.open - heard.wrong + kept.done;
        Ok([
            ("first answer", "ns", answer_ns),
            ("dropped", "count", self.connections.saturating_sub(there) as f64),
            ("lost", "count", heard.lost as f64),
            ("doubled", "count", heard.doubled as f64),
            ("confirmed", "count", count),
        ])
    }
}

fn page(number: usize) -> String {
    format!("server {number}\n")
}

// The publisher.

/// The channel, the subscription of it, and the bytes of a message.
const CHANNEL: &str = "/news";
const SUBSCRIPTION: Subscription =
    Subscription { transport: Transport::WebSocket, path: CHANNEL, form: Form::Superpoll };
const MESSAGE: usize = 16;

/// How long an answer may take, and a last message until it is confirmed.
const HEARING: Duration = Duration::from_secs(20);

/// The commands for the publisher.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Publish {
    /// Publish so many messages from this number on, with a pause after each. The answer: for each
    /// whether it was confirmed.
    Some(u64, usize),
    /// Publish this message until it is confirmed; it is the last one that subscribers receive.
    Last(u64),
}

fn client(port: u16) -> Client {
    Client::new(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HEARING)
}

/// Starts the publisher in a process of its own: each message has a connection of its own.
fn publisher(port: u16) -> Result<Clients> {
    let publish = move |number: u64| {
        let mut client = client(port);
        let sent = client.send(&request("POST", CHANNEL, "", Some(&message(number, MESSAGE))));
        sent.and_then(|()| client.answer()).is_ok_and(|(code, _)| code == 201)
    };
    Clients::start(NAME, move |order: Publish| match order {
        Publish::Some(first, count) => {
            let one = |number| {
                let confirmed = publish(number);
                process::sleep(PAUSE_NS);
                u64::from(confirmed)
            };
            Ok((first..first + count as u64).map(one).collect())
        }
        Publish::Last(number) => {
            until("the last message was not confirmed", HEARING, || Ok(publish(number)))?;
            Ok(Vec::new())
        }
    })
}
