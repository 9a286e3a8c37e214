//! Starts the built command, as a user would.

use std::path::Path;
use std::process::{Command, Output};

/// Options of every experiment that keep it short.
pub const SMALL: [&str; 5] = ["--quick", "--seconds", "0.1", "--repetitions", "1"];

/// The command, with the choice of the back-end left to it.
pub fn superpoll() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_superpoll"));
    command.env_remove("SUPERPOLL_BACKEND");
    command
}

/// Runs it in a folder.
pub fn run(folder: &Path, arguments: &[&str]) -> Output {
    superpoll().current_dir(folder).args(arguments).output().unwrap()
}

/// Runs what must succeed, and returns what it prints.
pub fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs what must be refused, and returns the one line that says why.
pub fn refused(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), arguments);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{arguments:?} was not refused");
    assert!(output.stdout.is_empty(), "{arguments:?} printed results");
    assert_eq!(errors.trim_end().lines().count(), 1, "{arguments:?}: {errors}");
    assert!(errors.starts_with("superpoll: "), "{errors}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{arguments:?} left files");
    errors
}
