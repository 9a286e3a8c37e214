//! `superpoll-lab timers`.

use serde_json::Value;

use crate::record::{Field, check_record, json, positive};
use crate::start::{SMALL, refused, succeed};

#[test]
fn lab_timers_checks_every_timer_and_compares_with_tokio_where_it_is_built_in() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["timers", "--timers", "50,5000", "--ending", "100"];
    arguments.extend(["--json", "timers.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("late, p50") && text.contains("one by one"), "{text}");
    let record = json(&folder.path().join("timers.json"));
    let fields: [Field; 6] = [
        ("subject", Value::is_string),
        ("load", Value::is_string),
        ("timers", |v| v == 50 || v == 5000 || v == 100),
        ("timer_ns_median", positive),
        ("timer_ns_spread", Value::is_number),
        ("rounds", |v| v == 1),
    ];
    check_record(&record, "timers", &fields);
    let rows = record["rows"].as_array().unwrap();
    let subjects = record["parameters"]["subjects"].as_array().unwrap();
    assert_eq!(rows.len(), 6 * subjects.len());
    for row in rows {
        let ending = row["load"] == "ending";
        assert_eq!(row["late_ns_p99"].is_number(), ending, "{row}");
        assert_eq!(row["cancel_ns_min"].is_null(), ending || row["load"] == "one by one", "{row}");
        assert_eq!(row["tokio_ratio"].is_number(), subjects.len() == 2, "{row}");
    }
    let report = folder.path().join("superpoll-report");
    let csv = std::fs::read_to_string(report.join("timers.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + rows.len());
    assert!(std::fs::read_to_string(report.join("timers.svg")).unwrap().starts_with("<svg"));
    assert!(
        std::fs::read_to_string(report.join("index.html")).unwrap().contains("<h2 id=\"timers\">")
    );
    if subjects.len() == 1 {
        let line = refused(&["timers", "--subjects", "tokio"]);
        assert!(line.contains("--features rivals-rt"), "{line}");
    }
}
