//! `superpoll-lab million`.

use serde_json::Value;

use crate::program::program;
use crate::record::{Field, check_record, json, not_negative, positive};
use crate::start::{lab, refused, succeed};

#[test]
fn lab_million_keeps_every_connection_through_a_message_and_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let text = succeed(
        folder.path(),
        &["million", "--quick", "--connections", "61", "--json", "million.json"],
    );
    for heading in ["connections at once", "slab bytes", "crash: connections lost", "websocket"] {
        assert!(text.contains(heading), "{heading} is missing in {text}");
    }
    let record = json(&folder.path().join("million.json"));
    let fields: [Field; 10] = [
        ("kind", |v| v == "keep-alive" || v == "websocket"),
        ("connections", |v| v == 61),
        ("asked", |v| v == 61),
        ("limit", |v| v == "asked"),
        ("processes", |v| v == 2),
        ("seconds", positive),
        ("server_bytes", positive),
        ("keeper_bytes", positive),
        ("server_ns_per_connection", positive),
        ("keeper_ns_per_connection", not_negative),
    ];
    check_record(&record, "million", &fields);
    let rows = record["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let kind = &row["kind"];
        assert_eq!(row["crash"]["lost"], 0, "{kind}");
        assert_eq!(row["crash"]["connections"], 31, "{kind}");
        let rounds: &[&str] = if kind == "websocket" { &["message", "check"] } else { &["check"] };
        for round in rounds {
            assert_eq!(row[round]["received"], 61, "{kind} {round}");
            assert_eq!(row[round]["wrong"], 0, "{kind} {round}");
            assert!(positive(&row[round]["seconds"]), "{kind} {round}");
        }
        assert_eq!(row.get("message").is_some(), kind == "websocket");
    }
    let report = folder.path().join("superpoll-report");
    let csv = std::fs::read_to_string(report.join("million.csv")).unwrap();
    assert_eq!(csv.lines().count(), 3);
    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("<h2 id=\"million\">"));
}

#[test]
fn lab_million_runs_without_keepers_and_kills_no_server_then() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["million", "--quick", "--no-keeper", "--kind", "websocket", "--no-report"];
    succeed(folder.path(), &[&arguments[..], &["--connections", "20", "--json", "m"]].concat());
    let record = json(&folder.path().join("m"));
    let row = &record["rows"][0];
    assert_eq!((&row["crash"], &row["keeper_bytes"]), (&Value::Null, &Value::from(0)));
    assert_eq!((&row["check"]["received"], &row["check"]["wrong"]), (&20.into(), &0.into()));
}

#[test]
fn lab_million_takes_subscribers_of_each_kind_until_descriptors_are_used_up() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!(
        "ulimit -n 200 && exec {} million --quick --connections 1000 --no-keeper \
         --kind events,long-poll --no-report --json m",
        lab().get_program().display()
    );
    let output =
        program("bash").current_dir(folder.path()).args(["-c", &command]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("260 connections instead of 1000"), "{errors}");
    let record = json(&folder.path().join("m"));
    let rows = record["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let kind = &row["kind"];
        assert_eq!((&row["connections"], &row["limit"]), (&260.into(), &"descriptors".into()));
        for round in ["message", "check"] {
            assert_eq!(
                (&row[round]["received"], &row[round]["wrong"]),
                (&260.into(), &0.into()),
                "{kind}"
            );
        }
    }
}

#[test]
fn lab_million_refuses_invalid_options() {
    for (arguments, about) in [
        (["--kind", "telnet"], "\"telnet\""),
        (["--connections", "0"], "--connections 0"),
        (["--processes", "0"], "--processes 0"),
        (["--repetitions", "2"], "--repetitions"),
    ] {
        let line = refused(&[&["million"], &arguments[..]].concat());
        assert!(line.contains(about), "{line}");
    }
}
