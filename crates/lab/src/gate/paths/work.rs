//! A path at work, and how it reports errors.

use crate::error::{Error, Result};
use crate::gate::counted::Counted;

/// A path that is set up.
pub(crate) trait Work {
    /// Carries out `count` operations.
    fn operate(&mut self, count: u64) -> Result<()>;

    /// The system calls that our own counters have seen since the set-up.
    fn counted(&self) -> Counted;
}

/// Converts an error of the engine, a runtime or the server.
pub(super) fn said(error: impl std::fmt::Display) -> Error {
    Error::usage(error.to_string())
}

/// Reports a fault in the work of a path.
pub(super) fn wrong<T>(path: &'static str, found: impl Into<String>) -> Result<T> {
    Err(Error::Work { subject: path, found: found.into() })
}
