//! `superpoll-lab compare`: two reports side by side.

use serde_json::Value;

use crate::record::json;
use crate::start::{SMALL, refused, run, succeed};

#[test]
fn a_record_ties_with_itself_and_a_slower_one_differs() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["timers", "--timers", "50", "--ending", "10", "--no-report"];
    let arguments = [&arguments[..], &["--json", "a.json"], &SMALL].concat();
    succeed(folder.path(), &arguments);
    let text = succeed(folder.path(), &["compare", "a.json", "a.json"]);
    assert!(text.contains("no figure differs by more than its rounds do"), "{text}");
    assert!(text.contains("timers"), "{text}");

    let mut slower = json(&folder.path().join("a.json"));
    for row in slower["rows"].as_array_mut().unwrap() {
        for figure in ["timer_ns_median", "timer_ns_min"] {
            row[figure] = Value::from(row[figure].as_f64().unwrap() * 50.0);
        }
    }
    std::fs::write(folder.path().join("b.json"), slower.to_string()).unwrap();
    let both = ["compare", "a.json", "b.json", "--json", "c.json"];
    let text = succeed(folder.path(), &both);
    assert!(text.contains("more") && text.contains("50.00"), "{text}");
    let comparison = json(&folder.path().join("c.json"));
    let pairs = comparison["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), slower["rows"].as_array().unwrap().len());
    assert!(pairs.iter().all(|pair| pair["difference"] == "more"), "{pairs:?}");
}

#[test]
fn other_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("other.json"), "{\"name\":\"x\"}").unwrap();
    let output = run(folder.path(), &["compare", "other.json", "other.json"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("other.json is not a report of superpoll-lab"), "{errors}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    let line = refused(&["compare", "missing.json", "missing.json"]);
    assert!(line.contains("reading missing.json"), "{line}");
}
