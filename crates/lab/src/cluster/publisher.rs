//! Publishers in a process of their own: each message is published until it is confirmed.
//!
//! A publisher that gets no confirmation sends the same message with the same key to the next
//! server, so a message may be sent often, but must be in the channel once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_lite::AsyncReadExt;
use serde::{Deserialize, Serialize};
use superpoll_rt::{AsyncFd, Runtime, spawn, time};

use crate::cluster::connection::Connection;
use crate::cluster::crowd::Position;
use crate::error::{Doing, Error, Result};
use crate::server::clients::Clients;
use crate::server::http;
use crate::sys::process;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(3);

/// The pause before a message is sent again.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a message may take to be confirmed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The orders for the process of the publishers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Publish until the parent says otherwise. The answer: [`Published`].
    Publish(Load),
    /// Publish so many messages, one after the other, at the first server. The answer: as above.
    Series(Load, u64),
    /// Publish this message. The answer: as above.
    One(String),
}

/// How messages are published.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Load {
    /// The path of the channel.
    pub path: String,
    /// The prefix of the messages of this load.
    pub name: String,
    /// The milliseconds between two messages of a publisher.
    pub period_ms: u64,
    /// Close the connection without waiting for the answer once in so many messages.
    pub hang_up_every: Option<u64>,
}

/// A message that a server has confirmed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Confirmed {
    /// The message.
    pub text: String,
    /// Where it is.
    pub position: Position,
    /// When its publisher first sent it, on the monotonic clock.
    pub begun_ns: u64,
}

/// The outcome of an order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Published {
    /// All messages, in the order of their confirmations.
    pub confirmed: Vec<Confirmed>,
    /// Answers 503.
    pub refused: u64,
    /// Why other attempts failed, and how often.
    pub failures: BTreeMap<String, u64>,
    /// Messages that were never confirmed.
    pub given_up: u64,
}

/// The parent's end.
#[derive(Debug)]
pub(super) struct Publishers {
    clients: Clients,
    stop: UnixStream,
}

impl Publishers {
    /// Starts the process.
    pub(super) fn start(servers: Vec<SocketAddr>) -> Result<Publishers> {
        let failed = "making a line to the publishers";
        let (stop, theirs) = UnixStream::pair().doing(failed)?;
        theirs.set_nonblocking(true).doing(failed)?;
        let keeps = vec![theirs.as_raw_fd()];
        let mut office: Option<(Runtime, Rc<Office>, AsyncFd<UnixStream>)> = None;
        let mut theirs = Some(theirs);
        let clients = Clients::keeping("superpoll serve", keeps, move |order: Order| {
            if let Some(line) = theirs.take() {
                let line = AsyncFd::new(line).doing("watching the line to the parent")?;
                let all = Rc::new(Office { servers: servers.clone(), ..Office::default() });
                office = Some((Runtime::new()?, all, line));
            }
            let Some((runtime, office, line)) = &mut office else {
                return Err(Error::usage("the publishers have no runtime"));
            };
            runtime.try_block_on(office.carry_out(order, line))?;
            Ok(office.published.take())
        })?;
        Ok(Publishers { clients, stop })
    }

    /// Begins to publish.
    pub(super) fn begin(&mut self, load: Load) -> Result<()> {
        self.clients.order(&Order::Publish(load))
    }

    /// Ends publishing, and returns the outcome.
    pub(super) fn end(&mut self) -> Result<Published> {
        self.stop.write_all(b".").doing("sending word to the publishers")?;
        self.clients.answer()
    }

    /// Carries out another order.
    pub(super) fn ask(&mut self, order: &Order) -> Result<Published> {
        self.clients.ask(order)
    }
}

#[derive(Debug, Default)]
struct Office {
    servers: Vec<SocketAddr>,
    is_over: Cell<bool>,
    published: RefCell<Published>,
}

impl Office {
    fn fail(&self, reason: String) {
        *self.published.borrow_mut().failures.entry(reason).or_default() += 1;
    }

