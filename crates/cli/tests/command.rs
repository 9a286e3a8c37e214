//! The built command, from the outside: what it writes, what it refuses, and how it says so.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// A field of every row, and what it must be.
type Field = (&'static str, fn(&Value) -> bool);

fn superpoll() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_superpoll"));
    command.env_remove("SUPERPOLL_BACKEND");
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    superpoll().current_dir(folder).args(arguments).output().unwrap()
}

fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs what must be refused, and returns the one line that says why.
fn refused(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), arguments);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{arguments:?} was not refused");
    assert!(output.stdout.is_empty(), "{arguments:?} printed results");
    assert_eq!(errors.trim_end().lines().count(), 1, "{arguments:?}: {errors}");
    assert!(errors.starts_with("superpoll: "), "{errors}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{arguments:?} left files");
    errors
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The fields that every record has, of every experiment.
fn check_record(record: &Value, experiment: &str, fields: &[Field]) {
    let names: Vec<&str> = record.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["schema", "experiment", "environment", "parameters", "rows"]);
    assert_eq!(record["experiment"], experiment);
    assert!(record["schema"].is_u64() && record["parameters"].is_object());
    assert!(record["environment"]["kernel"].as_str().unwrap().contains('.'));
    let rows = record["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        for (field, fits) in fields {
            assert!(fits(&row[field]), "{field} of {row}");
        }
    }
}

const FIGURES: [Field; 4] = [
    ("ns_per_round_min", |v| v.as_f64().is_some_and(|ns| ns > 0.0)),
    ("ns_per_round_median", |v| v.as_f64().is_some_and(|ns| ns > 0.0)),
    ("write_ns_per_round_min", |v| v.as_f64().is_some_and(|ns| ns > 0.0)),
    ("rounds", |v| v.as_u64().is_some_and(|rounds| rounds >= 1)),
];

const SMALL: [&str; 5] = ["--quick", "--seconds", "0.1", "--repetitions", "1"];

#[test]
fn lab_atr_writes_every_kind_of_result() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["lab", "atr", "--total", "20", "--kind", "all", "--placement", "all"];
    arguments.extend(["--active", "1,10,20", "--json", "out.json", "--report", "here", "--no-mix"]);
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
    assert!(csv.starts_with("kind,placement,total,active,subject,ns_per_round_min,"));
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
fn lab_mix_writes_its_record_and_the_report_keeps_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["lab", "atr", "--total", "8", "--active", "2", "--no-mix"];
    arguments.extend(SMALL);
    succeed(folder.path(), &arguments);
    let mut arguments = vec!["lab", "mix", "--size", "4/36", "--shift", "10,30", "--chance", "0.5"];
    arguments.extend(["--json", "mix.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("4/36 shifting every 30") && text.contains("worst found"), "{text}");
    let record = json(&folder.path().join("mix.json"));
    let mut fields: Vec<Field> = vec![
        ("kind", |v| v == "pipe"),
        ("hot", Value::is_u64),
        ("cold", |v| v.as_u64().is_some_and(|cold| cold > 0)),
        ("shift_every", |v| [0, 10, 30].contains(&v.as_u64().unwrap())),
        ("subject", Value::is_string),
    ];
    fields.extend(FIGURES);
    // The figures of a mix are per block.
    check_record(&record, "mix", &fields);
    let page = std::fs::read_to_string(folder.path().join("superpoll-report/index.html")).unwrap();
    assert!(page.contains("<h2>atr") && page.contains("<h2>mix"));
    assert!(folder.path().join("superpoll-report/mix.svg").exists());
}

#[test]
fn lab_wake_measures_wake_ups() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["lab", "wake", "--total", "20", "--hot", "5", "--samples", "3", "--no-report"];
    let text = succeed(folder.path(), &[&arguments[..], &["--json", "wake.json"]].concat());
    assert!(text.contains("p50") && text.contains("adaptive"), "{text}");
    let fields: [Field; 3] = [
        ("samples", |v| v == 3),
        ("wake_ns_p50", |v| v.as_f64().is_some_and(|ns| ns > 0.0)),
        ("subject", Value::is_string),
    ];
    check_record(&json(&folder.path().join("wake.json")), "wake", &fields);
    assert!(!folder.path().join("superpoll-report").exists());
}

