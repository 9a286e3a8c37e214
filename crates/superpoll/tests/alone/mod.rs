//! Runs tests that fork, or that count the descriptors of the process, each alone in a process.

use std::process::Command;

const ALONE: &str = "SUPERPOLL_TEST_ALONE";

/// Runs `body` in a process of its own: a child of a fork has copies of all descriptors that other
/// tests have opened, and of the locks that their threads hold.
pub(crate) fn alone(name: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
