//! The unsafe code of the gateway.

pub(crate) mod map;
