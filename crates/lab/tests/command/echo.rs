//! `superpoll-lab echo`.

use serde_json::Value;

use crate::record::{Field, check_record, check_times, is_timed_at, json, not_negative, positive};
use crate::start::{SMALL, refused, succeed};

#[test]
fn lab_echo_measures_every_server_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["echo", "--connections", "1,10", "--kind", "all"];
    arguments.extend(["--json", "echo.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("cpu ns/request") && text.contains("/ raw-epoll"), "{text}");
    let record = json(&folder.path().join("echo.json"));
    let fields: [Field; 11] = [
        ("subject", Value::is_string),
        ("kind", |v| v == "tcp" || v == "unix"),
        ("connections", |v| v == 1 || v == 10),
        ("bytes", |v| v == 64),
        ("requests", positive),
        ("cpu_ns_per_request_min", not_negative),
        ("cpu_ns_per_request_median", not_negative),
        ("cpu_spread", Value::is_number),
        ("requests_per_second", positive),
        ("generator_busy", positive),
        ("rounds", |v| v == 1),
    ];
    check_record(&record, "echo", &fields);
    let subjects = record["parameters"]["subjects"].as_array().unwrap();
    let rows = record["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4 * subjects.len());
    check_times(rows);
    for row in rows {
        let ours = row["subject"].as_str().unwrap().starts_with("superpoll");
        let waits = row["waits_per_request"].as_f64();
        assert_eq!(waits.is_some_and(|waits| waits > 0.0), ours, "{row}");
        for (name, ratio) in [("raw-epoll", "raw_epoll_ratio"), ("tokio", "tokio_ratio")] {
            let is_timed = is_timed_at(rows, name, row, &["kind", "connections"]);
            assert_eq!(not_negative(&row[ratio]["median"]), is_timed, "{row}");
        }
    }
    let report = folder.path().join("superpoll-report");
    let csv = std::fs::read_to_string(report.join("echo.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + rows.len());
    for plot in ["echo-tcp.svg", "echo-unix.svg"] {
        assert!(std::fs::read_to_string(report.join(plot)).unwrap().starts_with("<svg"), "{plot}");
    }
    assert!(
        std::fs::read_to_string(report.join("index.html")).unwrap().contains("<h2 id=\"echo\">")
    );

    for (arguments, about) in [
        (["--connections", "0"], "--connections 0"),
        (["--bytes", "5000"], "--bytes 5000"),
        (["--kind", "pipe"], "--kind pipe"),
        (["--subjects", "nginx"], "\"nginx\""),
    ] {
        let line = refused(&[&["echo"], &arguments[..]].concat());
        assert!(line.contains(about), "{line}");
    }
}
