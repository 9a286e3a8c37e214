//! Starting the built laboratory, with the server that its experiments start.

#![allow(dead_code, unused_imports, reason = "each of the test programs uses what it needs")]

#[path = "../../../cli/tests/program/clean.rs"]
mod clean;

use std::path::Path;
use std::process::Command;
use std::sync::Once;

pub(crate) use clean::{FOREIGN, program};

/// The built command.
const LAB: &str = env!("CARGO_BIN_EXE_superpoll-lab");

/// The built command, with the command `superpoll` next to it.
pub(crate) fn lab() -> Command {
    static BUILT: Once = Once::new();
    BUILT.call_once(build_server);
    program(LAB)
}

/// Builds the command `superpoll`, unless it is there and newer than its sources: cargo builds it
/// only for the tests of its own package.
fn build_server() {
    let server = Path::new(LAB).with_file_name("superpoll");
    if is_fresh(&server) {
        return;
    }
    let folder = server.parent().unwrap();
    let profile = match folder.file_name().unwrap().to_str() {
        Some("debug") => "test",
        other => other.unwrap(),
    };
    let mut cargo = program(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "-p", "superpoll-cli", "--profile", profile]);
    cargo.arg("--target-dir").arg(folder.parent().unwrap());
    assert!(cargo.status().unwrap().success(), "superpoll cannot be built");
}

/// Whether a program is newer than each source file, which cargo lists next to the program.
fn is_fresh(program: &Path) -> bool {
    let written = |path: &Path| std::fs::metadata(path).and_then(|about| about.modified()).ok();
    let list = std::fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let (Some(made), Some((_, sources))) = (written(program), list.split_once(": ")) else {
        return false;
    };
    sources.split_whitespace().all(|source| written(Path::new(source)) <= Some(made))
}
