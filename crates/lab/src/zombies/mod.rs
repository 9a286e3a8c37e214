//! `superpoll-lab zombies`: what connections on which nothing happens cost those on which something does.
//!
//! Ten clients ask and are answered, 40,000 times in all. Beside them are zombies: clients that have asked once and then
//! keep silent, none at first, then a hundred, a thousand, 9,900, and 102,400, ten thousand and more for each who asks. A server whose time for a request grows with them pays
//! for being idle. What is compared is a server with zombies and the same server without, in turns, round by round; the
//! figure is the processor time of its process by request, and the time on the clock beside it. Where there are more
//! zombies than one process may have descriptors, several processes of the same server share them and those who ask
//! (`point.rs`, `fleet.rs`), and what is compared is as many processes with and without zombies.
//!
//! The servers are echo servers (`superpoll-lab echo`'s: loops on `epoll`, on our poller's back-ends, on our runtime, on tokio) and
//! web servers that answer thirteen bytes by HTTP/1 (`superpoll serve` with a folder of one file, as a user would start
//! it, hyper on tokio, and a loop with canned bytes). The zombies' ends live in processes of their own, up to 5,000 in
//! each, and come from as many addresses of the loopback network, so that one server can have as many as its limit of
//! descriptors allows. They connect before the busy ones, so a `poll` array has all of them in front. Every zombie's answer is checked, and in the end
//! that none was closed.

use serde::{Deserialize, Serialize};

use crate::options::Output;
use crate::server::rounds::Ratio;
use crate::server::turns::Figures;

mod crowd;
pub mod experiment;
mod fleet;
mod gateway;
pub mod plot;
mod point;
pub(crate) mod subject;
pub mod table;
mod trial;

/// Options of `superpoll-lab zombies`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Silent connections to each server, with commas; none is always measured too. More than a process may have
    /// descriptors are shared by several [default: 0,100,1000,9900,102400, or 0,100,1000 if quick]
    #[arg(long, value_name = "LIST")]
    pub zombies: Option<String>,
    /// Connections that ask
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

crate::options::of_a_command!(Options);

/// One server with so many zombies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The server.
    pub subject: String,
    /// `echo` or `web`.
    pub family: String,
    /// Connections that ask, each with one request under way.
    pub active: usize,
    /// Processes of the server that share the connections.
    #[serde(default = "one")]
    pub workers: usize,
    /// Connections that have asked once.
    pub zombies: usize,
    /// What its rounds took.
    #[serde(flatten)]
    pub figures: Figures,
    /// Time on the clock by request, in the middle round. The load generator has its part in it.
    pub ns_per_request_median: f64,
    /// The same for as many requests as were asked for, in seconds.
    pub seconds: f64,
    /// What the kernel had more in use when the zombies had come, by zombie, in bytes: slabs and pages for sockets, both
    /// ends, and whatever else the machine did meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_bytes_per_zombie: Option<f64>,
    /// Processor time against that of the same server, in as many processes, without zombies.
    pub none_ratio: Option<Ratio>,
    /// Time on the clock against that of the same server, in as many processes, without zombies.
    pub none_clock_ratio: Option<Ratio>,
    /// Processor time against that of the family's loop on epoll with as many zombies.
    pub raw_epoll_ratio: Option<Ratio>,
}

/// A record from before servers had workers does not say how many.
const fn one() -> usize {
    1
}
