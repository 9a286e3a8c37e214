//! A web server and proxy for idle and busy connections in one process.

mod address;

pub use address::{Address, AddressError};
