//! `superpoll-lab http`.

use serde_json::Value;

use crate::record::{Field, check_record, check_times, is_timed_at, json, not_negative, positive};
use crate::start::{SMALL, refused, succeed};

#[test]
fn lab_http_measures_every_server_or_names_the_feature_that_it_needs() {
    if !superpoll_lab::BUILT_IN {
        let line = refused(&["http"]);
        assert!(line.contains("--features http"), "{line}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["http", "--connections", "1,5", "--json", "http.json"];
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("cpu ns/request") && text.contains("/ tokio"), "{text}");
    let record = json(&folder.path().join("http.json"));
    let fields: [Field; 8] = [
        ("subject", Value::is_string),
        ("connections", |v| v == 1 || v == 5),
        ("requests", positive),
        ("cpu_ns_per_request_min", not_negative),
        ("cpu_ns_per_request_median", not_negative),
        ("cpu_spread", Value::is_number),
        ("requests_per_second", positive),
        ("rounds", |v| v == 1),
    ];
    check_record(&record, "http", &fields);
    let rows = record["rows"].as_array().unwrap();
    check_times(rows);
    for row in rows {
        let is_timed = is_timed_at(rows, "tokio", row, &["connections"]);
        assert_eq!(not_negative(&row["tokio_ratio"]), is_timed, "{row}");
    }
    let ours = ["superpoll-rt-poll", "superpoll-rt-epoll", "superpoll-rt-adaptive"];
    for subject in ["raw-epoll", "tokio"].into_iter().chain(ours) {
        let own: Vec<_> = rows.iter().filter(|row| row["subject"] == subject).collect();
        assert_eq!(own.len(), 2, "points of {subject}");
        for row in own {
            let waits = row["waits_per_request"].as_f64();
            assert_eq!(waits.is_some_and(|waits| waits > 0.0), ours.contains(&subject), "{row}");
        }
    }
    let report = folder.path().join("superpoll-report");
    let csv = std::fs::read_to_string(report.join("http.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + rows.len());
    assert!(std::fs::read_to_string(report.join("http.svg")).unwrap().starts_with("<svg"));
    assert!(
        std::fs::read_to_string(report.join("index.html")).unwrap().contains("<h2 id=\"http\">")
    );

    let line = refused(&["http", "--connections", "0"]);
    assert!(line.contains("--connections 0"), "{line}");
    let line = refused(&["http", "--subjects", "nginx"]);
    assert!(line.contains("\"nginx\"") && line.contains("superpoll-rt-epoll"), "{line}");
}
