//! `superpoll-lab cluster`.

use serde_json::Value;

use crate::record::{Field, check_record, json};
use crate::start::{refused, succeed};

#[test]
fn lab_cluster_loses_doubles_and_reorders_nothing() {
    let has = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    if !has("redis-server") || !has("redis-cli") {
        let line = refused(&["cluster", "--quick"]);
        assert!(line.contains("redis-") && line.contains("install"), "{line}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["cluster", "--quick", "--faults", "none,gateway,redis,flush,cut,reply"];
    let further = ["--subscribers", "30", "--json", "cluster.json"];
    let text = succeed(folder.path(), &[&arguments[..], &further].concat());
    assert!(text.contains("reordered") && text.contains("processor time"), "{text}");
    let record = json(&folder.path().join("cluster.json"));
    let fields: [Field; 8] = [
        ("part", |v| v == "fault" || v == "delay" || v == "processor"),
        ("subject", Value::is_string),
        ("number", Value::is_u64),
        ("figure", Value::is_string),
        ("unit", |v| v == "ns" || v == "count"),
        ("median", Value::is_number),
        ("most", Value::is_number),
        ("rounds", |v| v == 1),
    ];
    check_record(&record, "cluster", &fields);
    let rows = record["rows"].as_array().unwrap();
    let of = |subject: &str, figure: &str| {
        let found = rows.iter().find(|row| row["subject"] == subject && row["figure"] == figure);
        found.unwrap_or_else(|| panic!("{subject} {figure}"))["median"].as_f64().unwrap()
    };
    for fault in ["none", "gateway", "redis", "flush", "cut", "reply"] {
        for figure in ["lost", "doubled", "reordered"] {
            assert_eq!(of(fault, figure), 0.0, "{fault}: {figure}");
        }
        assert!(of(fault, "confirmed") > 0.0, "{fault}: nothing was published");
        let missed = if fault == "flush" { 30.0 } else { 0.0 };
        assert_eq!(of(fault, "missed"), missed, "{fault}");
    }
    assert!(of("gateway", "reconnects") > 0.0);
    assert!(of("to the last subscriber", "p99") >= of("to the last subscriber", "p50"));
    assert!(of("a publication", "redis") > 0.0);
}

#[test]
fn lab_cluster_refuses_invalid_options() {
    for (arguments, about) in [
        (["--faults", "fire"], "\"fire\""),
        (["--subscribers", "0"], "--subscribers"),
        (["--repetitions", "0"], "--repetitions"),
    ] {
        let line = refused(&[&["cluster"], &arguments[..]].concat());
        assert!(line.contains(about), "{line}");
    }
}
