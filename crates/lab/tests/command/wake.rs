//! `superpoll-lab wake`.

use serde_json::Value;

use crate::record::{Field, check_record, json, positive};
use crate::start::succeed;

#[test]
fn lab_wake_measures_wake_ups() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["wake", "--total", "20", "--hot", "5", "--samples", "3", "--no-report"];
    let text = succeed(folder.path(), &[&arguments[..], &["--json", "wake.json"]].concat());
    assert!(text.contains("p50") && text.contains("adaptive"), "{text}");
    let fields: [Field; 3] = [
        // A wake-up of a loop that was awake, on a machine that is busy elsewhere, does not count.
        ("samples", |v| v.as_u64().is_some_and(|samples| (1..=3).contains(&samples))),
        ("wake_ns_p50", positive),
        ("subject", Value::is_string),
    ];
    check_record(&json(&folder.path().join("wake.json")), "wake", &fields);
    assert!(!folder.path().join("superpoll-report").exists());
}
