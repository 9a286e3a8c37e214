//! `superpoll-lab atr`: the sweep, and the features of all experiments, shown on it.

use serde_json::Value;

use crate::record::{FIGURES, Field, check_record, json};
use crate::start::{SMALL, succeed};

#[test]
fn lab_atr_and_mix_measure_other_cold_sets_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let subjects = ["--subjects", "floor,epoll-lt,adaptive,adaptive-signals,adaptive-aio"];
    for (name, load) in [
        ("atr", ["--total", "20", "--active", "1,20"]),
        ("mix", ["--size", "2/18", "--load", "mixed"]),
    ] {
        let kind = [name, "--kind", "tcp"];
        let arguments = [&kind[..], &load, &subjects, &SMALL].concat();
        let text = succeed(folder.path(), &arguments);
        for subject in ["adaptive-signals", "adaptive-aio"] {
            assert!(text.contains(subject), "{subject} is missing in {text}");
        }
    }
}

#[test]
fn lab_atr_writes_every_kind_of_result() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["atr", "--total", "20", "--kind", "all", "--placement", "all"];
    arguments.extend(["--active", "1,10,20", "--json", "out.json", "--report", "here"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    let parts = ["pipe 20 end", "tcp 20 front", "poll becomes cheaper than epoll-lt", "targets"];
    for part in parts {
        assert!(text.contains(part), "{part} is missing in {text}");
    }

    let record = json(&folder.path().join("out.json"));
    let mut fields: Vec<Field> = vec![
        ("kind", |v| ["pipe", "unix", "tcp"].contains(&v.as_str().unwrap())),
        ("placement", |v| ["end", "spread", "front"].contains(&v.as_str().unwrap())),
        ("total", |v| v == 20),
        ("active", |v| [1, 10, 20].contains(&v.as_u64().unwrap())),
        ("subject", Value::is_string),
    ];
    fields.extend(FIGURES);
    check_record(&record, "atr", &fields);
    assert_eq!(record["parameters"]["bytes_verified"], true);
    let rows = record["rows"].as_array().unwrap();
    let subjects = ["floor", "raw-poll", "select", "poll", "epoll-lt", "epoll-et", "adaptive"];
    for subject in subjects.into_iter().chain(["mio", "polling"]) {
        let own = rows.iter().filter(|row| row["subject"] == subject).count();
        assert_eq!(own, 27, "points of {subject}");
    }
    let adaptive = rows.iter().find(|row| row["subject"] == "adaptive").unwrap();
    for field in ["loop_ratio", "cost_ratio", "waits_per_round", "memory_bytes"] {
        assert!(adaptive[field].is_number(), "{field}");
    }
    assert!(adaptive["allocations_per_round"].is_number(), "the command counts allocations");

    let here = folder.path().join("here");
    assert_eq!(json(&here.join("atr.json"))["rows"], record["rows"]);
    let csv = std::fs::read_to_string(here.join("atr.csv")).unwrap();
    assert_eq!(csv.lines().count(), rows.len() + 1);
    assert!(csv.starts_with("kind,placement,total,active,subject,ns_per_round_median,"));
    for plot in ["atr-pipe-20-end.svg", "atr-tcp-20-front-subjects.svg"] {
        assert!(std::fs::read_to_string(here.join(plot)).unwrap().starts_with("<svg"), "{plot}");
    }
    let page = std::fs::read_to_string(here.join("index.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 18);
    assert!(!page.contains("<script") && !page.contains("src="));
    let machine_path = folder.path().to_str().unwrap();
    assert!(!page.contains(machine_path) && !page.contains(env!("CARGO_MANIFEST_DIR")));
}

#[test]
fn a_second_thread_is_there_if_asked_for() {
    for (arguments, threads) in [(&[][..], 1), (&["--second-thread"][..], 2)] {
        let folder = tempfile::tempdir().unwrap();
        let fixed = ["atr", "--total", "4", "--active", "1", "--json", "x"];
        succeed(folder.path(), &[&fixed[..], &SMALL, arguments].concat());
        let record = json(&folder.path().join("x"));
        assert_eq!(record["environment"]["threads"], threads);
    }
}

#[test]
fn random_totals_come_from_the_seed() {
    let totals = |seed: &str| {
        let folder = tempfile::tempdir().unwrap();
        let fixed = ["atr", "--total", "random", "--active", "1", "--subjects", "poll"];
        let rest = ["--no-report", "--json", "x", "--seed", seed];
        succeed(folder.path(), &[&fixed[..], &rest, &SMALL].concat());
        json(&folder.path().join("x"))["parameters"]["totals"].clone()
    };
    let first = totals("1");
    assert!(first.as_array().unwrap().len() > 1);
    assert_eq!(first, totals("1"));
    assert_ne!(first, totals("2"));
}
