//! Tests that lower a limit of their process, or count its memory: they run again in a process of
//! their own.

use std::process::Command;

const CHILD: &str = "SUPERPOLL_TEST_CHILD";

/// Whether this is the process of one test alone. If not, the test of that name has run in such a
/// process, after a command of the shell, when this returns.
pub(crate) fn is_alone(before: &str, test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let output = Command::new("sh")
        .args(["-c", &format!("{before} && exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{errors}");
    // If it was skipped, this is why.
    eprint!("{errors}");
    false
}
