//! `superpoll-lab idle`.

use std::path::Path;

use serde_json::Value;

use crate::record::{Field, check_record, json};
use crate::start::{refused, succeed};

/// Our servers that park silent connections.
const PARKING: &str = "superpoll-silent,superpoll-keep-alive,superpoll-tls,superpoll-h2,\
                       superpoll-long-poll,superpoll-websocket";

/// Measures these servers; returns the record.
fn measured(folder: &Path, subjects: &str) -> Value {
    let arguments = ["idle", "--connections", "40", "--arrival", "burst", "--repetitions", "1"];
    let more = ["--subjects", subjects, "--json", "idle.json"];
    let text = succeed(folder, &[&arguments[..], &more].concat());
    assert!(text.contains("user bytes") && subjects.split(',').all(|name| text.contains(name)));
    json(&folder.join("idle.json"))
}

#[test]
fn lab_idle_measures_each_kind_of_connection() {
    let fields: &[Field; 6] = &[
        ("subject", Value::is_string),
        ("kind", Value::is_string),
        ("arrival", |v| v == "burst"),
        ("connections", |v| v == 40),
        ("user_bytes_per_connection", Value::is_object),
        ("rounds", |v| v == 1),
    ];
    // Nearly all of the time is spent waiting until connections are parked, so all wait at once.
    std::thread::scope(|scope| {
        for subject in PARKING.split(',') {
            scope.spawn(move || {
                let folder = tempfile::tempdir().unwrap();
                let record = measured(folder.path(), subject);
                check_record(&record, "idle", fields);
                let rows = record["rows"].as_array().unwrap();
                assert!(rows.len() == 1 && rows[0]["subject"] == subject, "{rows:?}");
            });
        }
        let folder = tempfile::tempdir().unwrap();
        let subjects = "superpoll-relay,raw-epoll";
        let record = measured(folder.path(), subjects);
        check_record(&record, "idle", fields);
        let rows = record["rows"].as_array().unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row["subject"].as_str().unwrap()).collect();
        assert_eq!(names, subjects.split(',').collect::<Vec<_>>());
        let report = folder.path().join("superpoll-report");
        let csv = std::fs::read_to_string(report.join("idle.csv")).unwrap();
        assert_eq!(csv.lines().count(), 1 + rows.len());
        assert!(std::fs::read_to_string(report.join("idle.svg")).unwrap().starts_with("<svg"));
        let page = std::fs::read_to_string(report.join("index.html")).unwrap();
        assert!(page.contains("<h2 id=\"idle\">"));
    });
}

#[test]
fn lab_idle_leaves_out_absent_kinds_and_refuses_invalid_options() {
    if !superpoll_lab::BUILT_IN {
        let line = refused(&["idle", "--subjects", "hyper-silent"]);
        assert!(line.contains("--features http"), "{line}");
    }
    for (arguments, about) in [
        (["--connections", "1"], "--connections 1"),
        (["--connections", "10000000"], "--connections 10000000"),
        (["--arrival", "flood"], "\"flood\""),
        (["--subjects", "apache"], "\"apache\""),
    ] {
        let line = refused(&[&["idle"], &arguments[..]].concat());
        assert!(line.contains(about), "{line}");
    }
}
