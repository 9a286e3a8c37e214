//! A web server and proxy for idle and busy connections in one process.

#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod address;
mod body;
pub mod config;
pub mod files;
pub mod relay;

pub use address::{Address, AddressError};
pub use body::Body;
pub use config::{Config, ConfigError};
