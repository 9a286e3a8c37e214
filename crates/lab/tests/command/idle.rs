//! `superpoll-lab idle`.

use std::path::Path;

use serde_json::Value;

use crate::program::program;
use crate::record::{Field, check_record, json, positive};
use crate::start::{refused, succeed};

/// Our servers that park silent connections.
const PARKING: &str = "superpoll-silent,superpoll-keep-alive,superpoll-tls,superpoll-long-poll,\
                       superpoll-websocket";

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
fn lab_idle_climbs_until_descriptors_are_used_up() {
    let folder = tempfile::tempdir().unwrap();
    // Two servers with 63 connections each, and a relay with half as many.
    let command = format!(
        "ulimit -n 200 && exec {} idle --ramp --connections 40 --servers 2 --steps 5 --seconds 300 \
         --json ramp.json --subjects raw-epoll,superpoll-keep-alive,superpoll-relay",
        env!("CARGO_BIN_EXE_superpoll-lab")
    );
    let output =
        program("bash").current_dir(folder.path()).args(["-c", &command]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("ended by") && text.contains("descriptors"), "{text}");
    let record = json(&folder.path().join("ramp.json"));
    let fields: [Field; 7] = [
        ("subject", Value::is_string),
        ("kind", Value::is_string),
        ("step", positive),
        ("servers", positive),
        ("user_bytes_per_connection", Value::is_number),
        ("machine_bytes_per_connection", Value::is_number),
        ("available_bytes", positive),
    ];
    check_record(&record, "idle-ramp", &fields);
    let rows = record["rows"].as_array().unwrap();
    for (subject, steps) in [
        ("raw-epoll", &[(40, 1), (80, 2), (126, 2)][..]),
        ("superpoll-keep-alive", &[(40, 1), (80, 2), (126, 2)]),
        ("superpoll-relay", &[(40, 2), (62, 2)]),
    ] {
        let own: Vec<&Value> = rows.iter().filter(|row| row["subject"] == subject).collect();
        let found: Vec<_> =
            own.iter().map(|row| (row["connections"].as_u64(), row["servers"].as_u64())).collect();
        let expected: Vec<_> =
            steps.iter().map(|&(all, servers)| (Some(all), Some(servers))).collect();
        assert_eq!(found, expected, "{subject}");
        let (last, others) = own.split_last().unwrap();
        assert_eq!(last["limit"], "descriptors", "{last}");
        assert!(others.iter().all(|row| row["limit"].is_null()), "{own:?}");
    }
    let report = folder.path().join("superpoll-report");
    assert!(std::fs::read_to_string(report.join("idle-ramp.svg")).unwrap().contains("connections"));
    assert!(
        std::fs::read_to_string(report.join("index.html")).unwrap().contains("id=\"idle-ramp\"")
    );
}

#[test]
fn lab_idle_climbs_as_many_steps_as_were_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["idle", "--ramp", "--connections", "5", "--steps", "2"];
    let more = ["--seconds", "300", "--subjects", "raw-epoll", "--no-report", "--json", "x"];
    succeed(folder.path(), &[&arguments[..], &more].concat());
    let record = json(&folder.path().join("x"));
    let rows = record["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[1]["limit"]), (2, &Value::from("steps")), "{rows:?}");
    for (option, about) in [("--steps", "--steps 0"), ("--servers", "--servers 0")] {
        let line = refused(&["idle", "--ramp", option, "0"]);
        assert!(line.contains(about), "{line}");
    }
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
        (["--steps", "2"], "--ramp"),
    ] {
        let line = refused(&[&["idle"], &arguments[..]].concat());
        assert!(line.contains(about), "{line}");
    }
}
