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
mod peers;
mod processes;
#[path = "../program/mod.rs"]
mod program;
mod refusals;
mod relay;
mod reload;
mod rights;
mod stage;
mod systemd;
mod tls;
mod tls_clients;
mod tls_cost;
#[path = "../../../gateway/tests/channel/tokens.rs"]
#[expect(dead_code, reason = "shared with the tests of channels")]
mod tokens;
mod websocket;
