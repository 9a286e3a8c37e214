//! `superpoll-lab all`: the files it leaves when it is interrupted, when it goes on, and when an
//! experiment cannot be run.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::program;
use crate::record::{check_record, json, positive};
use crate::start::{lab, refused, run, succeed};

const CHOSEN: [&str; 4] = ["all", "--quick", "--only", "wake,registrations"];

fn states(folder: &Path) -> Vec<String> {
    let journal = std::fs::read_to_string(folder.join("superpoll-report/all.json"));
    let Ok(journal) = journal else { return Vec::new() };
    // The file is moved into place, so there is never half of it.
    let journal: Value = serde_json::from_str(&journal).unwrap();
    let state = |step: &Value| step["state"].as_str().unwrap().to_owned();
    journal["steps"].as_array().unwrap().iter().map(state).collect()
}

/// Runs two experiments, and interrupts them in these states.
fn interrupt(folder: &Path, arguments: &[&str], at: [&str; 2]) {
    let mut child = lab()
        .current_dir(folder)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(300);
    while states(folder) != at {
        assert!(Instant::now() < end, "{:?}", states(folder));
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it was interrupted");
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let line = errors.trim_end().lines().last().unwrap();
    assert_eq!(
        line,
        "superpoll-lab: interrupted with 1 of 2 experiments done; the same command goes on"
    );
}

#[test]
fn an_interrupted_run_leaves_a_report_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    interrupt(folder.path(), &CHOSEN, ["done", "pending"]);
    let report = folder.path().join("superpoll-report");
    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("id=\"wake\"") && !page.contains("id=\"registrations\""));
    assert!(
        page.contains("1 of 2 experiments are done") && page.contains("registrations: not yet")
    );
    assert!(json(&report.join("report.json"))["records"]["wake"].is_object());

    let written = std::fs::metadata(report.join("wake.json")).unwrap().modified().unwrap();
    let output = run(folder.path(), &CHOSEN);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("going on with the run") && errors.contains("1 of 2"), "{errors}");
    assert_eq!(states(folder.path()), ["done", "done"]);
    assert_eq!(
        std::fs::metadata(report.join("wake.json")).unwrap().modified().unwrap(),
        written,
        "what was done was measured again"
    );
    let document = json(&report.join("report.json"));
    check_record(&document["records"]["wake"], "wake", &[("wake_ns_p50", positive)]);
    check_record(&document["records"]["registrations"], "registrations", &[]);
    let claims = document["claims"].as_array().unwrap();
    let judged = |claim: &&Value| claim["verdict"] != "not-measured";
    assert!(claims.iter().filter(judged).count() >= 3, "{claims:?}");
    for claim in claims.iter().filter(judged) {
        let from = claim["experiment"].as_str().unwrap();
        assert!(["wake", "registrations"].contains(&from), "{claim}");
    }
    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    for claim in claims {
        assert!(page.contains(&html(claim["claim"].as_str().unwrap())), "{claim}");
    }
    for outside in ["http://", "https://", "<script", "src="] {
        // The name of a vocabulary is not an address that a browser requests.
        let page = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!page.contains(outside), "{outside}");
    }
}

fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[test]
fn an_experiment_that_cannot_be_run_costs_its_own_part_only() {
    let folder = tempfile::tempdir().unwrap();
    // Too few descriptors for a ring of a thousand pipes, not for timers.
    let command = format!(
        "ulimit -n 100 && exec {} all --quick --only ring,timers",
        env!("CARGO_BIN_EXE_superpoll-lab")
    );
    let output = program("sh").current_dir(folder.path()).args(["-c", &command]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("ring failed: ") && errors.contains("descriptors"), "{errors}");
    assert_eq!(states(folder.path()), ["failed", "done"]);
    let report = folder.path().join("superpoll-report");
    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("ring: failed: ") && page.contains("id=\"timers\""));
    let document = json(&report.join("report.json"));
    assert!(document["records"]["timers"].is_object() && document["records"]["ring"].is_null());
    // The same again runs what has failed, and has not ended before that.
    interrupt(folder.path(), &["all", "--quick", "--only", "ring,timers"], ["pending", "done"]);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let line = refused(&["all", "--only", "kqueue"]);
    assert!(line.contains("\"kqueue\"") && line.contains("registrations"), "{line}");
    let line = refused(&["all", "--limit", "0"]);
    assert!(line.contains("--limit 0"), "{line}");
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["all", "--quick", "--only", "timers", "--limit", "1"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("timers failed: it was ended after 1 s"), "{errors}");
    assert!(errors.trim_end().lines().last().unwrap().contains("no experiment gave a result"));
    let page = folder.path().join("superpoll-report/index.html");
    assert!(std::fs::read_to_string(page).unwrap().contains("ended after 1 s"));
    succeed(folder.path(), &["all", "--help"]);
}
