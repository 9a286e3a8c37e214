//! Libraries written for tokio, on `superpoll-rt`: a table of what runs, made by a test.
//!
//! `cargo test` in this folder runs a small program with checked results for each row of the table,
//! on every back-end, with one engine and with three. It prints the table and compares it with
//! `docs/ecosystem.md`. With `SUPERPOLL_REWRITE=1` it writes the table there instead.
//!
//! The test `grpc` sends calls of tonic and of Go's grpc through the gateway.
//!
//! The folder is a workspace of its own: its libraries are no dependencies of any crate.

mod servers;
mod table;

pub use servers::{Server, nats, postgres, redis};
pub use table::{Cell, Row, Table};
