//! `superpoll-lab keep`.

use serde_json::Value;

use crate::record::{Field, check_record, json};
use crate::start::{SMALL, refused, succeed};

#[test]
fn lab_sit_measures_every_topology_and_keeps_connections_through_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [&["keep", "--idle", "40", "--json", "sit.json"], &SMALL[..]].concat();
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("leave, main") && text.contains("first answer"), "{text}");
    let record = json(&folder.path().join("sit.json"));
    let fields: [Field; 8] = [
        ("part", |v| v == "move" || v == "wake" || v == "busy" || v == "restart"),
        ("subject", Value::is_string),
        ("number", Value::is_u64),
        ("figure", Value::is_string),
        ("unit", |v| v == "ns" || v == "count"),
        ("median", |v| v.as_f64().is_some_and(|number| number >= 0.0)),
        ("most", Value::is_number),
        ("rounds", |v| v == 1),
    ];
    check_record(&record, "sit", &fields);
    let rows = record["rows"].as_array().unwrap();
    let of = |part: &str, subject: &str, figure: &str| {
        let found = rows.iter().find(|row| {
            row["part"] == part && row["subject"] == subject && row["figure"] == figure
        });
        found.unwrap_or_else(|| panic!("{part} {subject} {figure}"))["median"].as_f64().unwrap()
    };
    for topology in ["nested", "thread", "process"] {
        for (part, figure) in [
            ("move", "leave, main"),
            ("move", "back, main"),
            ("wake", "p50"),
            ("wake", "p99"),
            ("busy", "p50"),
            ("busy", "main"),
        ] {
            assert!(of(part, topology, figure) > 0.0, "{part} {topology} {figure}");
        }
        let is_kept = topology != "nested";
        assert_eq!(of("move", topology, "back, keeper") > 0.0, is_kept, "{topology}");
        assert_eq!(of("busy", topology, "away"), if is_kept { 40.0 } else { 0.0 }, "{topology}");
        for part in ["wake", "busy"] {
            assert!(of(part, topology, "p99") >= of(part, topology, "p50"), "{part} {topology}");
        }
    }
    for way in ["upgrade", "crash"] {
        assert!(of("restart", way, "first answer") > 0.0);
        assert!(of("restart", way, "confirmed") > 0.0, "{way}: nothing was published");
        for figure in ["dropped", "lost", "doubled"] {
            assert_eq!(of("restart", way, figure), 0.0, "{way}: {figure}");
        }
    }
    let report = folder.path().join("superpoll-report");
    let csv = std::fs::read_to_string(report.join("sit.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + rows.len());
    assert!(std::fs::read_to_string(report.join("sit.svg")).unwrap().starts_with("<svg"));
    assert!(
        std::fs::read_to_string(report.join("index.html")).unwrap().contains("<h2 id=\"sit\">")
    );
}

#[test]
fn lab_keep_refuses_invalid_options() {
    for (arguments, about) in [(["--parts", "sleep"], "\"sleep\""), (["--idle", "1"], "--idle")] {
        let line = refused(&[&["sit"], &arguments[..]].concat());
        assert!(line.contains(about), "{line}");
    }
}
