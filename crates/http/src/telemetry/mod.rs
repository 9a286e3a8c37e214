//! Telemetry, as far as requests and connections are counted where they are served. The gateway
//! reads it for operators.
//!
//! | module | purpose |
//! |---|---|
//! | `counters` | the counters of each engine, which everything else reads |
//! | `ratio` | the ratio of active connections to all connections |
//! | `durations` | histograms of the durations of requests, by route and by server; requests that the rules of routes have refused |
//! | `traffic` | requests by route, servers and channels, for the page and the socket |
//! | `snapshot` | the figures of a process at one moment |
//! | `verdict` | what watching costs, and what `poll` would cost |
//! | `process` | the process |
//! | `families` | the declaration of a family of metrics, and how families are written |
//! | `guard` | whether a request comes from a program on this machine and may see the page |

pub mod counters;
pub mod durations;
pub mod families;
pub mod guard;
pub mod process;
pub mod ratio;
pub mod snapshot;
pub mod traffic;
pub mod verdict;
