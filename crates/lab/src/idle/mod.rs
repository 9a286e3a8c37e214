//! `superpoll-lab idle`: what a connection takes that does nothing.
//!
//! A server is started, clients connect and do what makes a connection of its kind: nothing at all, one request over
//! HTTP/1 (plain or encrypted), a long-poll without an answer, the handshake of a WebSocket, one request through a relay.
//! Then they are silent. When the server's memory has come to rest it is read off `smaps_rollup`; after as many
//! connections again, a second time. The difference by connection is the figure, so that what a server takes once does
//! not count. It is the memory that the process has to itself (`Private_Dirty`): what its allocator has been given and
//! does not give back is in it, and that is why connections come in two ways. *One by one* each does its part before the
//! next one connects; in a *burst* all connect, then all ask, then all are answered, so that a server has buffers for
//! all of them at the same time, and holes where they were.
//!
//! The kernel's part is read for the whole machine (`Slab` of `/proc/meminfo`, the pages of `/proc/net/sockstat`), with
//! both ends of a connection in it and whatever else the machine does meanwhile.
//!
//! Ours are started as a user would, by this command (`server/program.rs`); nginx and haproxy take part where they are
//! installed. `superpoll-lab idle --ramp` goes on until there is a limit (`ramp/`). `service.rs` starts each, `clients.rs` are the clients, `server/memory.rs` reads, `trial.rs` has them take turns.

use serde::{Deserialize, Serialize};

use crate::options::Output;

mod clients;
pub mod experiment;
pub mod plot;
pub mod ramp;
mod service;
pub(crate) mod subject;
pub mod table;
mod tls;
pub(crate) mod trial;

/// Options of `superpoll-lab idle`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Connections to each server; with --ramp, those of the first step [default: 4000, or 1000 if quick; with --ramp
    /// 1000, or 250 if quick]
    #[arg(long, value_name = "N")]
    pub connections: Option<usize>,
    /// How connections come: one-by-one, burst or all
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub arrival: String,
    /// Servers and kinds of connections, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Has connections come in steps, each time as many again, until something sets a limit
    #[arg(long)]
    pub ramp: bool,
    /// With --ramp: steps at most [default: 12, or 3 if quick]
    #[arg(long, value_name = "N", requires = "ramp")]
    pub steps: Option<usize>,
    /// With --ramp: processes of a server at most, each with as many connections as its limit of descriptors allows
    #[arg(long, value_name = "N", default_value_t = 8, requires = "ramp")]
    pub servers: usize,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

crate::options::of_a_command!(Options);

/// A figure, from those of all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

/// One kind of connections to one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The server and the kind.
    pub subject: String,
    /// What its connections have done: `silent`, `keep-alive`, `tls`, `long-poll`, `websocket`, `relay`.
    pub kind: String,
    /// `one-by-one` or `burst`.
    pub arrival: String,
    /// Connections, all told.
    pub connections: usize,
    /// The server's own memory by connection, of the second half of the connections, in bytes.
    pub user_bytes_per_connection: Spread,
    /// The same of the first half, with what the server takes once.
    pub first_half_bytes_per_connection: Spread,
    /// The server's own memory without connections, in bytes.
    pub start_bytes: f64,
    /// What it has more than that after all connections were closed, in bytes.
    pub left_bytes: f64,
    /// The kernel's slabs by connection, both ends and all else on this machine, in bytes.
    pub slab_bytes_per_connection: Spread,
    /// The kernel's pages for sockets by connection, both ends and all else on this machine, in bytes.
    pub socket_bytes_per_connection: Spread,
    /// Rounds measured, each with a server of its own.
    pub rounds: usize,
}
