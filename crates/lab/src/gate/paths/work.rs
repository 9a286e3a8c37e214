//! A path at work, and how it says what is wrong.

use crate::error::{Error, Result};
use crate::gate::counted::Counted;

/// A path that is set up.
pub trait Work {
    /// Carries out so many operations.
    fn operate(&mut self, count: u64) -> Result<()>;

    /// The system calls that our own counters know of, since it was set up.
    fn counted(&self) -> Counted;
}

/// What the engine, a runtime or the server says.
pub fn said(error: impl std::fmt::Display) -> Error {
    Error::usage(error.to_string())
}

/// What is wrong with the work of a path.
pub fn wrong<T>(path: &'static str, found: impl Into<String>) -> Result<T> {
    Err(Error::Work { subject: path, found: found.into() })
}
