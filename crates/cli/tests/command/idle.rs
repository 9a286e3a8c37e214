//! `lab idle`.

use serde_json::Value;

use crate::record::{Field, check_record, json, positive};
use crate::start::{refused, succeed};

/// Ours, each of which is there on every system, and the yardstick.
const OURS: &str = "superpoll-silent,superpoll-keep-alive,superpoll-tls,superpoll-long-poll,superpoll-websocket,\
                    superpoll-relay,raw-epoll";

#[test]
fn lab_idle_measures_each_kind_of_connection() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["lab", "idle", "--connections", "40", "--arrival", "burst", "--repetitions", "1"];
    let more = ["--subjects", OURS, "--json", "idle.json"];
    let text = succeed(folder.path(), &[&arguments[..], &more].concat());
    assert!(text.contains("user bytes") && text.contains("superpoll-websocket"), "{text}");
    let record = json(&folder.path().join("idle.json"));
    let fields: [Field; 7] = [
        ("subject", Value::is_string),
        ("kind", Value::is_string),
        ("arrival", |v| v == "burst"),
        ("connections", |v| v == 40),
        ("user_bytes_per_connection", Value::is_object),
        ("start_bytes", positive),
        ("rounds", |v| v == 1),
    ];
    check_record(&record, "idle", &fields);
    let rows = record["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["subject"].as_str().unwrap()).collect();
    assert_eq!(names, OURS.split(',').collect::<Vec<_>>());
    let report = folder.path().join("superpoll-report");
    let csv = std::fs::read_to_string(report.join("idle.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + rows.len());
    assert!(std::fs::read_to_string(report.join("idle.svg")).unwrap().starts_with("<svg"));
    assert!(
        std::fs::read_to_string(report.join("index.html")).unwrap().contains("<h2 id=\"idle\">")
    );
}

#[test]
fn lab_idle_leaves_out_or_refuses_what_is_not_here_and_what_makes_no_sense() {
    if !superpoll_lab::http::BUILT_IN {
        let line = refused(&["lab", "idle", "--subjects", "hyper-silent"]);
        assert!(line.contains("--features http"), "{line}");
    }
    for (arguments, about) in [
        (["--connections", "1"], "--connections 1"),
        (["--connections", "10000000"], "--connections 10000000"),
        (["--arrival", "flood"], "\"flood\""),
        (["--subjects", "apache"], "\"apache\""),
    ] {
        let line = refused(&[&["lab", "idle"], &arguments[..]].concat());
        assert!(line.contains(about), "{line}");
    }
}
