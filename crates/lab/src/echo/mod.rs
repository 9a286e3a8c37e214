//! `superpoll-lab echo`: a server's processor time for a request that is nothing but input and
//! output.
//!
//! A thousand connections; on each, one short message is under way, to the server or back. The
//! server sends its input back, so the cost is that of the kernel's sockets and of the way to wait
//! for them: loops of C programmers on epoll and on io_uring (`raw_epoll.rs`, `sys/uring/echo.rs`),
//! our poller and our batch reader (`poller.rs`, `reader.rs`), our runtime with a task for each
//! connection (`ours.rs`); and as many competitors, each in its file: pollers of Rust and of C,
//! whose loops read and write alike (`drain.rs`), runtimes with a task for each connection, and Go
//! with a goroutine (`go.rs`).
//!
//! Each server lives in a process of its own on one processor and is given its end of every
//! connection when it starts (`server`). The load generator on another processor (`load.rs`) knows
//! what each answer must be (`message.rs`), checks every byte of it, and sends the next request at
//! once; it takes the servers in turn, round by round (`trial.rs`). The figure is the processor
//! time of the server's process per request. The report gives the generator's own load as well: a
//! server that is quicker than the generator runs out of requests, sleeps, and finds fewer requests
//! at a time when it wakes up.

use serde::{Deserialize, Serialize};

use crate::options::Output;
use crate::server::turns::Figures;
use crate::statistics::Ratio;

#[cfg(feature = "rivals-rt")]
mod compio;
pub(crate) mod connections;
mod drain;
pub(crate) mod experiment;
mod go;
#[cfg(feature = "rivals-c")]
mod libev;
#[cfg(feature = "rivals-c")]
mod libevent;
#[cfg(feature = "rivals-c")]
mod libuv;
pub(crate) mod load;
mod message;
#[cfg(feature = "rival-mio")]
mod mio;
#[cfg(feature = "rivals-rt")]
mod monoio;
pub(crate) mod ours;
pub(crate) mod plot;
pub(crate) mod poller;
#[cfg(feature = "rival-polling")]
mod polling;
pub(crate) mod raw_epoll;
pub(crate) mod raw_uring;
mod reader;
#[cfg(feature = "rivals-rt")]
mod smol;
pub(crate) mod subject;
pub(crate) mod table;
#[cfg(feature = "rivals-rt")]
pub(crate) mod tokio;
mod trial;

/// Options of `superpoll-lab echo`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Connections to each server, with commas
    #[arg(long, value_name = "LIST", default_value = "1000")]
    pub connections: String,
    /// 1, 10, 100 and 1000 connections
    #[arg(long, conflicts_with = "connections")]
    pub sweep: bool,
    /// The length of a request
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub bytes: usize,
    /// tcp, unix or all
    #[arg(long, value_name = "LIST", default_value = "tcp")]
    pub kind: String,
    /// Servers to measure, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// One server with one number of connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The server.
    pub subject: String,
    /// `tcp` or `unix`.
    pub kind: String,
    /// Connections, each with one request under way.
    pub connections: usize,
    /// The length of a request.
    pub bytes: usize,
    /// The times of its rounds.
    #[serde(flatten)]
    pub figures: Figures,
    /// Processor time against that of the level-triggered epoll loop.
    pub raw_epoll_ratio: Option<Ratio>,
    /// Processor time against that of tokio.
    pub tokio_ratio: Option<Ratio>,
}
