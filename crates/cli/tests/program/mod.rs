//! Starting the built command.

#![allow(dead_code, unused_imports, reason = "each of the test programs uses what it needs")]

mod clean;

pub(crate) use clean::{FOREIGN, program};

/// Returns the built command.
pub(crate) fn superpoll() -> std::process::Command {
    program(env!("CARGO_BIN_EXE_superpoll"))
}
