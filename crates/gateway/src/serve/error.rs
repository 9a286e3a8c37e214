//! Reasons for which a server cannot start.

use std::fmt;

/// The reason for which a server did not start, or did not take on another configuration.
#[derive(Debug)]
pub struct Error {
    what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {}

pub(crate) fn failed(what: impl Into<String>) -> Error {
    Error { what: what.into() }
}
