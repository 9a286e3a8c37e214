//! A test that needs limits of its own runs again, alone in another process for which a shell sets
//! them.

use std::process::Command;

use crate::without_io_uring;

const CHILD: &str = "SUPERPOLL_TEST_CHILD";

/// Runs a test of this program again, after a shell's command.
pub(crate) fn run_under(limits: &str, name: &str) {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{limits} && exec \"$0\" \"$@\"")])
        .arg(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1");
    let output = without_io_uring::output(&mut command);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

/// Returns whether this is that other process.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}
