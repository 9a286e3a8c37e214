//! `superpoll-lab atr --latency` and `superpoll-lab mix --latency`.

use serde_json::Value;

use crate::record::{Field, check_record, json, positive};
use crate::start::{SMALL, refused, succeed};

/// Figures of wake-ups, each no less than the one before.
const ASCENDING: [&str; 5] =
    ["wake_ns_min", "wake_ns_p50", "wake_ns_p90", "wake_ns_p99", "wake_ns_max"];

fn check(record: &Value, experiment: &str, sizes: &[(u64, u64)]) {
    let fields: [Field; 5] = [
        ("kind", |v| v == "pipe"),
        ("subject", Value::is_string),
        // Some of a block perhaps with the loop awake.
        ("samples", |v| v.as_u64().unwrap() >= 1),
        ("p50_ratio", positive),
        ("p99_ratio", positive),
    ];
    check_record(record, experiment, &fields);
    let rows = record["rows"].as_array().unwrap();
    for subject in ["raw-poll", "raw-epoll-lt", "poll", "epoll-lt", "adaptive", "mio", "polling"] {
        let own = rows.iter().filter(|row| row["subject"] == subject);
        let own: Vec<_> = own.map(|row| (row["total"].as_u64(), row["hot"].as_u64())).collect();
        let expected: Vec<_> = sizes.iter().map(|&(all, hot)| (Some(all), Some(hot))).collect();
        assert_eq!(own, expected, "{subject}");
    }
    for row in rows {
        // All subjects of a size have the same block, of five at least: how many more there is time
        // for, the first size shows.
        let block = |row: &Value| row["samples"].as_u64().unwrap() + row["awake"].as_u64().unwrap();
        let first = rows.iter().find(|first| first["total"] == row["total"]).unwrap();
        assert!(block(row) >= 5 && block(row) == block(first), "{row} {first}");
        let figures = ASCENDING.map(|name| row[name].as_f64().unwrap());
        assert!(figures[0] > 0.0 && figures.is_sorted(), "{row}");
    }
}

#[test]
fn lab_atr_measures_wake_ups_over_its_totals() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["atr", "--latency", "--total", "10,40", "--active", "3"];
    arguments.extend(["--json", "atr.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("p99") && text.contains("blocked loop"), "{text}");
    check(&json(&folder.path().join("atr.json")), "atr-latency", &[(10, 3), (40, 3)]);
    let report = folder.path().join("superpoll-report");
    assert!(!report.join("atr.json").exists() && report.join("atr-latency.csv").exists());
    let plot = std::fs::read_to_string(report.join("atr-latency-pipe-3-busy-end.svg")).unwrap();
    assert!(plot.contains("adaptive, p50") && plot.contains("adaptive, p99"));
    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("id=\"atr-latency\""));
}

#[test]
fn lab_mix_measures_wake_ups_over_its_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["mix", "--latency", "--size", "4/16,10/50"];
    arguments.extend(["--json", "mix.json"]);
    arguments.extend(SMALL);
    succeed(folder.path(), &arguments);
    check(&json(&folder.path().join("mix.json")), "mix-latency", &[(20, 4), (60, 10)]);
    let report = folder.path().join("superpoll-report");
    assert!(report.join("mix-latency-pipe-mixed.svg").exists());
    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("id=\"mix-latency\"") && !page.contains("id=\"atr-latency\""));
}

#[test]
fn latency_views_refuse_invalid_options() {
    for (arguments, about) in [
        (["atr", "--total", "0"], "--total 0"),
        (["atr", "--active", "2000"], "--active 2000"),
        (["atr", "--subjects", "floor"], "floor"),
        (["mix", "--load", "shift"], "mixed loads, not shift"),
        (["mix", "--size", "5"], "--size"),
    ] {
        let line = refused(&[&arguments[..], &["--latency"]].concat());
        assert!(line.contains(about), "{line}");
    }
}
