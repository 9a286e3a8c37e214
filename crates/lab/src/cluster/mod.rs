//! `superpoll-lab cluster`: several servers with the messages of one Redis, and faults of each
//! part.
//!
//! Three `superpoll serve` have a channel whose log is in Redis (`broker = true`). Thousands of
//! subscribers by WebSocket, server-sent events and long-poll are spread evenly over them, and each
//! server has a publisher. While messages are published a part fails. Then every subscriber must
//! have each message once, in one order, or must have been told that it has missed some, and that
//! only where a fault destroys messages.
//!
//! `ledger.rs` has the checks, `subscriber.rs` and `publisher.rs` are the clients, `crowd.rs` runs
//! the subscribers. `redis.rs`, `sentinel.rs`, `gateway.rs` and `namespace.rs` start the programs,
//! `site.rs` puts them together and `fault.rs` makes them fail. `cost.rs` measures delay and
//! processor time without a fault, `verdict.rs` judges a round, and `trial.rs` runs everything in
//! turn.

use serde::{Deserialize, Serialize};

use crate::options::Output;

mod connection;
mod cost;
mod crowd;
mod events;
pub(crate) mod experiment;
mod fault;
mod findings;
mod gateway;
mod ledger;
mod namespace;
mod publisher;
mod redis;
mod sentinel;
mod site;
mod subscriber;
pub(crate) mod table;
mod trial;
mod verdict;

/// The channel of all subscribers.
const CHANNEL: &str = "/c";

/// A channel without a broker, for comparison.
const LOCAL: &str = "/local";

/// How many servers there are.
const SERVERS: usize = 3;

/// Options of `superpoll-lab cluster`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The parts that fail: none, gateway, redis, stop, flush, cut, reply, promote, partition or
    /// all
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub faults: String,
    /// Subscribers of all servers together [default: 3000, or 150 if quick]
    #[arg(long, value_name = "N")]
    pub subscribers: Option<usize>,
    /// Rounds of each fault [default: 3, or 1 if quick]
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// The milliseconds between two messages of a publisher [default: 50, or as many as all
    /// subscribers together need to receive 30,000 messages in a second]
    #[arg(long, value_name = "MS")]
    pub rate: Option<u64>,
    /// How long Redis is stopped by the fault stop [default: 10, or 3 if quick]
    #[arg(long, value_name = "S")]
    pub stop_seconds: Option<u64>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

crate::by_name::named! {
    /// A fault.
    pub(crate) enum Fault {
        /// Nothing fails.
        None = "none",
        /// A server is killed and started again.
        Gateway = "gateway",
        /// Redis is killed and started again with its data.
        Redis = "redis",
        /// Redis is stopped for a while.
        Stop = "stop",
        /// Redis loses all data.
        Flush = "flush",
        /// All connections to Redis are cut, again and again.
        Cut = "cut",
        /// Publishers close connections before the answer.
        Reply = "reply",
        /// Redis is killed, and a replica that lacks messages is promoted.
        Promote = "promote",
        /// A server can reach neither Redis nor clients.
        Partition = "partition",
    }
}

impl Fault {
    /// Returns whether it may destroy confirmed messages, so that subscribers are told.
    pub(crate) fn destroys(self) -> bool {
        matches!(self, Fault::Flush | Fault::Promote)
    }
}

/// One figure of a fault, or of a measurement without one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// `fault`, `delay` or `processor`.
    pub part: String,
    /// The fault, or the measured thing.
    pub subject: String,
    /// Subscribers of all servers together.
    pub subscribers: usize,
    /// The name of the figure.
    pub figure: String,
    /// `ns`, or `count`.
    pub unit: String,
    /// The value of the median round.
    pub median: f64,
    /// The value of the lowest round.
    pub least: f64,
    /// The value of the highest round.
    pub most: f64,
    /// Rounds measured.
    pub rounds: usize,
}
