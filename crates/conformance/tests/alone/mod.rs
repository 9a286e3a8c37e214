//! Runs tests that change the limits of the whole process again, each alone in a process.

use std::process::Command;

const ALONE: &str = "SUPERPOLL_CONFORMANCE_ALONE";

pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Runs `body` in a process of its own.
pub(crate) fn alone(name: &str, body: impl FnOnce() -> Result) {
    if std::env::var_os(ALONE).is_some() {
        if let Err(error) = body() {
            panic!("{error}");
        }
        return;
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
