//! `superpoll-lab registrations`.

use serde_json::Value;

use crate::record::{Field, check_record, json, positive};
use crate::start::{SMALL, succeed};

#[test]
fn lab_registrations_checks_its_registrations_and_answers_its_question() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["registrations", "--total", "48"];
    arguments.extend(["--json", "registrations.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("unix, ns of processor time") && text.contains("/ epoll_ctl"), "{text}");
    let record = json(&folder.path().join("registrations.json"));
    let fields: [Field; 10] = [
        ("kind", |v| v == "pipe" || v == "unix" || v == "tcp"),
        ("batch", |v| v == 1 || v == 4 || v == 16),
        ("subject", Value::is_string),
        ("total", |v| v == 48),
        ("register_ns_median", positive),
        ("modify_ns_median", positive),
        ("deregister_ns_median", positive),
        ("wall_ns_median", positive),
        ("rounds", |v| v == 1),
        ("ratio", |v| positive(&v["median"]) && positive(&v["high"])),
    ];
    check_record(&record, "registrations", &fields);
    let rows = record["rows"].as_array().unwrap();
    let notes = record["parameters"]["notes"].to_string();
    let polls = ["ring-epoll-ctl", "ring-poll", "ring-poll-remove"];
    let rings = polls.into_iter().chain(["uring", "uring-lt", "uring-registrar"]);
    for subject in ["raw-epoll", "epoll", "adaptive"].into_iter().chain(rings) {
        let own: Vec<_> = rows.iter().filter(|row| row["subject"] == subject).collect();
        assert!(own.len() == 9 || notes.contains(subject), "{subject}: {notes}");
        // A single change is a call; a ring takes a batch at a time.
        for row in own {
            let calls = row["calls"].as_f64().unwrap();
            let batches = subject.starts_with("ring-") && row["batch"] == 16;
            assert!(if batches { calls < 0.3 } else { calls > 1.0 || row["batch"] != 1 }, "{row}");
        }
    }
    let asked = text.contains("Several descriptors per call?");
    assert_eq!(asked, rows.iter().any(|row| row["subject"] == "ring-epoll-ctl"));
    assert_eq!(text.contains("register and deregister with uring"), asked);
    let report = folder.path().join("superpoll-report");
    let csv = std::fs::read_to_string(report.join("registrations.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + rows.len());
    for plot in ["registrations-pipe.svg", "registrations-tcp.svg"] {
        assert!(std::fs::read_to_string(report.join(plot)).unwrap().starts_with("<svg"), "{plot}");
    }
    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("<h2 id=\"registrations\">") && page.matches("<svg").count() == 3);
}
