//! `superpoll-lab keep`.

use serde_json::Value;

use crate::record::{Field, check_record, json};
use crate::start::{SMALL, refused, succeed};

#[test]
fn lab_sit_measures_every_topology_and_keeps_connections_through_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["keep", "--idle", "40", "--batch", "1,20", "--samples", "5"];
    arguments.extend(["--requests", "200", "--json", "sit.json"]);
    arguments.extend(SMALL);
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
    }
    assert_eq!((of("busy", "nested", "away"), of("busy", "process", "away")), (0.0, 40.0));
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
    for (arguments, about) in [
        (["--parts", "sleep"], "\"sleep\""),
        (["--topologies", "forest"], "\"forest\""),
        (["--batch", "254"], "--batch 254"),
        (["--batch", "x"], "--batch"),
        (["--idle", "1"], "--idle"),
        (["--requests", "0"], "--requests"),
        (["--samples", "0"], "--samples"),
    ] {
        let line = refused(&[&["sit"], &arguments[..]].concat());
        assert!(line.contains(about), "{line}");
    }
}
