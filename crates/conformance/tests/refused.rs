//! The whole contract where io_uring is refused, as it is in most containers: everything else works as if
//! it did not exist.
//!
//! The test starts this binary again, because a filter of system calls stays for the life of a process.

use std::process::Command;

use superpoll::{BackendKind, Poller};
use superpoll_conformance::{bench, checks, sys};

const REFUSED: &str = "SUPERPOLL_CONFORMANCE_REFUSED";
const NAME: &str = "the_contract_holds_where_io_uring_is_refused";

#[test]
fn the_contract_holds_where_io_uring_is_refused() {
    let Ok(error) = std::env::var(REFUSED) else {
        for error in [libc::EPERM, libc::ENOSYS, libc::ENOMEM] {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
                .env(REFUSED, error.to_string())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && said.contains("1 passed"),
                "{said}{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        return;
    };
    let error = error.parse().unwrap();
    sys::refuse_io_uring(error).unwrap();
    assert!(!BackendKind::Uring.is_available());
    assert_eq!(Poller::new().unwrap().backend(), "adaptive");
    let benches = bench::all();
    assert!(benches.iter().all(|bench| bench.name() != "uring"));
    if error != libc::EPERM {
        // Whatever the reason was, nothing else is different.
        return;
    }
    let mut failures = Vec::new();
    for check in checks::CHECKS {
        for bench in &benches {
            if (check.applies)(&bench.capabilities())
                && let Err(problem) = (check.run)(bench)
            {
                failures.push(format!("{} on {}: {problem}", check.name, bench.name()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
