//! Telemetry: the activity of a server, for operators and for programs.
//!
//! | module | purpose |
//! |---|---|
//! | `overview` | the figures of this process and everything else that is counted, for metrics |
//! | `channel_traffic` | the channels with the most subscribers, for the page and snapshots |
//! | `upstreams`, `channels`, `broker`, `reload` | the parts of the overview beside engines and channels |
//! | `prometheus` | the overview as text for Prometheus, in the classic format or OpenMetrics |
//! | `page` | the page at `/_superpoll/`, which shows a snapshot and refreshes it |
//!
//! What is counted where a request is served is below, in `superpoll_http::telemetry`: the counters
//! of engines, durations, refusals, and the forms of `traffic` and `snapshot`, which the API has.

mod broker;
mod channel_traffic;
mod channels;
pub(crate) mod overview;
mod page;
mod prometheus;
mod relays;
pub(crate) mod reload;
pub(crate) mod upstreams;

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

pub mod snapshot {
    //! The figures of a process at one moment.

    pub use superpoll_http::telemetry::snapshot::{
        Connections, Costs, Engine, PlacementCosts, SCHEMA, Set, Snapshot, Turn,
    };
    pub use superpoll_http::telemetry::verdict::{WatchingCost, verdict};
}
