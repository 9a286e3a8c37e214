//! `superpoll-lab files`: a server's processor time to send a file.
//!
//! A folder with one file, a small one or a long one, and clients that ask for it again and again
//! on connections that stay open. The subjects are `superpoll serve`'s server on each back-end
//! (`ours.rs`), nginx as a careful operator configures it (`nginx.rs`), and a file server of hyper
//! on tokio (`tokio.rs`).
//!
//! The server on tokio holds its files in memory, including the response heads, and looks at
//! nothing but the path and the ETag. Most authors of such a server take a ready-made service
//! instead, which opens the file for each request, on a thread that may block. But an author with
//! an eye on the processor time of a small file writes a server like this one, and a server that
//! looks for changes of its files has to be compared with one that saves itself even that.
//!
//! Each server lives in a process of its own on one processor (`server`). The load generator on
//! another (`server/web.rs`) keeps one request under way on each connection, compares every answer
//! with the file, byte for byte (`server/response.rs`), and takes the servers in turn, round by
//! round (`trial.rs`). The figure is the processor time of the server's process per request; ratios
//! are those of each round. All servers use the same plain congestion control, for which the
//! experiment has a network of its own where that is permitted: a congestion control that paces, as
//! bbr does, would add the cost of a timer to each long file. Where `strace` is installed, a
//! separate run lists the system calls by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::options::Output;
use crate::server::turns::Figures;
use crate::statistics::Ratio;

pub(crate) mod experiment;
mod nginx;
mod ours;
pub(crate) mod plot;
pub(crate) mod subject;
pub(crate) mod table;
#[cfg(feature = "http")]
mod tokio;
mod trial;

/// The file's name in its folder.
const NAME: &str = "file.bin";

/// Options of `superpoll-lab files`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The lengths of the file, with commas
    #[arg(long, value_name = "LIST", default_value = "1024,102400")]
    pub bytes: String,
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

/// One server with one file and one number of connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The server.
    pub subject: String,
    /// The length of the file.
    pub bytes: usize,
    /// Connections, each with one request under way.
    pub connections: usize,
    /// The times of its rounds.
    #[serde(flatten)]
    pub figures: Figures,
    /// Processor time against that of nginx.
    pub nginx_ratio: Option<Ratio>,
    /// Processor time against that of hyper on tokio.
    pub hyper_ratio: Option<Ratio>,
    /// Requests that were traced.
    pub traced: u64,
    /// The system calls that strace saw in them, by name, per request.
    pub strace_calls: BTreeMap<String, f64>,
    /// All of them.
    pub strace_calls_per_request: Option<f64>,
}