#[test]
fn lab_ring_takes_bytes_round_on_every_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["lab", "ring", "--total", "6,12", "--in-flight", "1,0.5"];
    arguments.extend(["--laps", "3", "--json", "ring.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    for part in ["6 pipes, 1 byte in flight", "12 pipes, 6 bytes", "superpoll-rt-peers"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let record = json(&folder.path().join("ring.json"));
    let positive: fn(&Value) -> bool = |v| v.as_f64().is_some_and(|number| number > 0.0);
    let fields: [Field; 9] = [
        ("subject", Value::is_string),
        ("total", |v| v == 6 || v == 12),
        ("in_flight", |v| [1, 3, 6].contains(&v.as_u64().unwrap())),
        ("laps", |v| v == 3),
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
    assert!(page.contains("<h2>ring") && page.matches("<svg").count() == 3);
}

#[test]
fn a_ring_too_large_for_select_goes_on_without_it_or_ends_with_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = ["lab", "ring", "--total", "600", "--laps", "1", "--no-report"];
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

    let line = refused(&[&fixed[..], &["--backend", "select"], &SMALL].concat());
    assert!(line.contains("too large for back-end select"), "{line}");
}

#[test]
fn lab_herd_counts_who_is_woken_and_who_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["lab", "herd", "--processes", "1,4", "--connects", "6"];
    arguments.extend(["--dups", "3", "--json", "herd.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("3 of listener") && text.contains("3 of pipe"), "{text}");
    let record = json(&folder.path().join("herd.json"));
    let fields: [Field; 7] = [
        ("subject", Value::is_string),
        ("processes", |v| v == 1 || v == 4),
        ("dups", |v| v == 3),
        ("connects", |v| v == 6),
        ("connect_ns_median", |v| v.as_f64().is_some_and(|ns| ns > 0.0)),
        ("woken_per_connect", |v| v.as_f64().is_some_and(|woken| woken > 0.0)),
        ("jain", |v| v.as_f64().is_some_and(|jain| jain > 0.0 && jain <= 1.0)),
    ];
    check_record(&record, "herd", &fields);
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
    assert!(page.contains("<h2>herd") && page.matches("<svg").count() == 2);
}

#[test]
fn lab_herd_has_blocking_waiters_and_engines_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["lab", "herd", "--processes", "2", "--connects", "8", "--no-report"];
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
        let accepted = row["accepts_max"].as_u64().unwrap() + row["accepts_min"].as_u64().unwrap();
        assert_eq!(accepted, 8, "{way}");
    }
}

#[test]
fn lab_models_measures_four_models_and_says_what_is_claimed_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["lab", "models", "--total", "30", "--active", "3,30"];
    arguments.extend(["--kind", "all", "--json", "models.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    for part in ["unix 30 end", "with what the writers pay", "cpu while quiet", "Signals, as Linux"]
    {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let record = json(&folder.path().join("models.json"));
    let positive: fn(&Value) -> bool = |v| v.as_f64().is_some_and(|number| number > 0.0);
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
        ("signals", "sigio-wait"),
        ("signals", "sigio-fd"),
        ("ask", "raw-select"),
        ("ask", "raw-poll"),
        ("ask", "raw-epoll-lt"),
    ];
    for (model, subject) in models {
        let own: Vec<_> = rows.iter().filter(|row| row["subject"] == subject).collect();
        assert_eq!(own.len(), 6, "{subject}");
        assert!(own.iter().all(|row| row["model"] == model), "{subject}");
        // The floor neither waits nor counts.
        let counted = own.iter().all(|row| row["calls_per_event"].is_number());
        assert_eq!(counted, subject != "floor", "{subject}");
    }
    // Who may not be registered here is named with the reason.
    for subject in ["uring-poll", "aio-poll"] {
        let notes = record["parameters"]["notes"].to_string();
        let measured = rows.iter().filter(|row| row["subject"] == subject).count();
        assert!(measured == 6 || notes.contains(subject), "{subject}: {notes}");
    }
    let page = std::fs::read_to_string(folder.path().join("superpoll-report/index.html")).unwrap();
    assert!(page.contains("<h2>models") && page.matches("<svg").count() == 6);
    assert!(folder.path().join("superpoll-report/models.csv").exists());
}

#[test]
fn lab_models_makes_up_for_a_full_queue_of_signals() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!(
        "ulimit -S -i 5 && exec {} lab models --total 40 --active 1,40 \
         --subjects sigio-wait,sigio-fd --no-report --json x {}",
        env!("CARGO_BIN_EXE_superpoll"),
        SMALL.join(" ")
    );
    let output =
        Command::new("bash").current_dir(folder.path()).args(["-c", &command]).output().unwrap();
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
    let mut arguments = vec!["lab", "models", "--total", "1100", "--active", "1"];
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
    let line = refused(&["lab", "models", "--total", "1100", "--subjects", "raw-select"]);
    assert!(line.contains("nothing is left to measure") && line.contains("1023"), "{line}");
}

