//! The traffic of a server: requests by route, servers of upstreams, and channels, at one moment.
//!
//! The statistics socket and the live page show the same figures. All of them are counts since the
//! start, so that a reader takes differences of two moments: rates, and [quantiles](Quantile) of
//! the requests in between. A quantile of several processes or routes is that of their summed
//! histograms; averages of quantiles mean nothing.
//!
//! A snapshot has a bound: at most [`ROUTES`] routes, [`SERVERS`] servers and [`CHANNELS`]
//! channels, and names of [`NAME`] bytes. The sums over all of them come along, so that a reader
//! can show the rest in one row.
//!
//! The processes of a server are asked one by one, and one that does not answer in time must not
//! seem to have lost its counts and got them back at once: a reader would take that for a burst.
//! So `Processes` continues with its last counts as long as the process exists.
//!
//! A process with many channels tells of some of them. If the next sum had the counts of one more
//! process for a channel, a reader would take those for a burst as well. So the processes are asked
//! by name for the channels that are shown, and a channel is shown once all of them have answered.
//!
//! | module | purpose |
//! |---|---|
//! | `merge` | sums over processes, and the bounds |
//! | `quantile` | quantiles of a histogram |

mod merge;
mod quantile;

use serde::{Deserialize, Serialize};

pub use merge::Processes;
pub use merge::exists;
pub use quantile::{Quantile, quantile};

/// The most routes of a snapshot; those with the most requests are in it.
pub const ROUTES: usize = 400;

/// The most servers of a snapshot; those that are down come first, then those with the most
/// requests.
pub const SERVERS: usize = 300;

/// The most channels of a snapshot; those with the most subscribers are in it.
pub const CHANNELS: usize = 100;

/// The most bytes of a name in a snapshot; a longer name is cut, and ends with `…`.
pub const NAME: usize = 256;

/// The traffic of a server at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// The upper bounds of all histograms' buckets, in nanoseconds. A histogram has a bucket more,
    /// for longer durations.
    pub bounds_ns: Vec<u64>,
    /// The requests of all routes together.
    pub total: Requests,
    /// The requests of each route, in the order of the configuration unless some are left out.
    pub routes: Vec<RouteTraffic>,
    /// Routes that are left out of the list.
    pub routes_left_out: usize,
    /// The servers of upstreams.
    pub servers: Vec<ServerTraffic>,
    /// Servers that are left out of the list.
    pub servers_left_out: usize,
    /// Channels.
    pub channels: ChannelsTraffic,
}

/// Requests whose responses have begun.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Requests {
    /// By the first digit of the status, 1 to 5.
    pub responses: [u64; 5],
    /// A histogram of the times from the head of a request to the head of its response.
    pub durations: Vec<u64>,
    /// The sum of these times, in nanoseconds.
    pub nanoseconds: u64,
}

/// The requests of a route.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RouteTraffic {
    /// The names of the host, separated by commas.
    pub host: String,
    /// The path in the configuration; empty for requests that have no route.
    pub path: String,
    /// Its requests.
    pub requests: Requests,
}

/// The requests that are forwarded to a server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ServerTraffic {
    /// The name of the upstream.
    pub upstream: String,
    /// The address of the server.
    pub server: String,
    /// The processes that forward requests to it.
    pub processes: u32,
    /// Those of them that forward requests to it now: the rest have found it down.
    pub processes_up: u32,
    /// The condition of the server; the worst one where the processes do not agree. A program
    /// before this field does not tell it.
    #[serde(default)]
    pub condition: ServerCondition,
    /// Requests that were forwarded, those that failed included.
    pub requests: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Requests that failed and were sent to another server.
    pub retries: u64,
    /// Requests under way now.
    pub active: u64,
    /// Connections that are kept for requests now.
    pub idle: u64,
    /// Connections that were opened.
    pub dials: u64,
    /// A histogram of the times from a request to the head of its response, connecting included.
    pub durations: Vec<u64>,
    /// The sum of these times, in nanoseconds.
    pub nanoseconds: u64,
}

/// Channels: the sums of each route, and the channels with the most subscribers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ChannelsTraffic {
    /// How old these figures are, in nanoseconds. They are counted at the moment of the snapshot,
    /// unless there are thousands of channels.
    pub age_ns: u64,
    /// The channels of all routes together.
    pub total: Messages,
    /// How many channels there are.
    pub count: usize,
    /// Whether `top` has all of them.
    #[serde(default)]
    pub has_all: bool,
    /// The channels with the most subscribers, those first.
    pub top: Vec<ChannelTraffic>,
}

/// A channel by the names of its host, separated by commas, and its path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ChannelName {
    /// The names of its host, separated by commas.
    pub host: String,
    /// The path of the channel.
    pub name: String,
}

/// Subscribers now, and messages so far. They are ordered by subscribers first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Messages {
    /// Subscribers now.
    pub subscribers: u64,
    /// Messages that were published here, without repetitions.
    pub published: u64,
    /// Messages given to subscribers, counted once for each.
    pub delivered: u64,
    /// Messages that subscribers did not get because they are slow.
    pub dropped: u64,
    /// Subscribers that were disconnected because they are slow.
    pub disconnected: u64,
}

/// A channel.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ChannelTraffic {
    /// The names of the route's host, separated by commas.
    pub host: String,
    /// The path of the channel.
    pub name: String,
    /// Its subscribers and messages.
    pub messages: Messages,
}

superpoll::named! {
    /// The condition of a server of an upstream: whether it gets requests, and the reason if it
    /// gets none or fewer ones. The worst comes last.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum ServerCondition {
        /// Nothing is known to be against the server.
        #[default]
        Up = "up",
        /// It has come back lately, and its share of the requests grows.
        SlowStart = "slow start",
        /// An operator has set that it gets no new clients.
        Drain = "drain",
        /// An operator has taken it out.
        SetDown = "set down",
        /// It is left out for a few seconds, as requests have failed.
        Paused = "paused",
        /// It is left out for a while, as it had too many errors.
        Ejected = "ejected",
        /// Checks have found it down, or requests where there are checks.
        Unhealthy = "down",
    }
}

impl ServerCondition {
    /// Whether an operator wants it so.
    #[must_use]
    pub fn is_set(self) -> bool {
        matches!(self, ServerCondition::Drain | ServerCondition::SetDown)
    }
}

impl ServerTraffic {
    /// Whether requests are forwarded to the server, in words: `up`, `slow start`, the reason for
    /// which they are not, as `ejected`, or `up in 1 of 2` where the processes of a server do not
    /// agree.
    #[must_use]
    pub fn state(&self) -> String {
        match (self.processes_up, self.processes) {
            (0, _) => match self.condition {
                ServerCondition::Up | ServerCondition::SlowStart => "down".to_owned(),
                condition => condition.name().to_owned(),
            },
            (up, all) if up < all => format!("up in {up} of {all}"),
            _ if self.condition == ServerCondition::SlowStart => self.condition.name().to_owned(),
            _ => "up".to_owned(),
        }
    }
}

/// Returns a name that has at most [`NAME`] bytes.
fn shortened(mut name: String) -> String {
    const MARK: &str = "…";
    if name.len() > NAME {
        let end = (0..=NAME - MARK.len()).rev().find(|&end| name.is_char_boundary(end));
        name.truncate(end.unwrap_or(0));
        name.push_str(MARK);
    }
    name
}
