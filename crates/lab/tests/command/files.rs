//! `superpoll-lab files`.

use serde_json::Value;

use crate::record::{Field, check_record, check_times, is_timed_at, json, not_negative, positive};
use crate::rivals::{path_from, script};
use crate::start::{SMALL, lab, refused, succeed};

/// Our servers that run everywhere.
const OURS: [&str; 3] = ["superpoll-poll", "superpoll-epoll", "superpoll-adaptive"];

#[test]
fn lab_files_measures_every_server_with_every_file_and_names_absent_servers() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["files", "--bytes", "500,200000", "--connections", "5"];
    arguments.extend(["--json", "files.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("cpu us/request") && text.contains("/ nginx"), "{text}");
    let record = json(&folder.path().join("files.json"));
    let fields: [Field; 10] = [
        ("subject", Value::is_string),
        ("protocol", |v| ["http", "https", "h2"].iter().any(|name| v == name)),
        ("bytes", |v| v == 500 || v == 200_000),
        ("connections", |v| v == 5 || v == 1),
        ("requests", positive),
        ("cpu_ns_per_request_min", not_negative),
        ("cpu_ns_per_request_median", not_negative),
        ("requests_per_second", positive),
        ("generator_busy", positive),
        ("rounds", |v| v == 1),
    ];
    check_record(&record, "files", &fields);
    let rows = record["rows"].as_array().unwrap();
    check_times(rows);
    let notes = record["parameters"]["notes"].as_array().unwrap();
    let own = |subject: &str| -> Vec<&Value> {
        rows.iter().filter(|row| row["subject"] == subject).collect()
    };
    for subject in OURS {
        assert_eq!(own(subject).len(), 6, "points of {subject}");
        for row in own(subject) {
            assert!(positive(&row["waits_per_request"]), "{row}");
            assert_eq!(row["connections"], if row["protocol"] == "h2" { 1 } else { 5 }, "{row}");
            if row["protocol"] != "http" {
                continue;
            }
            // strace may not be installed, or not be allowed to trace.
            if let Some(calls) = row["strace_calls_per_request"].as_f64() {
                // A request is read and answered; a long file takes one or several calls of its
                // own.
                assert!((2.0..12.0).contains(&calls), "{row}");
                assert!(row["strace_calls"]["read"].as_f64().unwrap() >= 0.9, "{row}");
            }
        }
    }
    for (subject, points, ratio) in [("nginx", 6, "nginx_ratio"), ("hyper-tokio", 2, "hyper_ratio")]
    {
        let missing = notes.iter().any(|note| note.as_str().unwrap().starts_with(subject));
        // On a machine that is busy elsewhere one may be left out after the first file. One that
        // does not speak a protocol has a note too.
        let least = if missing { 0 } else { points };
        assert!((least..=points).contains(&own(subject).len()), "{subject}: {notes:?}");
        for row in rows {
            let is_timed = is_timed_at(rows, subject, row, &["bytes", "protocol"]);
            assert_eq!(not_negative(&row[ratio]["median"]), is_timed, "{row}");
            assert!(!is_timed || row["subject"] != subject || row[ratio]["median"] == 1.0, "{row}");
        }
    }
    let report = folder.path().join("superpoll-report");
    let csv = std::fs::read_to_string(report.join("files.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + rows.len());
    assert!(std::fs::read_to_string(report.join("files-http-5.svg")).unwrap().starts_with("<svg"));
    assert!(
        std::fs::read_to_string(report.join("index.html")).unwrap().contains("<h2 id=\"files\">")
    );
}

#[test]
fn requests_are_sent_once_strace_counts_them_however_slowly_it_attaches() {
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let strace = std::env::split_paths(&path).map(|at| at.join("strace")).find(|at| at.is_file());
    let Some(strace) = strace else {
        return eprintln!("skipped: strace is not installed");
    };
    // Another strace delays the calls by which this one attaches. It traces from the side (-D), so
    // that a signal for the process that was started reaches the one that counts.
    let strace = strace.display();
    let delays = "-o delays -e trace=ptrace -e inject=ptrace:delay_exit=50000:when=1..20";
    let text = format!("exec {strace} -D {delays} {strace} \"$@\"");
    script(folder.path(), "strace", &text);
    let mut command = lab();
    command.current_dir(folder.path()).env("PATH", path_from(folder.path()));
    command.args(["files", "--bytes", "500", "--protocol", "http", "--connections", "5"]);
    command.args(SMALL);
    command.args(["--subjects", "superpoll-epoll", "--json", "files.json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record = json(&folder.path().join("files.json"));
    let row = &record["rows"][0];
    if row["strace_calls_per_request"].is_null() {
        return eprintln!("skipped: strace is not allowed to trace here");
    }
    let delayed = std::fs::read_to_string(folder.path().join("delays")).unwrap();
    assert!(delayed.contains("PTRACE_INTERRUPT") && delayed.contains("DELAYED"), "{delayed}");
    assert!(row["strace_calls"]["read"].as_f64().is_some_and(|calls| calls >= 0.9), "{row}");
}

#[test]
fn lab_files_refuses_invalid_options() {
    for (arguments, about) in [
        (["--bytes", "0"], "--bytes 0"),
        (["--bytes", "1000000000"], "--bytes 1000000000"),
        (["--bytes", "long"], "--bytes"),
        (["--connections", "0"], "--connections 0"),
        (["--protocol", "h3"], "\"h3\""),
        (["--subjects", "apache"], "\"apache\""),
    ] {
        let line = refused(&[&["files"], &arguments[..]].concat());
        assert!(line.contains(about), "{line}");
    }
}
