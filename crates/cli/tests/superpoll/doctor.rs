//! `superpoll doctor`.

use std::process::Output;

use serde_json::Value;
use superpoll::diagnostics::{Kind, Load};

use crate::superpoll;

/// Runs a command that must succeed, and returns its output.
fn succeed(arguments: &[&str]) -> String {
    let output = superpoll().args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn doctor_tries_every_back_end_and_prints_costs() {
    let text = succeed(&["doctor"]);
    for part in ["select", "poll", "epoll", "adaptive", "works", "break-even", "descriptors", "tcp"]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let document: Value = serde_json::from_str(&succeed(&["doctor", "--json"])).unwrap();
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
fn auto_measured() -> Value {
    for _ in 0..20 {
        let document: Value = serde_json::from_str(&succeed(&["doctor", "--json"])).unwrap();
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
fn doctor_explains_the_choice_of_auto_in_figures() {
    let auto = auto_measured();
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
fn doctor_explains_the_choice_of_auto_in_words() {
    let text = succeed(&["doctor"]);
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

#[test]
fn the_policy_of_the_environment_is_told_and_a_wrong_one_is_named() {
    let run = |policy: &str| {
        superpoll().env("SUPERPOLL_POLICY", policy).args(["doctor"]).output().unwrap()
    };
    let text = String::from_utf8(run("media-server").stdout).unwrap();
    assert!(text.contains("\nSUPERPOLL_POLICY=media-server: "), "{text}");
    let output = run("hot_atr=0.9,cold_atr=0.2");
    assert!(!output.status.success());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    assert!(errors.contains("hot_atr is at most cold_atr"), "{errors}");
}

/// Runs the command where io_uring is refused. The filter stays for the life of a thread, and holds
/// for the processes that it starts.
fn run_refused(error: i32, arguments: &[&str], backend: &str) -> Output {
    let run = || {
        superpoll_conformance::sys::refuse_io_uring(error).unwrap();
        let mut command = superpoll();
        command.args(arguments).env("SUPERPOLL_BACKEND", backend);
        command.output().unwrap()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

const REFUSALS: [(i32, &str); 3] = [
    (libc::EPERM, "kernel.io_uring_disabled"),
    (libc::ENOSYS, "Linux 5.19"),
    (libc::ENOMEM, "ulimit -l"),
];

#[test]
fn doctor_names_the_cause_and_the_remedy_where_io_uring_is_refused() {
    for (error, way) in REFUSALS {
        for backend in ["", "auto", "adaptive"] {
            let output = run_refused(error, &["doctor"], backend);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8(output.stdout).unwrap();
            let auto = text.lines().find(|line| line.starts_with("auto is adaptive here: "));
            assert!(auto.is_some_and(|line| line.contains(way)), "{text}");
            assert!(
                text.contains("uring      does not work: ") && !text.contains("costs of io_uring")
            );
            let chosen = text.contains("use adaptive");
            assert_eq!(chosen, !backend.is_empty(), "{text}");
        }
        let output = run_refused(error, &["doctor", "--json"], "auto");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let auto = &document["auto"];
        assert_eq!((&auto["backend"], &auto["uring"]), (&"adaptive".into(), &false.into()));
        assert!(auto["refusal"].as_str().is_some_and(|said| said.contains(way)), "{auto}");
        assert!(auto["mean_ratio"].is_null() && auto["ring_costs_ns"].is_null(), "{auto}");
        assert_eq!(document["backends"][4]["works"], false);
    }
}

#[test]
fn a_full_disk_under_the_output_ends_doctor_in_one_line() {
    for arguments in [&["doctor"][..], &["doctor", "--json"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = superpoll().args(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
        assert!(errors.contains("writing to the standard output: No space left"), "{errors}");
    }
}
