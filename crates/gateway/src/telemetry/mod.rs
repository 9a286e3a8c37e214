//! Telemetry: the activity of a server, for operators and for programs.
//!
//! | module | purpose |
//! |---|---|
//! | `engines` | the counters of all engines and the statistics of their pollers, at one moment, for the page |
//! | `overview` | the same with everything else that is counted, for metrics |
//! | `channel_traffic` | the channels with the most subscribers, for the page and the socket |
//! | `upstreams`, `channels`, `broker`, `reload` | the parts of the overview beside engines and channels |
//! | `prometheus` | the overview as text for Prometheus, in the classic format or OpenMetrics |
//! | `page` | the page at `/_superpoll/`, which shows the overview and refreshes it |
//! | `verdict` | what watching costs, and what `poll` would cost |
//! | `socket` | the statistics socket, which `superpoll top` reads |
//!
//! What is counted where a request is served is below, in `superpoll_http::telemetry`: the counters
//! of engines, durations, refusals, and the form of `traffic`.

mod broker;
mod channel_traffic;
mod channels;
mod engines;
pub(crate) mod overview;
mod page;
mod prometheus;
mod relays;
pub(crate) mod reload;
pub mod socket;
pub(crate) mod upstreams;
pub mod verdict;

pub mod counters {
    //! The counters of each engine, to be read.

    pub use superpoll_http::telemetry::counters::{Counter, EngineCounters};
}

pub mod ratio {
    //! The ratio of active connections to all connections.

    pub use superpoll_http::telemetry::ratio::{ActiveConnections, ActiveRatio};
}

pub mod traffic {
    //! Requests by route, servers and channels.

    pub use superpoll_http::telemetry::traffic::{
        CHANNELS, ChannelTraffic, ChannelsTraffic, Messages, NAME, Quantile, ROUTES, Requests,
        RouteTraffic, SERVERS, ServerCondition, ServerTraffic, Traffic, quantile,
    };
}
