//! The command where io_uring is refused.

use std::path::Path;
use std::process::Output;

use crate::record::json;
use crate::start::{SMALL, lab, reason};

/// Runs the command where io_uring is refused. The filter stays for the life of a thread, and
/// applies to the processes that it starts.
fn run_refused(error: i32, folder: &Path, arguments: &[&str], backend: &str) -> Output {
    let run = || {
        superpoll_conformance::sys::refuse_io_uring(error).unwrap();
        let mut command = lab();
        command.current_dir(folder).args(arguments).env("SUPERPOLL_BACKEND", backend);
        command.output().unwrap()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

const REFUSALS: [(i32, &str); 3] = [
    (libc::EPERM, "kernel.io_uring_disabled"),
    (libc::ENOSYS, "Linux 5.19"),
    (libc::ENOMEM, "ulimit -l"),
];

#[test]
fn experiments_run_without_io_uring_and_name_the_subjects_left_out() {
    for (error, way) in REFUSALS {
        let folder = tempfile::tempdir().unwrap();
        let atr = ["atr", "--total", "20", "--active", "1,20", "--no-report"];
        let atr = [&atr[..], &["--subjects", "all", "--json", "atr.json"], &SMALL].concat();
        let ring = ["ring", "--total", "6", "--no-report", "--json", "ring.json"];
        let ring = [&ring[..], &SMALL].concat();
        for arguments in [&atr, &ring] {
            let output = run_refused(error, folder.path(), arguments, "");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arguments:?}: {errors}");
        }
        let record = json(&folder.path().join("atr.json"));
        let rows = record["rows"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["subject"] == "adaptive"));
        assert!(rows.iter().all(|row| row["subject"] != "uring"));
        let record = json(&folder.path().join("ring.json"));
        let rows = record["rows"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["subject"] == "superpoll-rt-adaptive"));
        assert!(rows.iter().all(|row| row["subject"] != "superpoll-rt-uring"));
        // A back-end that was requested by name is not replaced.
        let forced = ["ring", "--total", "6", "--subjects", "superpoll-rt-uring", "--no-report"];
        let output = run_refused(error, folder.path(), &[&forced[..], &SMALL].concat(), "");
        assert!(!output.status.success() && output.stdout.is_empty());
        let errors = reason(&output);
        assert!(errors.contains("back-end uring does not work here"), "{errors}");
        assert!(errors.contains(way) && errors.contains("or auto"), "{errors}");
    }
}
