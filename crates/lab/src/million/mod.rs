//! `superpoll-lab million`: as many idle connections at once as the machine allows.
//!
//! A process may have only so many descriptors, so the connections are spread over many processes
//! of `superpoll serve`, each with a keeper, and as many processes of clients. Every process of
//! clients connects to one server, from an address of its own (127.0.1.1 and up), which has all
//! ports to itself. First come connections that have sent one request and stay open, then, in a
//! second pass with new processes, subscribers of a channel by WebSocket.
//!
//! When all connections are parked, memory and processor time are read. Then a message is published
//! to all subscribers, a server is killed and started again with the same keeper, and every
//! connection must answer, or receive another message, once. The folder `/proc/PID/fd` is never
//! read: a look there makes the kernel hold memory for each descriptor.
//!
//! `plan.rs` checks the options and finds the limit, `fleet.rs` has the servers and their keepers,
//! `crowd.rs` the connections of a process of clients, and `expected.rs` judges the bytes that each
//! one receives. `stage.rs` takes all connections through the steps, and `trial.rs` runs the kinds
//! in turn.

use serde::{Deserialize, Serialize};

use crate::options::Output;

mod crowd;
mod expected;
pub(crate) mod experiment;
mod fleet;
mod plan;
mod stage;
pub(crate) mod table;
mod trial;

/// The channel of all subscribers.
const CHANNEL: &str = "/channel";

/// Options of `superpoll-lab million`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Connections at once [default: as many as the machine allows, or 300 if quick]
    #[arg(long, value_name = "N")]
    pub connections: Option<usize>,
    /// Kinds of connections, one after the other: keep-alive, websocket or all
    #[arg(long = "kind", value_name = "LIST", default_value = "all")]
    pub kinds: String,
    /// Processes of the server, and of clients [default: as many as the connections need, or 2 if
    /// quick]
    #[arg(long, value_name = "N")]
    pub processes: Option<usize>,
    /// Start servers without keepers, and kill none
    #[arg(long)]
    pub no_keeper: bool,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

crate::by_name::named! {
    /// A kind of connections.
    #[derive(Serialize, Deserialize)]
    pub(crate) enum Kind {
        /// A request was answered, and the connection stays open.
        KeepAlive = "keep-alive",
        /// A subscriber of a channel by WebSocket.
        WebSocket = "websocket",
    }
}

/// The findings on one kind of connections. Servers and keepers are counted apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The kind of connections.
    pub kind: String,
    /// Connections that were open at once.
    pub connections: usize,
    /// The number of connections that the run asked for.
    pub asked: usize,
    /// Why there were no more: `asked`, `memory`, `files`, `processes`, `watches`, `descriptors`,
    /// `time`, `interrupted` or `refused`.
    pub limit: String,
    /// Processes of the server, and of clients.
    pub processes: usize,
    /// How long all connections took to open and to be parked, in seconds.
    pub seconds: f64,
    /// Anonymous memory of the servers above that without connections, by connection, in bytes.
    pub server_bytes_per_connection: f64,
    /// The same of the keepers.
    pub keeper_bytes_per_connection: f64,
    /// Anonymous memory of all servers, in bytes.
    pub server_bytes: u64,
    /// Anonymous memory of all keepers, in bytes.
    pub keeper_bytes: u64,
    /// The kernel's slabs above those without connections, by pair of sockets, in bytes.
    pub slab_bytes_per_pair: f64,
    /// Processor time of the servers to open, answer and park a connection, in nanoseconds.
    pub server_ns_per_connection: f64,
    /// The same of the keepers.
    pub keeper_ns_per_connection: f64,
    /// The message that was published before the crash; absent for connections without a channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Round>,
    /// The crash; absent without keepers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<Crash>,
    /// The check of every connection at the end: a request on each, or a message to each.
    pub check: Round,
}

/// A message to all connections, or a request on each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Connections that received the message or the answer exactly once.
    pub received: usize,
    /// Connections that received anything else.
    pub wrong: usize,
    /// The time from the beginning until the last connection had it, in seconds.
    pub seconds: f64,
    /// Processor time of the servers and keepers, by connection, in nanoseconds.
    pub server_ns_per_connection: f64,
}

/// A server that was killed and started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Crash {
    /// Connections of the server that was killed.
    pub connections: usize,
    /// Connections of all servers that were lost by the end of the check.
    pub lost: usize,
    /// The time from the kill until the next server has answered a request, in seconds.
    pub seconds: f64,
}
