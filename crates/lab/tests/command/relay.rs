//! `superpoll-lab relay`.

use serde_json::Value;

use crate::record::{Field, check_record, check_times, is_timed_at, json, not_negative, positive};
use crate::start::{SMALL, refused, succeed};

/// The common options of most runs here.
const FEW: [&str; 10] = [
    "--connections",
    "8",
    "--keep-alive",
    "4",
    "--forwarded",
    "200",
    "--mebibytes",
    "4",
    "--bytes",
    "500",
];

const LOADS: [&str; 10] = [
    "connection",
    "one-by-one",
    "keep-alive",
    "bulk",
    "http-connection",
    "http-keep-alive",
    "https-full",
    "https-resumed",
    "https-keep-alive",
    "h2",
];

#[test]
fn lab_relay_counts_calls_as_strace_does_and_measures_every_load() {
    let folder = tempfile::tempdir().unwrap();
    let subjects = "superpoll-epoll,superpoll-epoll-waits,superpoll-adaptive,haproxy,nginx";
    let mut arguments = vec!["relay", "--subjects", subjects, "--json", "relay.json"];
    arguments.extend(FEW);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("cpu us/request") && text.contains("System calls by name"), "{text}");
    let record = json(&folder.path().join("relay.json"));
    let fields: [Field; 9] = [
        ("subject", Value::is_string),
        ("load", |v| LOADS.iter().any(|load| v == load)),
        ("bytes", |v| v == 500 || v == 4 << 20),
        ("requests", positive),
        ("cpu_ns_per_request_min", not_negative),
        ("cpu_ns_per_request_median", not_negative),
        ("cpu_spread", Value::is_number),
        ("requests_per_second", positive),
        ("rounds", |v| v == 1),
    ];
    check_record(&record, "relay", &fields);
    let rows = record["rows"].as_array().unwrap();
    check_times(rows);
    for subject in ["superpoll-epoll", "superpoll-epoll-waits", "superpoll-adaptive"] {
        let own: Vec<_> = rows.iter().filter(|row| row["subject"] == subject).collect();
        assert_eq!(own.len(), LOADS.len(), "loads of {subject}");
        for row in own {
            let calls = row["calls_per_request"].as_f64().unwrap();
            let by_name = row["calls"].as_object().unwrap();
            let sum: f64 = by_name.values().filter_map(Value::as_f64).sum();
            assert!((sum - calls).abs() < 1e-6, "{row}");
            // The calls of the work itself, except those that are under way when the counting
            // begins. How often a loop waits and checks again depends on the machine, so the upper
            // ends are wide.
            match row["load"].as_str().unwrap() {
                // Accept, socket, connect, a read and a send each way, and a close for both.
                "connection" | "one-by-one" => assert!((7.5..40.0).contains(&calls), "{row}"),
                "keep-alive" => assert!((3.5..24.0).contains(&calls), "{row}"),
                // Accept, a read and a send on either side, and a close; upstream connections are
                // kept.
                "http-connection" => assert!((5.5..40.0).contains(&calls), "{row}"),
                "http-keep-alive" | "https-keep-alive" => {
                    assert!((3.5..24.0).contains(&calls), "{row}")
                }
                // The same with the messages of a handshake.
                "https-full" | "https-resumed" => assert!((7.5..60.0).contains(&calls), "{row}"),
                // Several requests and answers may come in one read.
                "h2" => assert!((0.5..24.0).contains(&calls), "{row}"),
                _ => assert!(by_name["splice"].as_f64().unwrap() > 1.0, "{row}"),
            }
            let to_origin = row["origin_connections_per_request"].as_f64().unwrap();
            match row["load"].as_str() {
                Some("connection" | "one-by-one") => {
                    assert!((to_origin - 1.0).abs() < 0.01, "{row}")
                }
                // Kept connections, and no more of them than clients.
                _ => assert!(to_origin * row["requests"].as_f64().unwrap() < 8.5, "{row}"),
            }
            // strace may not be installed, or not be allowed to trace.
            let (Some(seen), Some(own)) = (
                row["strace_calls_per_request"].as_f64(),
                row["calls_per_traced_request"].as_f64(),
            ) else {
                continue;
            };
            // Without optimization, std checks each descriptor before it closes it. Random numbers
            // of handshakes are not counted.
            let seen = ["fcntl", "getrandom"].iter().fold(seen, |seen, name| {
                seen - row["strace_calls"][name].as_f64().unwrap_or_default()
            });
            // A process that reports its calls makes some calls to answer. From time to time it
            // also allocates memory.
            let traced = if row["load"] == "bulk" { 16.0 } else { 200.0 };
            let slack = 0.03 * seen + 40.0 / traced;
            assert!((seen - own).abs() <= slack, "{seen} calls by strace: {row}");
        }
    }
    let report = folder.path().join("superpoll-report");
    let csv = std::fs::read_to_string(report.join("relay.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + rows.len());
    assert!(
        std::fs::read_to_string(report.join("index.html")).unwrap().contains("<h2 id=\"relay\">")
    );
    // On a machine that is busy elsewhere haproxy may be left out at some loads.
    for row in rows {
        let is_timed = is_timed_at(rows, "haproxy", row, &["load"]);
        assert_eq!(not_negative(&row["haproxy_ratio"]["median"]), is_timed, "{row}");
    }
}

#[test]
fn lab_relay_refuses_invalid_options() {
    for (arguments, about) in [
        (["--load", "udp"], "\"udp\""),
        (["--connections", "0"], "--connections 0"),
        (["--forwarded", "0"], "--forwarded 0"),
        (["--mebibytes", "0"], "--mebibytes 0"),
        (["--subjects", "squid"], "\"squid\""),
    ] {
        let line = refused(&[&["relay"], &arguments[..]].concat());
        assert!(line.contains(about), "{line}");
    }
}
