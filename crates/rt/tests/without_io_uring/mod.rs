//! Tests of a program once more where io_uring is refused, as it is in most containers: the runtime
//! does everything there as if io_uring did not exist.
//!
//! A filter of system calls stays for the life of a thread and is inherited by the threads and
//! processes that the thread starts. So a thread that does nothing else gets the filter and runs
//! this test program again.

use std::thread;

use superpoll_conformance::sys;
use superpoll_rt::{BackendKind, Runtime};
use superpoll_test_support::rerun;

/// Set in those other processes.
pub(crate) const CHILD: &str = "SUPERPOLL_TEST_WITHOUT_IO_URING";

/// The test that calls [`run`].
const NAME: &str = "all_of_this_holds_where_io_uring_is_refused";

/// Runs all tests of some modules again: with the default back-end and with `auto`, each where
/// io_uring is refused for another reason. In those processes it checks that io_uring is refused.
pub(crate) fn run(modules: &[&str]) {
    if std::env::var_os(CHILD).is_some() {
        return is_refused();
    }
    let modules = [modules, &[NAME]].concat();
    let modules = modules.as_slice();
    thread::scope(|scope| {
        for (error, backend) in [(libc::EPERM, ""), (libc::ENOSYS, "auto")] {
            scope.spawn(move || {
                sys::refuse_io_uring(error).unwrap();
                rerun(modules, |command| {
                    command.env(CHILD, "1").env("SUPERPOLL_BACKEND", backend);
                });
            });
        }
    });
}

fn is_refused() {
    assert!(!BackendKind::available().contains(&BackendKind::Uring));
    assert_eq!(BackendKind::Auto.resolve(), BackendKind::Adaptive);
    assert_eq!(Runtime::new().unwrap().backend(), "adaptive");
    let error = Runtime::builder().backend(BackendKind::Uring).build().unwrap_err().to_string();
    for part in ["back-end uring does not work here", "seccomp", "or auto"] {
        assert!(error.contains(part), "{part:?} in {error:?}");
    }
    assert!(!error.contains('\n'), "{error}");
}
