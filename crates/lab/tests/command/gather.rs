//! `superpoll-lab gather`.

use serde_json::Value;

use crate::record::{Field, check_record, json, positive};
use crate::start::{SMALL, refused, succeed};

#[test]
fn lab_gather_counts_each_message_once_with_and_without_gathering() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments =
        vec!["gather", "--interval", "100", "--gather", "300", "--descriptors", "9"];
    arguments.extend(["--subjects", "adaptive", "--json", "gather.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("late, p50") && text.contains("fan-in"), "{text}");
    let record = json(&folder.path().join("gather.json"));
    let fields: [Field; 6] = [
        ("subject", |v| v == "adaptive"),
        ("load", |v| v == "fan-in" || v == "relay"),
        ("gather", |v| v == 0 || v == 300),
        ("message_ns_median", positive),
        ("late_ns_p99", positive),
        ("rounds", |v| v == 1),
    ];
    check_record(&record, "gather", &fields);
    let rows = record["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for pair in rows.chunks(2) {
        // Without gathering each message is worth a wait, or several come with one if the machine
        // is busy; with it there are fewer of them than a pause of the loop would make.
        let [without, with] = [0, 1].map(|place| pair[place]["waits"].as_f64().unwrap());
        assert!(with < 0.75 && without > 0.0, "{pair:?}");
        assert!(pair[0]["ratio"].is_null() && pair[1]["ratio"].is_object(), "{pair:?}");
    }
    assert!(rows.iter().all(|row| row["late_ns_p50"].as_f64() <= row["late_ns_p99"].as_f64()));
    let line = refused(&["gather", "--gather", "1000001"]);
    assert!(line.contains("--gather 1000001") && line.contains("1000000"), "{line}");
    let line = refused(&["gather", "--subjects", "kqueue"]);
    assert!(line.contains("kqueue"), "{line}");
    assert!(record["parameters"]["messages_verified"] == Value::Bool(true));
}
