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

use std::thread;
use std::time::Duration;

use crate::error::Result;
use crate::findings::Named;
use crate::server::clients;
use crate::server::crowd::{Crowd, Order, Settings};
use crate::server::fleet::{CHANNEL, Fleet, NAME, client};
use crate::server::http::request;
use crate::server::program::until;
use crate::server::wire::{Form, Opening, Subscription, Transport, message};
use crate::sys::process;

/// How long a last message may take until it is confirmed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Messages during a restart, and the pause after each.
const MESSAGES: u64 = 20;
const PAUSE_NS: u64 = 25_000_000;

/// Connections that are opened, or asked, at the same time.
const IN_FLIGHT: usize = 50;

/// How long messages are published before the next server is started.
const BEFORE_NS: u64 = 100_000_000;

/// The subscription of the channel, and the bytes of a message.
const SUBSCRIPTION: Subscription =
    Subscription { transport: Transport::WebSocket, path: CHANNEL, form: Form::Superpoll };
const MESSAGE: usize = 16;

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
    subscribers: Crowd,
    kept: Crowd,
    fleet: Fleet,
    number: usize,
    messages: u64,
}

impl Site {
    /// Starts all of them, and makes the clients connect.
    pub(super) fn start(connections: usize) -> Result<Site> {
        let mut fleet = Fleet::new(1, true)?;
        let crowd = |number, opening| {
            let (from, port) = (clients::address(number), fleet.port(0));
            Crowd::start(Settings { subject: NAME, from, port, opening, bytes: MESSAGE, tls: None })
        };
        let mut subscribers = crowd(0, Opening::Subscribe(SUBSCRIPTION))?;
        // Each server has another page.
        let mut kept = crowd(1, Opening::Get(b""))?;
        fleet.start(page(0).as_bytes())?;
        let count = connections / 2;
        subscribers.ask(&Order::Open { count, at_once: IN_FLIGHT })?;
        kept.ask(&Order::Open { count: connections - count, at_once: IN_FLIGHT })?;
        Ok(Site { connections, subscribers, kept, fleet, number: 0, messages: 0 })
    }

    /// Makes the next server follow the present one. Returns the nanoseconds until the new process
    /// answers; and how many connections have ended, how many messages a subscriber has missed or
    /// received twice, and how many were confirmed.
    pub(super) fn follow(&mut self, kind: RestartKind) -> Result<[Named; 5]> {
        self.fleet.until_parked(self.connections)?;
        self.number += 1;
        let (port, page) = (self.fleet.port(0), page(self.number));
        let (first, last) = (self.messages + 1, self.messages + MESSAGES + 1);
        let (followed, confirmed) = thread::scope(|scope| {
            let publishing = scope.spawn(move || {
                let is_confirmed = |number: &u64| {
                    let is_confirmed = publish(port, *number);
                    process::sleep(PAUSE_NS);
                    is_confirmed
                };
                (first..last).filter(is_confirmed).collect::<Vec<u64>>()
            });
            process::sleep(BEFORE_NS);
            let followed = match kind {
                RestartKind::Upgrade => self.fleet.follow(page.as_bytes(), &["--upgrade"]),
                RestartKind::Crash => {
                    self.fleet.kill().and_then(|()| self.fleet.follow(page.as_bytes(), &[]))
                }
            };
            (followed, publishing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (answer_ns, count) = (followed? as f64, confirmed.len() as f64);
        // The last message that subscribers receive.
        self.messages = last;
        until("the last message was not confirmed", PATIENCE, || Ok(publish(port, last)))?;
        self.subscribers.order(&Order::Follow(last, confirmed))?;
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

/// Publishes a message on a connection of its own; returns whether that was confirmed.
fn publish(port: u16, number: u64) -> bool {
    let mut client = client(port);
    let sent = client.send(&request("POST", CHANNEL, "", Some(&message(number, MESSAGE))));
    sent.and_then(|()| client.answer()).is_ok_and(|(code, _)| code == 201)
}
