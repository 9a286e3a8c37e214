//! All tests of a file once more where io_uring is refused, as it is in most containers: the
//! runtime does everything there as if io_uring did not exist.
//!
//! A filter of system calls stays for the life of a thread and is inherited by the threads and
//! processes that the thread starts. So a thread that does nothing else gets the filter and runs
//! this test program again.

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::sync::RwLock;
use std::thread;

use superpoll_conformance::sys;
use superpoll_rt::{BackendKind, Runtime};

/// Held for writing while a child starts: it has copies of all descriptors of this process until
/// its program runs. A test that looks for the effect of a close at once holds it for reading.
pub(crate) static STARTS: RwLock<()> = RwLock::new(());

/// Set in those other processes.
pub(crate) const CHILD: &str = "SUPERPOLL_TEST_WITHOUT_IO_URING";

/// Runs all tests of this file again: with the default back-end and with `auto`, each where
/// io_uring is refused for another reason. In those processes it checks that io_uring is refused.
pub(crate) fn run_all() {
    if std::env::var_os(CHILD).is_some() {
        return is_refused();
    }
    let runs = [(libc::EPERM, ""), (libc::ENOSYS, "auto")]
        .map(|(error, backend)| (backend, thread::spawn(move || rerun(error, backend))));
    for (backend, run) in runs {
        let output = run.join().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let all = text.contains(" 0 failed; 0 ignored; 0 measured; 0 filtered out");
        assert!(output.status.success() && all, "back-end {backend:?}: {text}\n{errors}");
    }
}

fn rerun(error: i32, backend: &str) -> Output {
    sys::refuse_io_uring(error).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    output(command.env(CHILD, "1").env("SUPERPOLL_BACKEND", backend))
}

/// Runs a test program, and returns its output but for the empty line with which it begins.
pub(crate) fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let starts = STARTS.write().unwrap();
    let mut child = command.spawn().unwrap();
    // The spawn may be over before the kernel has closed the copies, but the program prints later.
    let _ = child.stdout.as_mut().unwrap().read(&mut [0]).unwrap();
    drop(starts);
    child.wait_with_output().unwrap()
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
