//! Publishers: each message is published until it is confirmed.
//!
//! A publisher that gets no confirmation sends the same message with the same key to the next
//! server, so a message may be sent often, but must be in the channel once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::cluster::crowd::Position;
use crate::server::http::{self, Client};
use crate::sys::process;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(3);

/// The pause before a message is sent again.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a message may take to be confirmed.
const PATIENCE: Duration = Duration::from_secs(60);

/// How messages are published.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// The path of the channel.
    pub path: &'static str,
    /// The prefix of the messages of this load.
    pub name: String,
    /// The milliseconds between two messages of a publisher.
    pub period_ms: u64,
    /// Close the connection without waiting for the answer once in so many messages.
    pub hang_up_every: Option<u64>,
}

/// A message that a server has confirmed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Confirmed {
    /// The message.
    pub text: String,
    /// Where it is.
    pub position: Position,
    /// When its publisher first sent it, on the monotonic clock.
    pub begun_ns: u64,
}

/// The outcome of publishing.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    /// The messages, in the order in which each publisher got its confirmations.
    pub confirmed: Vec<Confirmed>,
    /// Answers 503.
    pub refused: u64,
    /// Why other attempts failed, and how often.
    pub failures: BTreeMap<String, u64>,
    /// Messages that were never confirmed.
    pub given_up: u64,
}

impl Published {
    /// Adds the confirmations, refusals and losses of another publisher.
    pub(super) fn add(&mut self, other: Published) {
        self.confirmed.extend(other.confirmed);
        self.refused += other.refused;
        self.given_up += other.given_up;
    }
}

/// A publisher, which prefers one server.
#[derive(Debug)]
pub(super) struct Publisher {
    home: usize,
    servers: Vec<SocketAddr>,
    clients: Vec<Client>,
    published: Published,
}

impl Publisher {
    /// Creates a publisher that sends to the server at this place first.
    pub(super) fn new(servers: &[SocketAddr], home: usize) -> Publisher {
        let clients = servers.iter().map(|&server| Client::new(server, ANSWER)).collect();
        Publisher { home, servers: servers.to_vec(), clients, published: Published::default() }
    }

    /// Publishes so many messages, one after the other, or those until publishing is over.
    pub(super) fn publish(mut self, load: &Load, count: u64, is_over: &AtomicBool) -> Published {
        let period = Duration::from_millis(load.period_ms);
        for number in 1..=count {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let next = Instant::now() + period;
            let text = format!("{}-{}-{number}", load.name, self.home);
            let hangs_up = load.hang_up_every.is_some_and(|every| number % every == 0);
            self.confirm(load.path, text, hangs_up);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        self.published
    }

    /// Publishes one message.
    pub(super) fn one(mut self, path: &str, text: &str) -> Published {
        self.confirm(path, text.to_owned(), false);
        self.published
    }

    /// Sends a message to one server after the other until it is confirmed.
    fn confirm(&mut self, path: &str, text: String, mut hangs_up: bool) {
        let (begun, begun_ns) = (Instant::now(), process::now());
        let key = format!("idempotency-key: {text}\r\n");
        let request = http::request("POST", path, &key, Some(&text));
        let mut server = self.home;
        while begun.elapsed() < PATIENCE {
            let client = &mut self.clients[server];
            let sent = client.send(&request);
            if std::mem::take(&mut hangs_up) {
                // Its end closes the connection.
                *client = Client::new(self.servers[server], ANSWER);
            } else {
                let answer = sent.and_then(|()| client.answer()).map_err(|why| why.to_string());
                match answer.and_then(|(code, body)| outcome(code, &body)) {
                    Ok(Outcome::Confirmed(position)) => {
                        return self.published.confirmed.push(Confirmed {
                            text,
                            position,
                            begun_ns,
                        });
                    }
                    Ok(Outcome::Refused) => self.published.refused += 1,
                    Err(reason) => {
                        *client = Client::new(self.servers[server], ANSWER);
                        *self.published.failures.entry(reason).or_default() += 1;
                    }
                }
                std::thread::sleep(PAUSE);
            }
            server = (server + 1) % self.servers.len();
        }
        self.published.given_up += 1;
    }
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Confirmed(Position),
    Refused,
}

fn outcome(code: u16, body: &str) -> Result<Outcome, String> {
    #[derive(Deserialize)]
    struct Body {
        id: u64,
        epoch: String,
    }
    match code {
        200 | 201 => {
            let body: Body =
                serde_json::from_str(body).map_err(|error| format!("a confirmation: {error}"))?;
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
        assert_eq!(outcome(201, r#"{"id":3,"epoch":"a"}"#), Ok(confirmed));
        assert_eq!(outcome(503, "no"), Ok(Outcome::Refused));
        for (code, body) in [(200, "{}"), (201, r#"{"id":3,"epoch":"x"}"#), (413, "")] {
            assert!(outcome(code, body).is_err(), "{code}");
        }
    }
}
