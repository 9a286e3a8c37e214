//! Support for the tests of this workspace, which several crates would otherwise have copies of.
//!
//! It depends on none of our crates, so that the tests of each of them can use it.

#[cfg(feature = "browser")]
pub mod browser;
pub mod http1;
mod process;
pub mod program;
mod socket;
#[cfg(feature = "tokens")]
pub mod tokens;
mod wait;

pub use process::{Alone, Running, alone, no_child_starts, rerun, start};
pub use socket::{connect_narrow, free_port};
pub use wait::{PATIENCE, Waiter, find, until};
