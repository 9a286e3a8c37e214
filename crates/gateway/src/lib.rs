//! A web server and proxy for idle and busy connections in one process.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod accept;
mod address;
mod authority;
mod body;
pub mod channel;
pub mod config;
mod descriptors;
mod exchange;
pub mod files;
mod listen;
mod log;
mod memory;
pub mod metrics;
mod origin;
mod park;
mod proxy_protocol;
pub mod relay;
mod reply;
mod seats;
pub mod serve;
pub mod statistics;
mod status;
mod succession;
mod sys;
mod tally;
mod transport;
mod upload;
pub mod upstream;
mod window;

pub use address::{Address, AddressError};
pub use body::Body;
pub use config::{Config, ConfigError};
pub use listen::Inherited;
pub use log::{Event, Journal, Level};
