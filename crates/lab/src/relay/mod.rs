//! `superpoll-lab relay`: the cost to pass a connection on, with and without speculation, compared
//! with haproxy and nginx.
//!
//! Text 003 (haproxy's *merge speculative I/O into polled I/O*) counted the system calls of 10,000
//! forwarded connections. This experiment does so again. A relay stands between clients and an
//! origin. Its calls for each connection are counted by name, by its own counters and, where
//! `strace` is installed, by the kernel's. Next to them stands the processor time, which is the
//! purpose of saving calls.
//!
//! Four loads are of bytes (`load`): a new connection for each request, which the origin closes
//! after its answer, of many clients or of a single client; requests on connections that stay open;
//! and bulk, long answers that a relay should splice. Two are of HTTP, with a reverse proxy in
//! place of the relay: a client's connection for each request, which the proxy closes, and
//! connections that stay open; in both, proxies keep their connections to the origin. One epoll
//! loop on one processor plays all clients and the origin, and checks each byte on both sides. The
//! relays (`subject.rs`) are ours on each back-end (`ours.rs`), with and without speculation, and
//! haproxy and nginx where they are installed (`peers.rs`). Each runs in a process of its own on
//! another processor; they take turns, round by round (`trial.rs`). Congestion control is the same
//! plain algorithm in all of them; for this the experiment has a network of its own where
//! permitted. An algorithm that paces, like bbr, would add a timer's share to every figure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::options::Output;
use crate::server::turns::Figures;
use crate::statistics::Ratio;

pub(crate) mod experiment;
mod load;
mod ours;
pub(crate) mod peers;
pub(crate) mod plot;
pub(crate) mod strace;
pub(crate) mod subject;
pub(crate) mod table;
mod trial;

pub(crate) use ours::kernel_name;

/// Options of `superpoll-lab relay`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// connection (one for each request), one-by-one (the same with a single client), keep-alive,
    /// bulk, http-connection, http-keep-alive, or all, with commas
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub load: String,
    /// Connections at a time where each request has its own
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub connections: usize,
    /// Connections that are kept open
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub keep_alive: usize,
    /// Connections that are counted, and traced with strace
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub forwarded: u64,
    /// The length of an answer; a request has 100 bytes, or a little more as HTTP
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub bytes: usize,
    /// The length of an answer in bulk, in MiB
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub mebibytes: usize,
    /// Relays to measure, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// One relay under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The relay.
    pub subject: String,
    /// `connection`, `one-by-one`, `keep-alive`, `bulk`, `http-connection` or `http-keep-alive`.
    pub load: String,
    /// Connections at a time, with one request under way on each.
    pub connections: usize,
    /// The length of an answer.
    pub bytes: usize,
    /// The figures of its rounds.
    #[serde(flatten)]
    pub figures: Figures,
    /// Connections of the origin per request: below one where a proxy reuses its connections.
    pub origin_connections_per_request: f64,
    /// Processor time relative to haproxy, which splices in bulk.
    pub haproxy_ratio: Option<Ratio>,
    /// Processor time relative to nginx.
    pub nginx_ratio: Option<Ratio>,
    /// Processor time relative to the same relay without speculation.
    pub waits_ratio: Option<Ratio>,
    /// Requests that were counted.
    pub counted: u64,
    /// System calls per request, by the relay's own counters.
    pub calls_per_request: Option<f64>,
    /// The same by name.
    pub calls: BTreeMap<String, f64>,
    /// Requests that were traced.
    pub traced: u64,
    /// System calls per request during the trace, by the relay's own counters.
    pub calls_per_traced_request: Option<f64>,
    /// System calls per request, by `strace -c`.
    pub strace_calls_per_request: Option<f64>,
    /// The same by name.
    pub strace_calls: BTreeMap<String, f64>,
}
