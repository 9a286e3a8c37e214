//! `superpoll-lab ring`.

use serde_json::Value;

use crate::record::{Field, check_record, json, positive};
use crate::start::{SMALL, refused, run, succeed};

#[test]
fn lab_ring_takes_bytes_round_on_every_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["ring", "--total", "6,12", "--in-flight", "1,0.5"];
    arguments.extend(["--json", "ring.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    for part in ["6 pipes, 1 byte in flight", "12 pipes, 6 bytes", "superpoll-rt-peers"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let record = json(&folder.path().join("ring.json"));
    let fields: [Field; 9] = [
        ("subject", Value::is_string),
        ("total", |v| v == 6 || v == 12),
        ("in_flight", |v| [1, 3, 6].contains(&v.as_u64().unwrap())),
        ("laps", positive),
        ("rounds", |v| v == 1),
        ("ns_per_hop_min", positive),
        ("ns_per_hop_median", positive),
        ("hops_per_second", positive),
        ("bytes_per_read", positive),
    ];
    check_record(&record, "ring", &fields);
    let rows = record["rows"].as_array().unwrap();
    let subjects = ["read+write", "raw-epoll-lt", "superpoll-rt-select", "superpoll-rt-poll"];
    let ours = ["superpoll-rt-epoll", "superpoll-rt-adaptive", "superpoll-rt-peers"];
    for subject in subjects.into_iter().chain(ours) {
        let own: Vec<_> = rows.iter().filter(|row| row["subject"] == subject).collect();
        assert_eq!(own.len(), 4, "points of {subject}");
        let calls = own.iter().map(|row| row["syscalls_per_hop"].as_f64().unwrap());
        assert!(calls.fold(f64::INFINITY, f64::min) > 0.0, "{subject} makes system calls");
        assert!(own.iter().all(|row| row["raw_epoll_ratio"].is_number()));
    }
    #[cfg(feature = "rivals-rt")]
    for subject in ["tokio", "tokio-multi", "smol", "monoio-epoll", "compio-poll"] {
        assert_eq!(rows.iter().filter(|row| row["subject"] == subject).count(), 4, "{subject}");
    }
    let report = folder.path().join("superpoll-report");
    for plot in ["ring.svg", "ring-pipes.svg", "ring-in-flight.svg"] {
        assert!(std::fs::read_to_string(report.join(plot)).unwrap().starts_with("<svg"), "{plot}");
    }
    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("<h2 id=\"ring\">") && page.matches("<svg").count() == 3);
}

#[test]
fn a_ring_too_large_for_select_goes_on_without_it_or_ends_with_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = ["ring", "--total", "600", "--no-report"];
    let both = ["--subjects", "superpoll-rt-select,superpoll-rt-poll", "--json", "x"];
    let output = run(folder.path(), &[&fixed[..], &both, &SMALL].concat());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    assert!(errors.contains("superpoll-rt-select takes no part"), "{errors}");
    assert!(errors.contains("too large for back-end select"), "{errors}");
    let record = json(&folder.path().join("x"));
    let rows = record["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["subject"] == "superpoll-rt-poll") && rows.len() == 1);
    assert_eq!(record["parameters"]["took_no_part"][0]["subject"], "superpoll-rt-select");

    let line = refused(&[&fixed[..], &["--subjects", "superpoll-rt-select"], &SMALL].concat());
    assert!(line.contains("too large for back-end select"), "{line}");
}
