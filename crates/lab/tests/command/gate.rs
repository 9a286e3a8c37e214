//! `superpoll-lab gate`, with this debug build, which the gate refuses unless told to take any
//! build.

use std::path::Path;
use std::process::Output;

use crate::record::json;
use crate::start::{refused, run, succeed};

/// A path that is quick to count.
const ONE: [&str; 6] = ["gate", "--any-build", "--runs", "1", "--only", "interest-applied"];

fn gate(folder: &Path, more: &[&str]) -> Output {
    run(folder, &[&ONE[..], more].concat())
}

/// Returns the message of a failed run, which must be one line.
fn failure(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    errors
}

#[test]
fn lab_gate_fails_on_a_regression_and_passes_after_an_update() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = folder.join("figures.toml");
    let output = gate(folder, &["--update", "figures.toml"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("cannot write the figures") {
        eprintln!("skipped: valgrind and strace are needed: {errors}");
        return;
    }
    assert!(output.status.success(), "{errors}");
    let written = String::from_utf8_lossy(&output.stdout);
    assert!(written.contains("written to figures.toml") && written.contains("new"), "{written}");
    let figures = std::fs::read_to_string(&file).unwrap();
    assert!(figures.contains("[paths.interest-applied]") && !figures.contains("[paths.wake]"));
    assert!(
        figures.contains("calls = { epoll_ctl = 1 }\ncounted = { epoll_ctl = 1 }"),
        "{figures}"
    );

    let held = ["--stored", "figures.toml", "--json", "gate.json"];
    let text = succeed(folder, &[&ONE[..], &held].concat());
    assert_eq!(text.matches(" ok").count(), 1, "{text}");
    let record = json(&folder.join("gate.json"));
    assert_eq!(record["experiment"], "gate");
    let rows = record["rows"].as_array().unwrap();
    let of = |row: &serde_json::Value| row["now"]["instructions"].as_f64().unwrap();
    assert!(rows.len() == 1 && rows.iter().all(|row| of(row) > 100.0), "{rows:?}");

    // As if an operation had once taken half the instructions, and one call less.
    let count =
        |line: &str| line.strip_prefix("instructions = ").map(|it| it.parse::<f64>().unwrap());
    let half = |line: &str| match count(line) {
        Some(count) => format!("instructions = {:.1}\n", count / 2.0),
        None => line.replace("calls = { epoll_ctl = 1 }", "calls = {}") + "\n",
    };
    let doctored: String = figures.lines().map(half).collect();
    std::fs::write(&file, &doctored).unwrap();
    let error = failure(&gate(folder, &["--stored", "figures.toml"]));
    for part in [
        "superpoll-lab: more expensive than stored: interest-applied (",
        " instructions (+",
        "interest-applied: 1 instead of 0 epoll_ctl",
        "superpoll-lab gate --update",
    ] {
        assert!(error.contains(part), "{part:?} is missing in {error}");
    }
    succeed(folder, &[&ONE[..], &["--update", "figures.toml"]].concat());
    let again = std::fs::read_to_string(&file).unwrap();
    assert_eq!(again.matches("calls = {").count(), figures.matches("calls = {").count());

    // As if it had taken twice as much: the gate reports that, and does not fail.
    let twice = |line: &str| match count(line) {
        Some(count) => format!("instructions = {:.1}\n", count * 2.0),
        None => line.to_owned() + "\n",
    };
    std::fs::write(&file, again.lines().map(twice).collect::<String>()).unwrap();
    let text = succeed(folder, &[&ONE[..], &["--stored", "figures.toml"]].concat());
    assert!(
        text.contains("cheaper than stored: interest-applied") && text.contains("--update"),
        "{text}"
    );
}

#[test]
fn lab_gate_refuses_incomparable_builds() {
    if cfg!(debug_assertions) {
        assert!(refused(&["gate"]).contains("--config .cargo/gate.toml"));
        // The built-in figures are those of the build that .cargo/gate.toml makes.
        assert!(refused(&["gate", "--any-build"]).contains("this is a debug build"));
    }
    for (arguments, about) in [
        (&["--only", "wait-kqueue"][..], "\"wait-kqueue\""),
        (&["--runs", "0"], "--runs 0"),
        (&["--any-build", "--stored", "absent.toml"], "reading the stored figures absent.toml"),
        (&["--any-build", "--update", "no/where.toml"], "root of a checkout"),
        (&["--update", "a", "--stored", "b"], "--stored"),
    ] {
        let line = refused(&[&["gate"], arguments].concat());
        assert!(line.contains(about), "{line}");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bad.toml"), "[made]\nrustc = 3\n").unwrap();
    let output = gate(folder.path(), &["--stored", "bad.toml"]);
    let error = failure(&output);
    assert!(error.contains("bad.toml, line 2"), "{error}");
}

#[test]
fn lab_gate_lists_its_paths_and_their_stored_figures() {
    let folder = tempfile::tempdir().unwrap();
    let text = succeed(folder.path(), &["gate", "--list"]);
    for name in ["wait-select", "wait-uring", "adaptive-moves", "hop-peers", "http-proxy", "relay"]
    {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name} is missing in {text}");
    }
}
