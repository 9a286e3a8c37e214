//! The built command `superpoll serve`, driven by independent programs: curl, wrk, h2load, OpenSSL,
//! a WebSocket client, nginx and haproxy, and a service manager's protocols.
//!
//! A test whose program is not installed says so and is skipped.

mod acme;
mod curl;
mod demo;
mod descriptors;
mod ending;
mod full_disk;
mod how_to;
mod load;
mod logs;
mod metrics;
mod pauses;
pub(crate) mod peers;
pub(crate) mod php;
mod processes;
mod refusals;
mod relay;
mod reload;
mod rights;
mod syslog;
mod systemd;
mod tls;
mod tls_clients;
mod tls_cost;
mod websocket;
