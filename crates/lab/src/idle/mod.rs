//! `superpoll-lab idle`: the memory of a connection that does nothing.
//!
//! The experiment starts a server. Clients connect and make a connection of its kind: nothing at
//! all, one request over HTTP/1 (plain or encrypted), a long-poll without an answer, the handshake
//! of a WebSocket, a stream of server-sent events without a message, or one request through a
//! relay. Then they are silent. When the server's memory has settled, it is read from
//! `smaps_rollup`; after the same number of further connections, it is read a second time. The
//! figure is the difference per connection, so that one-time memory of the server does not count.
//! It is the memory that the process has to itself (`Private_Dirty`). It includes memory that the
//! allocator has obtained and does not give back, and for that reason connections come in two ways.
//! *One by one*: each client does its part before the next one connects. In a *burst*: all connect,
//! then all send their requests, then all get answers, so that a server has buffers for all of them
//! at the same time, and holes where the buffers were.
//!
//! The kernel's part is read for the whole machine (`Slab` of `/proc/meminfo`, the pages of
//! `/proc/net/sockstat`). It includes both ends of a connection and everything else that the
//! machine does meanwhile.
//!
//! Our servers are started as a user would start them, by this command (`server/program.rs`); nginx
//! and haproxy take part where they are installed. `superpoll-lab idle --ramp` goes on until it
//! meets a limit (`ramp/`). `service.rs` starts each server, `clients.rs` are the clients,
//! `server/memory.rs` reads the memory, and `trial.rs` runs the servers in turn.

use serde::{Deserialize, Serialize};

use crate::options::Output;

mod clients;
pub(crate) mod experiment;
pub(crate) mod plot;
pub(crate) mod ramp;
mod service;
pub(crate) mod subject;
pub(crate) mod table;
mod tls;
pub(crate) mod trial;

/// Options of `superpoll-lab idle`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Connections to each server; with --ramp, those of the first step [default: 4000, or 1000 if
    /// quick; with --ramp 1000, or 250 if quick]
    #[arg(long, value_name = "N")]
    pub connections: Option<usize>,
    /// How connections come: one-by-one, burst or all
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub arrival: String,
    /// Servers and kinds of connections, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Adds connections in steps, each doubling their number, until something sets a limit
    #[arg(long)]
    pub ramp: bool,
    /// With --ramp: steps at most [default: 12, or 3 if quick]
    #[arg(long, value_name = "N", requires = "ramp")]
    pub steps: Option<usize>,
    /// With --ramp: processes of a server at most, each with as many connections as its limit of
    /// descriptors allows
    #[arg(long, value_name = "N", default_value_t = 8, requires = "ramp")]
    pub servers: usize,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// A figure over all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    /// The median round.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

/// One kind of connections to one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The server and the kind of connection.
    pub subject: String,
    /// The kind of connection: `silent`, `keep-alive`, `tls`, `long-poll`, `websocket`, `events`,
    /// `relay`.
    pub kind: String,
    /// `one-by-one` or `burst`.
    pub arrival: String,
    /// Connections in total.
    pub connections: usize,
    /// The server's own memory per connection, over the second half of the connections, in bytes.
    pub user_bytes_per_connection: Spread,
    /// The same over the first half, including the server's one-time memory.
    pub first_half_bytes_per_connection: Spread,
    /// The server's own memory without connections, in bytes.
    pub start_bytes: f64,
    /// Memory above that of the start after all connections were closed, in bytes.
    pub left_bytes: f64,
    /// The kernel's slabs per connection, with both ends and everything else on this machine, in
    /// bytes.
    pub slab_bytes_per_connection: Spread,
    /// The kernel's pages for sockets per connection, with both ends and everything else on this
    /// machine, in bytes.
    pub socket_bytes_per_connection: Spread,
    /// Rounds measured, each with a server of its own.
    pub rounds: usize,
}
