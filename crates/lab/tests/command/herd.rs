//! `superpoll-lab herd`.

use serde_json::Value;

use crate::record::{Field, check_record, json, positive};
use crate::start::{SMALL, lab, limited, succeed};

#[test]
fn lab_herd_counts_woken_and_accepting_waiters() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["herd", "--processes", "1,4", "--connects", "6"];
    arguments.extend(["--dups", "3", "--json", "herd.json"]);
    // Not `--quick`, which leaves points out after a minute. A busy machine may need longer.
    arguments.extend(["--seconds", "0.1", "--repetitions", "1"]);
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
    check_record(&record, "herd-dups", &fields);
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
    assert!(page.contains("<h2 id=\"herd-dups\">") && page.matches("<svg").count() == 2);
}

#[test]
fn lab_herd_has_blocking_waiters_and_engines_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["herd", "--processes", "2", "--connects", "8", "--no-report"];
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
        // Jain's index of two processes that have accepted eight together.
        let most = row["accepts_max"].as_f64().unwrap();
        let jain = 64.0 / (2.0 * (most * most + (8.0 - most) * (8.0 - most)));
        assert!((row["jain"].as_f64().unwrap() - jain).abs() < 1e-9, "{row}");
    }
}

#[test]
fn lab_herd_makes_do_with_the_processes_that_it_may_have_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        "herd --processes 2,300 --connects 4 --subjects epoll,accept --no-report --json x";
    let output = limited(folder.path(), 200, &format!("{arguments} {}", SMALL.join(" ")));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(
        errors.contains("asked for 300 processes, had ") && errors.contains("ulimit -u"),
        "{errors}"
    );
    let record = json(&folder.path().join("x"));
    let rows = record["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    let sizes: Vec<u64> = rows.iter().map(|row| row["processes"].as_u64().unwrap()).collect();
    assert!(sizes[0] == 2 && (3..200).contains(&sizes[2]), "{sizes:?}");
    assert!(record["parameters"]["notes"][0].as_str().unwrap().contains("asked for 300"));
}

#[test]
fn no_waiter_outlives_lab_herd_when_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut herd = lab()
        .current_dir(folder.path())
        .args(["herd", "--processes", "40", "--connects", "100000000"])
        .args(["--subjects", "accept", "--no-report", "--repetitions", "1"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let waiters = until(|| {
        let waiters = children_of(herd.id());
        (waiters.len() == 40).then_some(waiters)
    });
    herd.kill().unwrap();
    herd.wait().unwrap();
    // This test does not decide which process reaps them: a process that has ended may still have
    // its number.
    let ended = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| {
            let state = stat.rsplit(')').next().unwrap().trim_start().chars().next();
            matches!(state, Some('Z' | 'X')) || !stat.contains("superpoll")
        })
    };
    until(|| waiters.iter().all(ended).then_some(()));
}

/// Waits for up to half a minute until `come` returns a value.
fn until<T>(mut come: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3000 {
        if let Some(it) = come() {
            return it;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it did not come");
}

fn children_of(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let behind = stat.rsplit(')').next().unwrap_or_default().to_owned();
        behind.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    processes.filter(is_child).collect()
}
