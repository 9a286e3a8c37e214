//! `superpoll-lab zombies`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::program::{lab, program};
use crate::record::{Field, check_record, check_times, is_timed_at, json, not_negative, positive};
use crate::start::{SMALL, refused, succeed};

#[test]
fn lab_zombies_measures_every_server_with_and_without_silent_connections() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["zombies", "--zombies", "5,20", "--active", "3"];
    arguments.extend(["--requests", "60", "--json", "zombies.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("cpu ns/request") && text.contains("/ none"), "{text}");
    let record = json(&folder.path().join("zombies.json"));
    let fields: [Field; 9] = [
        ("subject", Value::is_string),
        ("family", |v| v == "echo" || v == "web"),
        ("active", |v| v == 3),
        ("zombies", |v| v == 0 || v == 5 || v == 20),
        ("requests", positive),
        ("cpu_ns_per_request_median", not_negative),
        ("seconds", positive),
        ("rounds", |v| v == 1),
        ("none_ratio", Value::is_object),
    ];
    check_record(&record, "zombies", &fields);
    let subjects = record["parameters"]["subjects"].as_array().unwrap();
    let rows = record["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3 * subjects.len());
    check_times(rows);
    for name in ["raw-epoll", "superpoll-select", "superpoll-rt-adaptive", "gateway-epoll"] {
        assert!(subjects.iter().any(|subject| subject == name), "{name}");
    }
    for row in rows {
        let is_timed = is_timed_at(rows, "raw-epoll", row, &["zombies"]);
        assert_eq!(not_negative(&row["raw_epoll_ratio"]["median"]), is_timed, "{row}");
        let is_timed = is_timed_at(rows, row["subject"].as_str().unwrap(), row, &["zombies"]);
        if is_timed && row["zombies"] == 0 {
            assert_eq!(row["none_ratio"]["median"], 1.0, "{row}");
        }
    }
    let report = folder.path().join("superpoll-report");
    let csv = std::fs::read_to_string(report.join("zombies.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + rows.len());
    for plot in ["zombies-echo.svg", "zombies-web.svg"] {
        assert!(std::fs::read_to_string(report.join(plot)).unwrap().starts_with("<svg"), "{plot}");
    }
    assert!(
        std::fs::read_to_string(report.join("index.html")).unwrap().contains("<h2 id=\"zombies\">")
    );
}

#[test]
fn lab_zombies_measures_other_cold_sets_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let all = ["signals", "aio", "kqueue"].map(|kind| format!("superpoll-adaptive-{kind}"));
    let mut arguments = vec!["zombies", "--zombies", "5,20", "--active", "3"];
    let named = all.join(",");
    arguments.extend(["--requests", "60", "--json", "zombies.json", "--subjects", &named]);
    arguments.extend(SMALL);
    succeed(folder.path(), &arguments);
    let record = json(&folder.path().join("zombies.json"));
    let rows = record["rows"].as_array().unwrap();
    for name in all {
        let own = rows.iter().filter(|row| row["subject"] == *name).count();
        // Without its library it is left out, and the record says why.
        let is_noted = record["parameters"]["notes"].to_string().contains(&name);
        assert!(own == 3 || (is_noted && name.ends_with("kqueue")), "{name}: {own} rows");
    }
}

#[test]
fn lab_zombies_leaves_out_servers_beyond_their_limit_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["zombies", "--zombies", "1100", "--requests", "30"];
    arguments.extend(["--subjects", "superpoll-select", "--no-report", "--json", "x"]);
    arguments.extend(SMALL);
    succeed(folder.path(), &arguments);
    let record = json(&folder.path().join("x"));
    let note = record["parameters"]["notes"][0].as_str().unwrap();
    assert!(note.contains("superpoll-select left out at 1100") && note.contains("1023"), "{note}");
    let points: Vec<(&str, u64)> = record["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["subject"].as_str().unwrap(), row["zombies"].as_u64().unwrap()))
        .collect();
    assert_eq!(points, [("raw-epoll", 0), ("raw-epoll", 1100), ("superpoll-select", 0)]);
}

#[test]
fn lab_zombies_shares_more_than_a_process_may_have_among_several() {
    let folder = tempfile::tempdir().unwrap();
    // A process may have 162 zombies; with several processes each uses seven eighths, as gateways
    // need some descriptors for themselves.
    let command = format!(
        "ulimit -n 300 && exec {} zombies --zombies 50,500 --requests 60 --json x \
         --subjects raw-epoll,superpoll-rt-adaptive,gateway-adaptive {}",
        env!("CARGO_BIN_EXE_superpoll-lab"),
        SMALL.join(" ")
    );
    let output =
        program("bash").current_dir(folder.path()).args(["-c", &command]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record = json(&folder.path().join("x"));
    for subject in ["raw-epoll", "superpoll-rt-adaptive", "raw-epoll-http", "gateway-adaptive"] {
        let own = record["rows"].as_array().unwrap().iter().filter(|row| row["subject"] == subject);
        let own: Vec<&Value> = own.collect();
        let points: Vec<_> =
            own.iter().map(|row| (row["workers"].as_u64(), row["zombies"].as_u64())).collect();
        let expected = [(1, 0), (1, 50), (4, 0), (4, 500)].map(|(w, z)| (Some(w), Some(z)));
        assert_eq!(points, expected, "{subject}");
        // Compared with as many processes without zombies.
        assert_eq!(own[2]["none_ratio"]["median"], 1.0);
        assert!(
            positive(&own[3]["none_ratio"]["median"])
                && positive(&own[3]["raw_epoll_ratio"]["median"])
        );
        assert!(own[3]["kernel_bytes_per_zombie"].is_number());
    }
    let plot = folder.path().join("superpoll-report/zombies-web.svg");
    assert!(std::fs::read_to_string(plot).unwrap().contains("gateway-adaptive, 4 processes"));
}

#[test]
fn lab_zombies_refuses_invalid_options() {
    for (arguments, about) in [
        (["--zombies", "many"], "--zombies"),
        (["--zombies", "10000000"], "--zombies 10000000"),
        (["--active", "0"], "--active 0"),
        (["--requests", "0"], "--requests 0"),
        (["--subjects", "nginx"], "\"nginx\""),
    ] {
        let line = refused(&[&["zombies"], &arguments[..]].concat());
        assert!(line.contains(about), "{line}");
    }
}

#[test]
fn lab_zombies_runs_as_three_programs() {
    let folder = tempfile::tempdir().unwrap();
    let start = |address: &str, words: &[&str]| {
        let mut program = lab();
        program.current_dir(folder.path()).args(["zombies", "--address", address]).args(words);
        program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut words = vec!["server", "--zombies", "7,20", "--active", "3", "--requests", "60"];
    words.extend(["--subjects", "superpoll-poll,gateway-poll", "--no-report", "--json", "x"]);
    let mut server = start("127.0.0.1:0", &words);
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let mut notes = Vec::new();
    while !notes.iter().any(|note: &String| note.contains("waiting at")) {
        notes.push(lines.next().expect("the server has ended").unwrap());
    }
    assert!(notes.iter().any(|note| note.contains("gateway-poll left out")), "{notes:?}");
    let waiting = notes.last().unwrap().split_once("waiting at ").unwrap().1;
    let address = waiting.split_once(" for ").unwrap().0;
    let clients = [start(address, &["active"]), start(address, &["zombie"])];
    let output = server.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("Seconds for all requests"), "{text}");
    for client in clients {
        assert!(client.wait_with_output().unwrap().status.success());
    }
    let record = json(&folder.path().join("x"));
    let rows = record["rows"].as_array().unwrap();
    let points: Vec<_> =
        rows.iter().map(|row| (row["subject"].as_str(), row["zombies"].as_u64())).collect();
    let expected = ["raw-epoll", "superpoll-poll"]
        .into_iter()
        .flat_map(|name| [0, 7, 20].map(|zombies| (Some(name), Some(zombies))));
    assert_eq!(points, expected.collect::<Vec<_>>());
    assert!(rows.iter().all(|row| positive(&row["seconds"]) && row["active"] == 3));
}

#[test]
fn lab_zombies_clients_need_a_server() {
    let address = "127.0.0.1:9";
    for program in ["active", "zombie"] {
        let line = refused(&["zombies", program, "--address", address]);
        assert!(line.contains(address) && line.contains("is it running?"), "{line}");
    }
}
