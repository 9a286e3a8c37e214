//! Telemetry: the activity of a server, for operators and for programs.
//!
//! | module | purpose |
//! |---|---|
//! | `counters` | the counters of each engine, which everything else here reads |
//! | `durations` | histograms of the durations of requests, by route and by server |
//! | `refusals` | requests that the rules of routes have refused, by route and reason |
//! | `engines` | the counters of all engines and the statistics of their pollers, at one moment, for the page |
//! | `overview` | the same with everything else that is counted, for metrics |
//! | `traffic` | requests by route, servers and channels, for the page and the socket |
//! | `upstreams`, `channels`, `broker`, `process`, `reload` | the parts of the overview beside engines and channels |
//! | `families` | the declaration of a family of metrics, and how families are written |
//! | `prometheus` | the overview as text for Prometheus, in the classic format or OpenMetrics |
//! | `page` | the page at `/_superpoll/`, which shows the overview and refreshes it |
//! | `guard` | whether a request comes from a program on this machine and may see the page |
//! | `socket` | the statistics socket, which `superpoll top` reads |

mod broker;
mod channels;
pub mod counters;
pub(crate) mod durations;
mod engines;
mod families;
pub(crate) mod guard;
pub(crate) mod overview;
mod page;
mod process;
mod prometheus;
mod relays;
pub(crate) mod reload;
pub mod socket;
pub mod traffic;
pub(crate) mod upstreams;
