//! `superpoll-lab models`.

use serde_json::Value;

use crate::program::program;
use crate::record::{Field, check_record, json, positive};
use crate::start::{SMALL, refused, run, succeed};

#[test]
fn lab_models_measures_four_models_and_prints_the_claims_about_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["models", "--total", "30", "--active", "3,30"];
    arguments.extend(["--kind", "all", "--json", "models.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    for part in [
        "unix 30 end",
        "with the cost to the writers",
        "cpu while quiet",
        "Signals for each descriptor",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let record = json(&folder.path().join("models.json"));
    let fields: [Field; 7] = [
        ("kind", |v| v == "pipe" || v == "unix" || v == "tcp"),
        ("total", |v| v == 30),
        ("active", |v| v == 3 || v == 30),
        ("model", Value::is_string),
        ("ns_per_round_median", positive),
        ("cost_ns_per_round", positive),
        ("cost_ratio", positive),
    ];
    check_record(&record, "models", &fields);
    let rows = record["rows"].as_array().unwrap();
    let models = [
        ("none", "floor"),
        ("try", "spin"),
        ("signals", "sigio-plain"),
        ("signals", "sigio-wait"),
        ("signals", "sigio-fd"),
        ("ask", "raw-select"),
        ("ask", "raw-poll"),
        ("ask", "raw-epoll-lt"),
        ("ask", "raw-epoll-et"),
    ];
    for (model, subject) in models {
        let own: Vec<_> = rows.iter().filter(|row| row["subject"] == subject).collect();
        assert_eq!(own.len(), 6, "{subject}");
        assert!(own.iter().all(|row| row["model"] == model), "{subject}");
        // The floor neither waits nor counts.
        let counted = own.iter().all(|row| row["calls_per_event"].is_number());
        assert_eq!(counted, subject != "floor", "{subject}");
    }
    // Subjects that this system refuses are named with the reason.
    for subject in ["libkqueue", "uring-poll", "uring-read", "aio-poll"] {
        let notes = record["parameters"]["notes"].to_string();
        let measured = rows.iter().filter(|row| row["subject"] == subject).count();
        assert!(measured == 6 || notes.contains(subject), "{subject}: {notes}");
    }
    let page = std::fs::read_to_string(folder.path().join("superpoll-report/index.html")).unwrap();
    assert!(page.contains("<h2 id=\"models\">") && page.matches("<svg").count() == 6);
    assert!(folder.path().join("superpoll-report/models.csv").exists());
}

#[test]
fn lab_models_makes_up_for_a_full_queue_of_signals() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!(
        "ulimit -S -i 5 && exec {} models --total 40 --active 1,40 \
         --subjects sigio-wait,sigio-fd --no-report --json x {}",
        env!("CARGO_BIN_EXE_superpoll-lab"),
        SMALL.join(" ")
    );
    let output =
        program("bash").current_dir(folder.path()).args(["-c", &command]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record = json(&folder.path().join("x"));
    assert_eq!(record["parameters"]["signal_queue"], 5);
    let rows = record["rows"].as_array().unwrap();
    for subject in ["sigio-wait", "sigio-fd"] {
        let row = rows.iter().find(|row| row["subject"] == subject && row["active"] == 40).unwrap();
        // Forty signals never fit into five places.
        assert!(row["overflows"].as_u64() >= row["rounds"].as_u64(), "{row}");
    }
}

#[test]
fn lab_models_leaves_select_out_beyond_its_last_descriptor_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["models", "--total", "1100", "--active", "1"];
    arguments.extend(["--subjects", "raw-select,raw-epoll-lt", "--no-report", "--json", "x"]);
    arguments.extend(SMALL);
    let output = run(folder.path(), &arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    for part in ["raw-select is left out", "1023", "smaller --total"] {
        assert!(errors.contains(part), "{part:?} in {errors}");
    }
    let record = json(&folder.path().join("x"));
    assert!(record["rows"].as_array().unwrap().iter().all(|row| row["subject"] != "raw-select"));
    assert!(record["parameters"]["notes"][0].as_str().unwrap().contains("1023"));
    let line = refused(&["models", "--total", "1100", "--subjects", "raw-select"]);
    assert!(line.contains("nothing is left to measure") && line.contains("1023"), "{line}");
}
