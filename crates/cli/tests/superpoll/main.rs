//! The built command `superpoll`, from the outside.

mod control;
mod doctor;
mod explain;
mod help;
mod import;
mod keep;
mod page;
mod proxy;
mod serve;
mod stage;
mod top;
mod watch;

use std::process::Command;

use superpoll_test_support::program::program;

/// Returns the built command.
fn superpoll() -> Command {
    program(env!("CARGO_BIN_EXE_superpoll"))
}