#[test]
fn lab_registrations_checks_what_it_registers_and_answers_its_question() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["lab", "registrations", "--total", "48", "--batch", "1,16"];
    arguments.extend(["--json", "registrations.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("unix, ns of processor time") && text.contains("/ epoll_ctl"), "{text}");
    let record = json(&folder.path().join("registrations.json"));
    let positive: fn(&Value) -> bool = |v| v.as_f64().is_some_and(|number| number > 0.0);
    let fields: [Field; 11] = [
        ("kind", |v| v == "pipe" || v == "unix" || v == "tcp"),
        ("batch", |v| v == 1 || v == 16),
        ("subject", Value::is_string),
        ("total", |v| v == 48),
        ("register_ns_median", positive),
        ("modify_ns_median", positive),
        ("deregister_ns_median", positive),
        ("wall_ns_median", positive),
        ("rounds", |v| v == 1),
        ("ratio", positive),
        ("ratio_high", positive),
    ];
    check_record(&record, "registrations", &fields);
    let rows = record["rows"].as_array().unwrap();
    let notes = record["parameters"]["notes"].to_string();
    let polls = ["ring-epoll-ctl", "ring-poll", "ring-poll-remove"];
    let rings = polls.into_iter().chain(["uring", "uring-lt", "uring-registrar"]);
    for subject in ["raw-epoll", "epoll", "adaptive"].into_iter().chain(rings) {
        let own: Vec<_> = rows.iter().filter(|row| row["subject"] == subject).collect();
        assert!(own.len() == 6 || notes.contains(subject), "{subject}: {notes}");
        // One by one each change is a call; a ring takes a batch at a time.
        for row in own {
            let calls = row["calls"].as_f64().unwrap();
            let batches = subject.starts_with("ring-") && row["batch"] == 16;
            assert!(if batches { calls < 0.3 } else { calls > 1.0 || row["batch"] == 16 }, "{row}");
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
    assert!(page.contains("<h2>registrations") && page.matches("<svg").count() == 3);
}

#[test]
fn lab_echo_measures_every_server_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["lab", "echo", "--connections", "1,10", "--kind", "all"];
    arguments.extend(["--json", "echo.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("cpu ns/request") && text.contains("/ raw-epoll"), "{text}");
    let record = json(&folder.path().join("echo.json"));
    let positive: fn(&Value) -> bool = |v| v.as_f64().is_some_and(|number| number > 0.0);
    let fields: [Field; 11] = [
        ("subject", Value::is_string),
        ("kind", |v| v == "tcp" || v == "unix"),
        ("connections", |v| v == 1 || v == 10),
        ("bytes", |v| v == 64),
        ("requests", positive),
        ("cpu_ns_per_request_min", positive),
        ("cpu_ns_per_request_median", positive),
        ("cpu_spread", Value::is_number),
        ("requests_per_second", positive),
        ("generator_busy", positive),
        ("rounds", |v| v == 1),
    ];
    check_record(&record, "echo", &fields);
    let subjects = record["parameters"]["subjects"].as_array().unwrap();
    let rows = record["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4 * subjects.len());
    for row in rows {
        let ours = row["subject"].as_str().unwrap().starts_with("superpoll");
        let waits = row["waits_per_request"].as_f64();
        assert_eq!(waits.is_some_and(|waits| waits > 0.0), ours, "{row}");
        assert!(row["raw_epoll_ratio"]["median"].as_f64().is_some_and(|ratio| ratio > 0.0));
        assert_eq!(row["tokio_ratio"].is_object(), subjects.iter().any(|name| name == "tokio"));
    }
    let report = folder.path().join("superpoll-report");
    let csv = std::fs::read_to_string(report.join("echo.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + rows.len());
    for plot in ["echo-tcp.svg", "echo-unix.svg"] {
        assert!(std::fs::read_to_string(report.join(plot)).unwrap().starts_with("<svg"), "{plot}");
    }
    assert!(std::fs::read_to_string(report.join("index.html")).unwrap().contains("<h2>echo"));

    for (arguments, about) in [
        (["--connections", "0"], "--connections 0"),
        (["--bytes", "5000"], "--bytes 5000"),
        (["--kind", "pipe"], "--kind pipe"),
        (["--subjects", "nginx"], "\"nginx\""),
    ] {
        let line = refused(&[&["lab", "echo"], &arguments[..]].concat());
        assert!(line.contains(about), "{line}");
    }
}

#[test]
fn lab_http_measures_every_server_or_names_the_feature_that_it_needs() {
    if !superpoll_lab::http::BUILT_IN {
        let line = refused(&["lab", "http"]);
        assert!(line.contains("--features http"), "{line}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["lab", "http", "--connections", "1,5", "--json", "http.json"];
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("cpu ns/request") && text.contains("/ tokio"), "{text}");
    let record = json(&folder.path().join("http.json"));
    let positive: fn(&Value) -> bool = |v| v.as_f64().is_some_and(|number| number > 0.0);
    let fields: [Field; 9] = [
        ("subject", Value::is_string),
        ("connections", |v| v == 1 || v == 5),
        ("requests", positive),
        ("cpu_ns_per_request_min", positive),
        ("cpu_ns_per_request_median", positive),
        ("cpu_spread", Value::is_number),
        ("requests_per_second", positive),
        ("rounds", |v| v == 1),
        ("tokio_ratio", positive),
    ];
    check_record(&record, "http", &fields);
    let rows = record["rows"].as_array().unwrap();
    let ours = ["superpoll-rt-poll", "superpoll-rt-epoll", "superpoll-rt-adaptive"];
    for subject in ["raw-epoll", "tokio"].into_iter().chain(ours) {
        let own: Vec<_> = rows.iter().filter(|row| row["subject"] == subject).collect();
        assert_eq!(own.len(), 2, "points of {subject}");
        for row in own {
            let waits = row["waits_per_request"].as_f64();
            assert_eq!(waits.is_some_and(|waits| waits > 0.0), ours.contains(&subject), "{row}");
        }
    }
    let report = folder.path().join("superpoll-report");
    let csv = std::fs::read_to_string(report.join("http.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + rows.len());
    assert!(std::fs::read_to_string(report.join("http.svg")).unwrap().starts_with("<svg"));
    assert!(std::fs::read_to_string(report.join("index.html")).unwrap().contains("<h2>http"));

    let line = refused(&["lab", "http", "--connections", "0"]);
    assert!(line.contains("--connections 0"), "{line}");
    let line = refused(&["lab", "http", "--subjects", "nginx"]);
    assert!(line.contains("\"nginx\"") && line.contains("superpoll-rt-epoll"), "{line}");
}

#[test]
fn lab_timers_checks_every_timer_and_compares_with_tokio_where_it_is_built_in() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["lab", "timers", "--timers", "50,5000", "--ending", "100"];
    arguments.extend(["--json", "timers.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("late, p50") && text.contains("one by one"), "{text}");
    let record = json(&folder.path().join("timers.json"));
    let positive: fn(&Value) -> bool = |v| v.as_f64().is_some_and(|number| number > 0.0);
    let fields: [Field; 6] = [
        ("subject", Value::is_string),
        ("load", Value::is_string),
        ("timers", |v| v == 50 || v == 5000 || v == 100),
        ("timer_ns_median", positive),
        ("timer_ns_spread", Value::is_number),
        ("rounds", |v| v == 1),
    ];
    check_record(&record, "timers", &fields);
    let rows = record["rows"].as_array().unwrap();
    let subjects = record["parameters"]["subjects"].as_array().unwrap();
    assert_eq!(rows.len(), 6 * subjects.len());
    for row in rows {
        let ending = row["load"] == "ending";
        assert_eq!(row["late_ns_p99"].is_number(), ending, "{row}");
        assert_eq!(row["cancel_ns_min"].is_null(), ending || row["load"] == "one by one", "{row}");
        assert_eq!(row["tokio_ratio"].is_number(), subjects.len() == 2, "{row}");
    }
    let report = folder.path().join("superpoll-report");
    let csv = std::fs::read_to_string(report.join("timers.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + rows.len());
    assert!(std::fs::read_to_string(report.join("timers.svg")).unwrap().starts_with("<svg"));
    assert!(std::fs::read_to_string(report.join("index.html")).unwrap().contains("<h2>timers"));
    if subjects.len() == 1 {
        let line = refused(&["lab", "timers", "--subjects", "tokio"]);
        assert!(line.contains("--features rivals-rt"), "{line}");
    }
}

#[test]
fn a_second_thread_is_there_if_asked_for() {
    for (arguments, threads) in [(&[][..], 1), (&["--second-thread"][..], 2)] {
        let folder = tempfile::tempdir().unwrap();
        let fixed = ["lab", "atr", "--total", "4", "--active", "1", "--no-mix", "--json", "x"];
        succeed(folder.path(), &[&fixed[..], &SMALL, arguments].concat());
        let record = json(&folder.path().join("x"));
        assert_eq!(record["environment"]["threads"], threads);
    }
}

#[test]
fn random_totals_come_from_the_seed() {
    let totals = |seed: &str| {
        let folder = tempfile::tempdir().unwrap();
        let fixed = ["lab", "atr", "--total", "random", "--active", "1", "--subjects", "poll"];
        let rest = ["--no-report", "--json", "x", "--seed", seed];
        succeed(folder.path(), &[&fixed[..], &rest, &SMALL].concat());
        json(&folder.path().join("x"))["parameters"]["totals"].clone()
    };
    let first = totals("1");
    assert!(first.as_array().unwrap().len() > 1);
    assert_eq!(first, totals("1"));
    assert_ne!(first, totals("2"));
}

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

#[test]
fn doctor_explains_what_auto_is_here() {
    let folder = tempfile::tempdir().unwrap();
    let text = succeed(folder.path(), &["doctor"]);
    let document: Value =
        serde_json::from_str(&succeed(folder.path(), &["doctor", "--json"])).unwrap();
    let auto = &document["auto"];
    let name = auto["backend"].as_str().unwrap();
    assert!(["adaptive", "uring"].contains(&name), "{auto}");
    assert!(text.contains("auto is adaptive here: ") || text.contains("auto is uring here: "));
    if document["backends"][4]["works"] == false {
        assert!(name == "adaptive" && auto["refusal"].is_string(), "{auto}");
        return;
    }
    for part in
        ["cost", "of those through poll and epoll", "at worst", "costs of io_uring", "cancel"]
    {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    let estimates = auto["estimates"].as_array().unwrap();
    assert_eq!(estimates.len(), 18);
    let (mut sum, mut worst) = (0.0, 0.0f64);
    for one in estimates {
        let ratio = one["uring_ns"].as_f64().unwrap() / one["adaptive_ns"].as_f64().unwrap();
        assert!((ratio - one["ratio"].as_f64().unwrap()).abs() < 1e-3, "{one}");
        sum += ratio.ln();
        worst = worst.max(ratio);
    }
    let mean = (sum / 18.0).exp();
    assert!((mean - auto["mean_ratio"].as_f64().unwrap()).abs() < 1e-3, "{mean}");
    // The decision follows from what is printed.
    let limit = |name: &str| auto[name].as_f64().unwrap();
    let pays = mean <= limit("mean_ratio_at_most") && worst <= limit("worst_ratio_at_most");
    assert_eq!(name == "uring", pays, "{auto}");
    assert!(auto["ring_costs_ns"]["tcp"]["arm"].as_f64().unwrap() > 1.0);
}

/// Runs the command where io_uring is refused. The filter stays for the life of a thread, and goes on to what
/// it starts.
fn run_refused(error: i32, folder: &Path, arguments: &[&str], backend: &str) -> Output {
    let run = || {
        superpoll_conformance::sys::refuse_io_uring(error).unwrap();
        let mut command = superpoll();
        command.current_dir(folder).args(arguments).env("SUPERPOLL_BACKEND", backend);
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
fn doctor_says_why_there_is_no_io_uring_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    for (error, way) in REFUSALS {
        for backend in ["", "auto", "adaptive"] {
            let output = run_refused(error, folder.path(), &["doctor"], backend);
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
        let output = run_refused(error, folder.path(), &["doctor", "--json"], "auto");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let auto = &document["auto"];
        assert_eq!((&auto["backend"], &auto["uring"]), (&"adaptive".into(), &false.into()));
        assert!(auto["refusal"].as_str().is_some_and(|said| said.contains(way)), "{auto}");
        assert!(auto["mean_ratio"].is_null() && auto["ring_costs_ns"].is_null(), "{auto}");
        assert_eq!(document["backends"][4]["works"], false);
    }
}

#[test]
fn experiments_run_where_io_uring_is_refused_and_say_what_is_left_out() {
    for (error, way) in REFUSALS {
        let folder = tempfile::tempdir().unwrap();
        let atr = ["lab", "atr", "--total", "20", "--active", "1,20", "--no-mix", "--no-report"];
        let atr = [&atr[..], &["--subjects", "all", "--json", "atr.json"], &SMALL].concat();
        let ring =
            ["lab", "ring", "--total", "6", "--laps", "3", "--backend", "auto", "--no-report"];
        let ring = [&ring[..], &["--json", "ring.json"], &SMALL].concat();
        for arguments in [&atr, &ring] {
            let output = run_refused(error, folder.path(), arguments, "");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arguments:?}: {errors}");
        }
        let record = json(&folder.path().join("atr.json"));
        let rows = record["rows"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["subject"] == "adaptive"));
        assert!(rows.iter().all(|row| row["subject"] != "uring"));
        let record = json(&folder.path().join("ring.json"));
        assert_eq!(record["parameters"]["backend"], "adaptive");
        // What was asked for by name is not replaced.
        let forced = ["lab", "ring", "--total", "6", "--backend", "uring", "--no-report"];
        let output = run_refused(error, folder.path(), &[&forced[..], &SMALL].concat(), "");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty());
        assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
        assert!(errors.contains("back-end uring does not work here"), "{errors}");
        assert!(errors.contains(way) && errors.contains("or auto"), "{errors}");
    }
}

#[test]
fn a_full_disk_under_the_output_ends_it_in_one_line_and_keeps_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let wake = ["lab", "wake", "--total", "4", "--hot", "1", "--samples", "1", "--no-report"];
    let wake = [&wake[..], &["--json", "wake.json"], &SMALL].concat();
    for arguments in [&["doctor"][..], &["doctor", "--json"], &wake] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output =
            superpoll().current_dir(folder.path()).args(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
        assert!(errors.contains("writing to the standard output: No space left"), "{errors}");
    }
    check_record(&json(&folder.path().join("wake.json")), "wake", &[]);
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
fn what_makes_no_sense_is_refused_in_one_line() {
    let cases: [(&[&str], &[&str]); 40] = [
        (&["lab", "atr", "--total", "0"], &["--total 0"]),
        (&["lab", "atr", "--total", "many"], &["--total", "\"many\""]),
        (&["lab", "atr", "--total", "10", "--active", "11"], &["--active 11", "10"]),
        (&["lab", "atr", "--active", "0"], &["--active 0"]),
        (&["lab", "atr", "--kind", "fifo"], &["\"fifo\"", "pipe, unix, tcp"]),
        (&["lab", "atr", "--placement", "middle"], &["\"middle\"", "end, spread, front"]),
        (&["lab", "atr", "--subjects", "kqueue"], &["\"kqueue\"", "raw-poll"]),
        (&["lab", "atr", "--seconds", "0"], &["--seconds 0"]),
        (&["lab", "atr", "--repetitions", "0"], &["--repetitions 0"]),
        (&["lab", "mix", "--size", "5"], &["--size", "50/950"]),
        (&["lab", "mix", "--load", "heavy"], &["\"heavy\"", "mixed, shift"]),
        (&["lab", "mix", "--shift", "0"], &["--shift 0"]),
        (&["lab", "mix", "--chance", "2"], &["--chance"]),
        (&["lab", "wake", "--total", "0"], &["--total 0"]),
        (&["lab", "wake", "--total", "5", "--hot", "6"], &["--hot 6"]),
        (&["lab", "wake", "--subjects", "floor"], &["floor"]),
        (&["lab", "ring", "--total", "1"], &["--total 1", "give 2"]),
        (&["lab", "ring", "--total", "1000000"], &["--total 1000000", "descriptors"]),
        (&["lab", "ring", "--total", "10", "--in-flight", "11"], &["--in-flight 11", "10"]),
        (&["lab", "ring", "--in-flight", "1.5"], &["--in-flight", "\"1.5\""]),
        (&["lab", "ring", "--laps", "0"], &["--laps 0"]),
        (&["lab", "ring", "--backend", "kqueue"], &["\"kqueue\"", "select, poll, epoll"]),
        (&["lab", "ring", "--subjects", "goroutines"], &["\"goroutines\"", "raw-epoll-lt"]),
        (&["lab", "ring", "--sweep", "--total", "5"], &["--sweep", "--total"]),
        (&["lab", "herd", "--processes", "4097"], &["--processes 4097", "4096"]),
        (&["lab", "herd", "--connects", "0"], &["--connects 0"]),
        (&["lab", "herd", "--subjects", "wait"], &["\"wait\"", "epoll-exclusive"]),
        (&["lab", "herd", "--dups", "5", "--subjects", "accept"], &["--subjects", "--dups"]),
        (&["lab", "models", "--subjects", "kqueue"], &["\"kqueue\"", "spin, sigio-wait"]),
        (&["lab", "models", "--active", "0"], &["--active 0"]),
        (&["lab", "models", "--total", "5", "--active", "6"], &["--active 6", "5 descriptors"]),
        (&["lab", "registrations", "--batch", "0"], &["--batch 0"]),
        (&["lab", "registrations", "--total", "8", "--batch", "9"], &["--batch 9", "--total"]),
        (&["lab", "registrations", "--total", "0"], &["--total 0"]),
        (&["lab", "registrations", "--subjects", "kqueue"], &["\"kqueue\"", "raw-epoll"]),
        (&["lab", "timers", "--timers", "0"], &["--timers 0"]),
        (&["lab", "timers", "--ending", "0"], &["--ending 0"]),
        (&["lab", "timers", "--subjects", "libuv"], &["\"libuv\"", "superpoll-rt, tokio"]),
        (&["lab", "art"], &["art"]),
        (&["lab", "atr", "--no-such-option"], &["--no-such-option"]),
    ];
    for (arguments, parts) in cases {
        let line = refused(arguments);
        for part in parts {
            assert!(line.contains(part), "{arguments:?}: {part:?} is missing in {line:?}");
        }
    }
}

#[cfg(not(feature = "rivals-c"))]
#[test]
fn a_rival_that_is_not_built_in_names_its_feature() {
    for rival in ["libevent", "libev", "libuv"] {
        let line = refused(&["lab", "atr", "--subjects", rival]);
        assert!(line.contains("--features rivals-c"), "{line}");
    }
}

#[test]
fn more_descriptors_than_the_limit_allows_are_cut_down_and_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!(
        "ulimit -n 200 && exec {} lab atr --total 1000 --active 1 --subjects poll --no-report \
         --json x --quick --seconds 0.1 --repetitions 1",
        env!("CARGO_BIN_EXE_superpoll")
    );
    let output =
        Command::new("sh").current_dir(folder.path()).args(["-c", &command]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("may open 200") && errors.contains("ulimit"), "{errors}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    let record = json(&folder.path().join("x"));
    assert_eq!(record["rows"][0]["total"], 68);
    assert_eq!(record["parameters"]["total_asked"], "1000");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("taken"), "").unwrap();
    let fixed = ["lab", "atr", "--total", "4", "--active", "1", "--no-mix", "--report", "taken"];
    let output = run(folder.path(), &[&fixed[..], &SMALL].concat());
    assert!(!output.status.success());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("creating the folder taken"), "{errors}");
}
