//! `lab herd`.

use serde_json::Value;

use crate::record::{Field, check_record, json, positive};
use crate::start::{SMALL, succeed};

#[test]
fn lab_herd_counts_who_is_woken_and_who_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["lab", "herd", "--processes", "1,4", "--connects", "6"];
    arguments.extend(["--dups", "3", "--json", "herd.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("3 of listener") && text.contains("3 of pipe"), "{text}");
    let record = json(&folder.path().join("herd.json"));
    let fields: [Field; 7] = [
        ("subject", Value::is_string),
        ("processes", |v| v == 1 || v == 4),
        ("dups", |v| v == 3),
        ("connects", |v| v == 6),
        ("connect_ns_median", positive),
        ("woken_per_connect", |v| v.as_f64().is_some_and(|woken| woken > 0.0)),
        ("jain", |v| v.as_f64().is_some_and(|jain| jain > 0.0 && jain <= 1.0)),
    ];
    check_record(&record, "herd", &fields);
    let rows = record["rows"].as_array().unwrap();
    let ours = ["superpoll-rt-shared", "superpoll-rt-exclusive", "superpoll-rt-reuseport"];
    let raw = ["select", "poll", "epoll", "epoll-alone", "epoll-exclusive", "reuseport"];
    for way in raw.into_iter().chain(ours) {
        let own: Vec<_> = rows.iter().filter(|row| row["subject"] == way).collect();
        assert_eq!(own.len(), 4, "herds of {way}");
        for ratio in ["median_ratio", "alone_ratio"] {
            assert!(own.iter().all(|row| row[ratio].is_number()), "{ratio} of {way}");
        }
    }
    // The herd is woken as a whole or not, whatever the time of day.
    let woken = |way: &str| {
        let row = rows.iter().find(|row| {
            row["subject"] == way && row["processes"] == 4 && row["dups_of"] == "listener"
        });
        row.unwrap()["woken_per_connect"].as_f64().unwrap()
    };
    assert!(woken("poll") > woken("epoll-exclusive"), "{} woken", woken("poll"));
    assert!(woken("poll") > woken("superpoll-rt-exclusive"), "{} woken", woken("poll"));
    if rows.iter().any(|row| row["subject"] == "uring-poll") {
        for one in ["uring-exclusive", "uring-exclusive-oneshot", "superpoll-uring-exclusive"] {
            assert!(woken("uring-poll") > woken(one), "{} woken", woken(one));
        }
    }
    let page = std::fs::read_to_string(folder.path().join("superpoll-report/index.html")).unwrap();
    assert!(page.contains("<h2 id=\"herd\">") && page.matches("<svg").count() == 2);
}

#[test]
fn lab_herd_has_blocking_waiters_and_engines_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["lab", "herd", "--processes", "2", "--connects", "8", "--no-report"];
    arguments.extend(["--json", "x"]);
    arguments.extend(SMALL);
    succeed(folder.path(), &arguments);
    let record = json(&folder.path().join("x"));
    let rows = record["rows"].as_array().unwrap();
    let notes = record["parameters"]["notes"].to_string();
    assert_eq!(rows.len(), if notes.contains("uring-poll") { 14 } else { 22 });
    let rings = ["uring-accept", "superpoll-uring-exclusive", "engines-uring-exclusive"];
    let ways = ["accept", "superpoll-rt-shared", "superpoll-rt-reuseport", "engines-hand-off"];
    for way in ways.into_iter().chain(rings) {
        let Some(row) = rows.iter().find(|row| row["subject"] == way) else {
            assert!(notes.contains(way), "{way}: {notes}");
            continue;
        };
        let accepted = row["accepts_max"].as_u64().unwrap() + row["accepts_min"].as_u64().unwrap();
        assert_eq!(accepted, 8, "{way}");
    }
}
