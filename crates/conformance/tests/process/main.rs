//! Tests that need a process of their own: forking, running out of descriptors, and system calls
//! that are refused.

use std::error::Error;

mod descriptors;
mod refused;
mod rings;

/// The outcome of a test in a process of its own.
type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;
