//! A web server and proxy for idle and busy connections in one process.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod accept;
mod address;
mod authority;
mod body;
pub mod channel;
pub mod config;
mod connection_limits;
mod cors;
mod descriptors;
mod exchange;
mod file_region;
pub mod files;
mod io_activity;
mod listen;
mod log;
mod memory;
mod parking_lot;
mod peer;
mod proxy_protocol;
pub mod relay;
mod reply;
pub mod serve;
mod succession;
mod sys;
pub mod telemetry;
mod transport;
mod upload;
pub mod upstream;

pub use address::{Address, AddressError};
pub use body::Body;
pub use config::{Config, ConfigError};
pub use listen::Inherited;
pub use log::{ErrorLog, Event, Level};
