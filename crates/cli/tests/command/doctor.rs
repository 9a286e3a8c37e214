//! `doctor`.

use std::path::Path;

use serde_json::Value;
use superpoll::diagnostics::{Kind, Load};

use crate::start::{succeed, superpoll};

#[test]
fn doctor_tries_every_back_end_and_prints_costs() {
    let folder = tempfile::tempdir().unwrap();
    let text = succeed(folder.path(), &["doctor"]);
    for part in ["select", "poll", "epoll", "adaptive", "works", "break-even", "descriptors", "tcp"]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let document: Value =
        serde_json::from_str(&succeed(folder.path(), &["doctor", "--json"])).unwrap();
    let works = document["backends"].as_array().unwrap();
    assert_eq!(works.len(), 5);
    // The last is io_uring, which may be refused.
    assert!(works[..4].iter().all(|backend| backend["works"] == true));
    let uring = works.last().unwrap();
    assert!(uring["name"] == "uring" && (uring["works"] == true || uring["reason"].is_string()));
    assert!(document["costs_ns"]["pipe"]["scan"].as_f64().unwrap() > 0.0);
    assert!(document["limits"]["descriptors_hard"].as_u64().unwrap() > 0);
}

/// Returns the section of doctor's document on `auto`, with estimates where io_uring works. A
/// measurement that is disturbed each time it is made in a process counts as none; that does not
/// happen in process after process.
fn auto_measured(folder: &Path) -> Value {
    for _ in 0..20 {
        let document: Value =
            serde_json::from_str(&succeed(folder, &["doctor", "--json"])).unwrap();
        let auto = &document["auto"];
        if auto["refusal"].is_null() {
            assert_eq!(document["backends"][4]["works"], true, "{document}");
            return auto.clone();
        }
        assert!(auto["backend"] == "adaptive" && auto["uring"] == false, "{auto}");
        assert!(auto["refusal"].as_str().is_some_and(|said| said.contains("io_uring")), "{auto}");
        assert!(auto["estimates"].as_array().is_some_and(Vec::is_empty), "{auto}");
        assert!(auto["mean_ratio"].is_null() && auto["ring_costs_ns"].is_null(), "{auto}");
        if document["backends"][4]["works"] == false {
            return auto.clone();
        }
    }
    panic!("io_uring works here and could not be measured");
}

#[test]
fn doctor_explains_what_auto_is_here() {
    let folder = tempfile::tempdir().unwrap();
    let auto = auto_measured(folder.path());
    let estimates = auto["estimates"].as_array().unwrap();
    if estimates.is_empty() {
        return;
    }
    assert_eq!(estimates.len(), Kind::MEASURED.len() * Load::ALL.len());
    let said = |value: &Value| value.as_f64().unwrap();
    let close = |left: f64, right: f64| (left / right - 1.0).abs() < 1e-4;
    let (mut sum, mut worst) = (0.0, 0.0f64);
    for one in estimates {
        let ratio = said(&one["uring_ns"]) / said(&one["adaptive_ns"]);
        assert!(close(ratio, said(&one["ratio"])), "{one}");
        sum += ratio.ln();
        worst = worst.max(ratio);
    }
    let (mean, said_worst) = (said(&auto["mean_ratio"]), said(&auto["worst"]["ratio"]));
    assert!(close((sum / estimates.len() as f64).exp(), mean), "{auto}");
    assert!(close(worst, said_worst), "{auto}");
    // The decision follows from the printed figures.
    let pays = mean <= said(&auto["mean_ratio_at_most"])
        && said_worst <= said(&auto["worst_ratio_at_most"]);
    assert_eq!(auto["backend"], if pays { "uring" } else { "adaptive" }, "{auto}");
    assert_eq!(auto["uring"], pays, "{auto}");
    assert!(said(&auto["ring_costs_ns"]["tcp"]["arm"]) > 1.0);
}

#[test]
fn doctor_says_in_words_what_auto_is_here() {
    let folder = tempfile::tempdir().unwrap();
    let text = succeed(folder.path(), &["doctor"]);
    let auto = text.lines().find_map(|line| line.strip_prefix("auto is "));
    let (name, why) = auto.and_then(|line| line.split_once(" here: ")).expect(&text);
    let parts: &[&str] = if why.starts_with("events through io_uring cost ") {
        assert!(["adaptive", "uring"].contains(&name), "{text}");
        &["of those through poll and epoll", "at worst", "costs of io_uring", "cancel"]
    } else {
        // io_uring is refused, or was not measured.
        assert_eq!(name, "adaptive", "{text}");
        &["io_uring"]
    };
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
}

#[test]
fn an_unknown_back_end_in_the_environment_is_named() {
    let output =
        superpoll().env("SUPERPOLL_BACKEND", "nonsense").args(["doctor"]).output().unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    assert!(errors.contains("\"nonsense\"") && errors.contains("select, poll, epoll"), "{errors}");
}
