//! `superpoll-lab http`: the cost of a web server's runtime, with the same hyper on each.
//!
//! A server answers every request with the same thirteen bytes, so the cost is that of hyper, the
//! runtime below it and the kernel. hyper, its settings and the service are the same code for all
//! (`hello.rs`); each family of subjects differs in one file: our runtime on each back-end, tokio,
//! and as the lower bound an epoll loop that answers canned bytes and hardly looks at the request.
//!
//! Each server lives in a process of its own on one processor (`server`); one load generator on
//! another (`server/web.rs`) keeps one request in flight on each connection, checks each answer
//! (`server/response.rs`) and takes the servers in turn, round by round (`trial.rs`). The figure is
//! the processor time of the server's process per request: unlike requests per second it does not
//! depend on how fast the generator is.

use serde::{Deserialize, Serialize};

use crate::options::Output;
use crate::server::turns::Figures;
use crate::statistics::ToTokio;

pub(crate) mod experiment;
#[cfg(feature = "http")]
mod hello;
pub(crate) mod load;
#[cfg(feature = "http")]
mod ours;
pub(crate) mod plot;
pub(crate) mod raw_epoll;
#[cfg(feature = "http")]
pub(crate) mod subject;
pub(crate) mod table;
#[cfg(feature = "http")]
pub(crate) mod tokio;
#[cfg(feature = "http")]
mod trial;

/// The body of every answer.
pub(crate) const BODY: &[u8; 13] = b"Hello, World!";

/// Whether the servers are built in: feature `http`.
pub const BUILT_IN: bool = cfg!(feature = "http");

/// Options of `superpoll-lab http`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Connections to each server, with commas
    #[arg(long, value_name = "LIST", default_value = "64")]
    pub connections: String,
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
    /// Connections, each with one request in flight.
    pub connections: usize,
    /// The times of its rounds.
    #[serde(flatten)]
    pub figures: Figures,
    /// The cost relative to tokio's `current_thread` runtime.
    #[serde(flatten)]
    pub to_tokio: ToTokio,
}
