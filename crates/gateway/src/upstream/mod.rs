//! The reverse proxy: requests are forwarded to the servers of a group, in HTTP/1.1 or HTTP/2.
//!
//! A [`Group`] is what all engines know of some servers: which are up, and how much each has done. Everything else
//! belongs to one engine: connections, whose turn it is, and the `Forwarder` of each route. So a request that finds an
//! idle connection takes no lock and wakes no other task; what engines share is a handful of atomic counters.
//!
//! | module | what it does |
//! |---|---|
//! | `forwarder` | a request's way to a server and back, with retries |
//! | `spare` | a request that may have to be sent again |
//! | `strict`, `fields` | what is refused, and how heads change on their way |
//! | `group`, `balance`, `health` | who is up, whose turn it is, who is asked whether it is well |
//! | `fault` | why a request has failed |
//! | `pool`, `dial` | connections: kept and new |
//! | `channel`, `channel2` | HTTP/1.1 without a task, HTTP/2 with one |
//! | `outgoing`, `incoming` | the bodies of requests and of responses |
//! | `tunnel` | what has left HTTP: WebSocket |

mod balance;
mod channel;
mod channel2;
mod dial;
mod fault;
mod fields;
mod forwarder;
mod group;
mod health;
mod incoming;
mod outgoing;
mod pool;
mod spare;
mod strict;
mod tunnel;

pub(crate) use forwarder::Forwarder;
pub use group::{Group, Member};
pub(crate) use health::watch;
