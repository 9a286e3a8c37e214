//! `superpoll-lab zombies`: how much idle connections add to the cost of busy ones.
//!
//! Ten clients send requests and read answers, 40,000 in all. Next to them are zombies: clients
//! that have sent one request and then keep silent. There are none at first, then a hundred, a
//! thousand, 9,900, and 102,400: ten thousand and more for each busy client. A server whose time
//! for a request grows with the zombies pays for idle connections. The comparison is between a
//! server with zombies and the same server without, in turns, round by round. The figure is the
//! processor time of its process per request, next to the time on the clock. Where there are more
//! zombies than one process may have descriptors, several processes of the same server share the
//! zombies and the busy clients (`point.rs`, `fleet.rs`); then the comparison uses the same number
//! of processes with and without zombies.
//!
//! The servers are echo servers (those of `superpoll-lab echo`: loops on `epoll`, on our poller's
//! back-ends, on our runtime, on tokio) and web servers that answer thirteen bytes over HTTP/1
//! (`superpoll serve` with a folder of one file, as a user would start it, hyper on tokio, and a
//! loop with canned bytes). The zombies' ends live in processes of their own, up to 5,000 in each.
//! They come from as many addresses of the loopback network, so that one server can have as many as
//! its limit of descriptors allows. They connect before the busy clients, so a `poll` array has all
//! of them in front. The experiment checks every zombie's answer, and at the end that none was
//! closed.

use serde::{Deserialize, Serialize};

use crate::options::Output;
use crate::server::turns::Figures;
use crate::statistics::Ratio;

mod crowd;
pub(crate) mod experiment;
mod fleet;
mod gateway;
pub(crate) mod plot;
mod point;
pub(crate) mod subject;
pub(crate) mod table;
mod trial;

/// Options of `superpoll-lab zombies`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Silent connections to each server, with commas; none is always measured too. Several
    /// processes share a number that exceeds the descriptors of one process [default:
    /// 0,100,1000,9900,102400, or 0,100,1000 if quick]
    #[arg(long, value_name = "LIST")]
    pub zombies: Option<String>,
    /// Connections that send requests
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub active: usize,
    /// Requests to each server, over all rounds; fewer where the time is not enough
    #[arg(long, value_name = "N", default_value_t = 40_000)]
    pub requests: u64,
    /// Servers to measure, with commas, or all
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// One server with one number of zombies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The server.
    pub subject: String,
    /// `echo` or `web`.
    pub family: String,
    /// Connections that send requests, each with one request under way.
    pub active: usize,
    /// Processes of the server that share the connections.
    #[serde(default = "one")]
    pub workers: usize,
    /// Connections that have sent one request.
    pub zombies: usize,
    /// The figures of its rounds.
    #[serde(flatten)]
    pub figures: Figures,
    /// Time on the clock per request, in the median round. It includes the load generator's part.
    pub ns_per_request_median: f64,
    /// The same for the requested number of requests, in seconds.
    pub seconds: f64,
    /// The growth of the kernel's memory per zombie after all had connected, in bytes: slabs and
    /// pages for sockets, at both ends, and whatever else the machine did meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_bytes_per_zombie: Option<f64>,
    /// Processor time relative to the same server without zombies, in the same number of processes.
    pub none_ratio: Option<Ratio>,
    /// Time on the clock relative to the same server without zombies, in the same number of
    /// processes.
    pub none_clock_ratio: Option<Ratio>,
    /// Processor time relative to the family's epoll loop with the same number of zombies.
    pub raw_epoll_ratio: Option<Ratio>,
}

/// The default for a record from before servers had workers.
const fn one() -> usize {
    1
}
