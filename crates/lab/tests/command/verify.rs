//! `superpoll-lab verify`: compares the promises of `docs/promises.md` with a report.

use serde_json::Value;

use crate::record::json;
use crate::start::{SMALL, run, succeed};

#[test]
fn a_broken_promise_fails_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["idle", "--connections", "40", "--arrival", "one-by-one"];
    let arguments = [
        &arguments[..],
        &["--subjects", "superpoll-keep-alive", "--no-report", "--json", "a.json"],
        &SMALL,
    ]
    .concat();
    succeed(folder.path(), &arguments);
    let mut record = json(&folder.path().join("a.json"));
    let mut with = |bytes: f64| {
        for row in record["rows"].as_array_mut().unwrap() {
            row["user_bytes_per_connection"]["median"] = Value::from(bytes);
        }
        std::fs::write(folder.path().join("b.json"), record.to_string()).unwrap();
        run(folder.path(), &["verify", "--from", "b.json"])
    };
    let kept = with(300.0);
    let text = String::from_utf8(kept.stdout).unwrap();
    assert!(kept.status.success() && text.contains("0.29") && text.contains("ok"), "{text}");
    let broken = with(3000.0);
    let text = String::from_utf8(broken.stdout).unwrap();
    let errors = String::from_utf8(broken.stderr).unwrap();
    assert_eq!(broken.status.code(), Some(1), "{errors}");
    assert!(text.contains("broken") && errors.contains("promises are broken"), "{errors}");
    assert!(errors.contains("KiB of memory") && errors.trim_end().lines().count() == 1, "{errors}");
}

#[test]
fn a_report_of_something_else_verifies_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["timers", "--timers", "50", "--ending", "10", "--no-report"];
    succeed(folder.path(), &[&arguments[..], &["--json", "a.json"], &SMALL].concat());
    let output = run(folder.path(), &["verify", "--from", "a.json"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("none of the promises of docs/promises.md was measured"), "{errors}");
}
