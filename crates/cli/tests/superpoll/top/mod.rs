//! The built command `superpoll top`: with servers and proxies at work, in a terminal and without
//! one.

mod once;
mod places;
mod ratio;
mod requests;
mod terminal;

use std::path::Path;
use std::process::{Command, Output};

use crate::superpoll;

/// Returns `superpoll top` with arguments.
fn top(arguments: &[&str]) -> Command {
    let mut command = superpoll();
    command.arg("top").args(arguments);
    command
}

/// Returns the snapshot from the socket at a path.
fn read_snapshot(path: &Path) -> serde_json::Value {
    let mut command = top(&["--once", "--json"]);
    let output = command.arg(path).output().unwrap();
    let text = crate::stage::succeeded(&command, &output).stdout.clone();
    serde_json::from_slice(&text).unwrap()
}

/// Returns the one line of a refusal.
fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    refusal(&output)
}

fn refusal(output: &Output) -> String {
    let line = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(!output.status.success() && output.status.code().is_some(), "{line}");
    assert!(line.starts_with("superpoll: ") && line.lines().count() == 1, "{line}");
    assert!(output.stdout.is_empty(), "{line}");
    line
}
