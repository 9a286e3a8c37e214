//! A web server and proxy for idle and busy connections in one process.

mod address;
pub mod config;
pub mod files;

pub use address::{Address, AddressError};
pub use config::{Config, ConfigError};
