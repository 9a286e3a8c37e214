//! `superpoll-lab threads`.

use crate::record::{Field, check_record, json, positive};
use crate::start::{SMALL, limited, refused, succeed};

#[test]
fn lab_threads_sets_threads_against_loops_on_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["threads", "--total", "24", "--active", "1,24"];
    arguments.extend(["--kind", "all", "--json", "threads.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    for part in
        ["unix 24 spread, one processor", "time on the clock", "takes less than the best loop"]
    {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let record = json(&folder.path().join("threads.json"));
    let fields: [Field; 8] = [
        ("kind", |v| v == "pipe" || v == "unix" || v == "tcp"),
        ("total", |v| v == 24),
        ("active", |v| v == 1 || v == 24),
        ("processors", |v| v == "one" || v == "all"),
        ("rounds", |v| v.as_u64().is_some_and(|rounds| rounds >= 12)),
        ("clock_ns_per_round", positive),
        ("cost_ns_per_event", positive),
        ("cost_ratio", |v| v["median"].is_number()),
    ];
    check_record(&record, "threads", &fields);
    let rows = record["rows"].as_array().unwrap();
    let has_several = record["environment"]["cores"].as_u64().unwrap() > 1;
    let places = if has_several { 2 } else { 1 };
    let loops = ["raw-poll", "raw-epoll-lt", "superpoll", "superpoll-rt"];
    for subject in ["thread-per-descriptor"].into_iter().chain(loops) {
        let own: Vec<_> = rows.iter().filter(|row| row["subject"] == subject).collect();
        assert_eq!(own.len(), 3 * 2 * places, "{subject}");
        let threads = if subject == "thread-per-descriptor" { 25 } else { 1 };
        assert!(own.iter().all(|row| row["threads"] == threads), "{subject}");
    }
    let pool = rows.iter().filter(|row| row["subject"] == "pool-epoll");
    assert_eq!(pool.clone().count(), if has_several { 6 } else { 0 });
    assert!(pool.clone().all(|row| row["threads"].as_u64() > Some(1)));
    // A thread sleeps before each of its bytes, whatever the time of day. On one processor, a loop
    // that finds all 24 at once does not.
    let sleeps = |subject: &str| {
        let row = rows.iter().find(|row| {
            row["subject"] == subject && row["active"] == 24 && row["processors"] == "one"
        });
        row.unwrap()["voluntary_switches_per_event"].as_f64().unwrap()
    };
    assert!(sleeps("thread-per-descriptor") > sleeps("raw-epoll-lt"));
    let report = folder.path().join("superpoll-report");
    assert!(report.join("threads.csv").exists() && report.join("threads.json").exists());
    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    // One plot of ratios, and two for each kind and place.
    assert_eq!(page.matches("<svg").count(), 1 + 2 * 3 * places);
}

#[test]
fn lab_threads_makes_do_with_the_threads_that_it_may_have_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = "threads --total 300 --active 1 --subjects thread-per-descriptor,raw-poll \
                     --no-report --json x";
    let output = limited(folder.path(), 200, &format!("{arguments} {}", SMALL.join(" ")));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("asked for 300 threads") && errors.contains("ulimit -u"), "{errors}");
    let record = json(&folder.path().join("x"));
    let rows = record["rows"].as_array().unwrap();
    let total = rows[0]["total"].as_u64().unwrap();
    assert!((1..200).contains(&total), "{total}");
    assert!(rows.iter().all(|row| row["total"] == total));
    assert!(record["parameters"]["notes"][0].as_str().unwrap().contains("asked for 300"));
}

#[test]
fn lab_threads_refuses_invalid_options() {
    let line = refused(&["threads", "--subjects", "fibres"]);
    assert!(line.contains("\"fibres\"") && line.contains("thread-per-descriptor"), "{line}");
    let line = refused(&["threads", "--total", "10", "--active", "11"]);
    assert!(line.contains("--active 11"), "{line}");
    let line = refused(&["threads", "--processors", "two"]);
    assert!(line.contains("one, all"), "{line}");
}