    async fn carry_out(self: &Rc<Self>, order: Order, line: &mut AsyncFd<UnixStream>) {
        self.is_over.set(false);
        match order {
            Order::Publish(load) => {
                let publish = |home| {
                    let mut publisher = Publisher::new(self, home);
                    let load = load.clone();
                    spawn(async move { publisher.publish(&load, u64::MAX).await })
                };
                let all: Vec<_> = (0..self.servers.len()).map(publish).collect();
                // An end of the parent ends this as well.
                let _ = line.read(&mut [0]).await;
                self.is_over.set(true);
                for one in all {
                    let _ = one.await;
                }
            }
            Order::Series(load, count) => Publisher::new(self, 0).publish(&load, count).await,
            Order::One(text) => {
                let path = crate::cluster::CHANNEL;
                Publisher::new(self, 0).confirm(path, text, false).await;
            }
        }
    }
}

struct Publisher {
    office: Rc<Office>,
    home: usize,
    connections: Vec<Option<Connection>>,
}

impl Publisher {
    fn new(office: &Rc<Office>, home: usize) -> Publisher {
        let connections = office.servers.iter().map(|_| None).collect();
        Publisher { office: Rc::clone(office), home, connections }
    }

    async fn publish(&mut self, load: &Load, count: u64) {
        let period = Duration::from_millis(load.period_ms);
        for number in 1..=count {
            if self.office.is_over.get() {
                return;
            }
            let next = Instant::now() + period;
            let text = format!("{}-{}-{number}", load.name, self.home);
            let hangs_up = load.hang_up_every.is_some_and(|every| number % every == 0);
            self.confirm(&load.path, text, hangs_up).await;
            if !period.is_zero() {
                time::sleep_until(next).await;
            }
        }
    }

    /// Sends a message to one server after the other until it is confirmed.
    async fn confirm(&mut self, path: &str, text: String, mut hangs_up: bool) {
        let (begun, begun_ns) = (Instant::now(), process::now());
        let mut server = self.home;
        while begun.elapsed() < PATIENCE {
            let attempt = time::timeout(ANSWER, self.post(server, path, &text, hangs_up)).await;
            match attempt.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
                Ok(Some(Outcome::Confirmed(position))) => {
                    let confirmed = Confirmed { text, position, begun_ns };
                    self.office.published.borrow_mut().confirmed.push(confirmed);
                    return;
                }
                Ok(Some(Outcome::Refused)) => self.office.published.borrow_mut().refused += 1,
                // It hung up.
                Ok(None) => {}
                Err(reason) => {
                    self.connections[server] = None;
                    self.office.fail(reason);
                }
            }
            server = (server + 1) % self.office.servers.len();
            if !std::mem::take(&mut hangs_up) {
                time::sleep(PAUSE).await;
            }
        }
        self.office.published.borrow_mut().given_up += 1;
    }

    async fn post(
        &mut self,
        server: usize,
        path: &str,
        text: &str,
        hangs_up: bool,
    ) -> Result<Option<Outcome>, String> {
        let mut connection = match self.connections[server].take() {
            Some(connection) => connection,
            None => Connection::open(self.office.servers[server]).await?,
        };
        let key = format!("idempotency-key: {text}\r\n");
        let request = http::request("POST", path, &key, Some(text));
        connection.send(request.as_bytes()).await?;
        if hangs_up {
            return Ok(None);
        }
        let (code, body) = connection.answer().await?;
        self.connections[server] = Some(connection);
        outcome(code, &body).map(Some)
    }
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Confirmed(Position),
    Refused,
}

fn outcome(code: u16, body: &[u8]) -> Result<Outcome, String> {
    #[derive(Deserialize)]
    struct Body {
        id: u64,
        epoch: String,
    }
    match code {
        200 | 201 => {
            let body: Body =
                serde_json::from_slice(body).map_err(|error| format!("a confirmation: {error}"))?;
            Ok(Outcome::Confirmed(Position::of(body.id, &body.epoch)?))
        }
        503 => Ok(Outcome::Refused),
        code => Err(format!("a publication is answered {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confirmations_are_told_from_refusals() {
        let confirmed = Outcome::Confirmed(Position { epoch: 0xa, id: 3 });
        assert_eq!(outcome(201, br#"{"id":3,"epoch":"a"}"#), Ok(confirmed));
        assert_eq!(outcome(503, b"no"), Ok(Outcome::Refused));
        for (code, body) in [(200, &b"{}"[..]), (201, br#"{"id":3,"epoch":"x"}"#), (413, b"")] {
            assert!(outcome(code, body).is_err(), "{code}");
        }
    }
}
