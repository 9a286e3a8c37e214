//! `superpoll-lab fanout`.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use tempfile::TempDir;

use crate::record::{Field, check_record, check_times, is_timed_at, json, not_negative, positive};
use crate::start::{SMALL, lab, refused, succeed};

#[test]
fn lab_fanout_measures_every_server_with_websockets() {
    let folder = measure("websocket");
    let report = folder.path().join("superpoll-report");
    assert!(std::fs::read_to_string(report.join("fanout.svg")).unwrap().contains("superpoll"));
    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("<h2 id=\"fanout\">"));
}

#[test]
fn lab_fanout_measures_every_server_with_streams_of_events() {
    measure("sse");
}

#[test]
fn lab_fanout_measures_every_server_with_long_polls() {
    measure("long-poll");
}

/// Measures every server that is there, checks the record, and returns the folder of the report.
fn measure(transport: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["fanout", "--subscribers", "20", "--json", "fanout.json"];
    arguments.extend(["--transport", transport]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("cpu ns/delivery") && text.contains("PSS, KiB each"), "{text}");
    let record = json(&folder.path().join("fanout.json"));
    let fields: [Field; 9] = [
        ("subject", Value::is_string),
        ("subscribers", |v| v == 20),
        ("bytes", |v| v == 100),
        ("cpu_ns_per_delivery_median", not_negative),
        ("all_ns_p50", positive),
        ("all_ns_p99", positive),
        ("pss_bytes_per_subscriber", Value::is_number),
        ("connect_cpu_ns_median", not_negative),
        ("rounds", |v| v == 1),
    ];
    check_record(&record, "fanout", &fields);
    let rows = record["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["transport"] == transport), "{rows:?}");
    let own = |subject: &str| rows.iter().filter(|row| row["subject"] == subject).count();
    assert_eq!((own("superpoll-adaptive"), own("superpoll-epoll")), (1, 1));
    let rivals = &record["parameters"]["rivals"];
    let notes = record["parameters"]["notes"].as_array().unwrap();
    for (rival, subject) in [("nchan", "nchan"), ("pushpin", "pushpin"), ("ws", "node-ws")] {
        let is_here = !rivals[rival].as_str().unwrap().starts_with("absent: ");
        // One that does not start in time, on a machine that is busy elsewhere, is left out.
        let is_lost = notes.iter().any(|note| note.as_str().unwrap().starts_with(subject));
        assert_eq!(own(subject), usize::from(is_here && !is_lost), "{record}");
    }
    let noted = |text: &str| notes.iter().any(|note| note.as_str().unwrap().starts_with(text));
    assert!(own("centrifugo") == 1 || noted("centrifugo "), "{record}");
    assert_eq!(own("hyper-tokio"), usize::from(superpoll_lab::BUILT_IN));
    check_times(rows);
    for row in rows {
        let is_timed = is_timed_at(rows, "nchan", row, &[]);
        assert_eq!(not_negative(&row["nchan_ratio"]["median"]), is_timed, "{row}");
    }
    folder
}

/// A server for node that takes every message and sends each subscriber the second one twice.
const DOUBLING: &str = r#"
const http = require("http");
const streams = [];
let count = 0;
http.createServer((request, response) => {
    if (request.method === "GET") {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.flushHeaders();
        streams.push(response);
        return;
    }
    let text = "";
    request.on("data", (part) => { text += part; });
    request.on("end", () => {
        count += 1;
        for (const stream of streams) {
            stream.write(`data: ${text}\n\n`.repeat(count === 2 ? 2 : 1));
        }
        response.writeHead(201, { "content-length": 0 });
        response.end();
    });
}).listen(Number(process.argv[1]), "127.0.0.1");
"#;

#[test]
fn a_server_that_sends_a_message_twice_is_left_out_by_name() {
    if std::process::Command::new("node").arg("--version").output().is_err() {
        println!("skipped: node is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("doubling.js"), DOUBLING).unwrap();
    // The laboratory runs `node SERVER PORT WS`, and finds this script in place of node.
    let node = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|folder| folder.join("node"))
        .find(|file| file.is_file())
        .unwrap();
    let script = folder.path().join("node");
    let text = format!(
        "#!/bin/sh\nexec {} -e \"$(cat {}/doubling.js)\" \"$2\"\n",
        node.display(),
        folder.path().display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let module = folder.path().join("ws");
    std::fs::create_dir(&module).unwrap();
    std::fs::write(module.join("package.json"), "{\"version\": \"9.9.9\"}").unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let path = [folder.path().to_owned()].into_iter().chain(std::env::split_paths(&path));
    let mut command = lab();
    command.args(["fanout", "--subscribers", "4", "--transport", "sse", "--no-report"]);
    command.args(["--subjects", "superpoll-epoll,node-ws", "--json", "fanout.json"]).args(SMALL);
    command.env("PATH", std::env::join_paths(path).unwrap()).env("NODE_PATH", folder.path());
    let output = command.current_dir(folder.path()).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    let record = json(&folder.path().join("fanout.json"));
    assert_eq!(record["parameters"]["rivals"]["ws"], "9.9.9");
    let notes = record["parameters"]["notes"].to_string();
    assert!(notes.contains("node-ws failed and is left out from there on"), "{notes}");
    assert!(notes.contains("message 2 came twice"), "{notes}");
    let rows = record["rows"].as_array().unwrap();
    assert!(rows.len() == 1 && rows[0]["subject"] == "superpoll-epoll", "{rows:?}");
}

#[test]
fn lab_fanout_refuses_invalid_options() {
    for (arguments, about) in [
        (["--subscribers", "1"], "--subscribers 1"),
        (["--subscribers", "10000000"], "--subscribers 10000000"),
        (["--transport", "mqtt"], "\"mqtt\""),
        (["--bytes", "1"], "--bytes 1"),
        (["--subjects", "kafka"], "\"kafka\""),
    ] {
        let line = refused(&[&["fanout"], &arguments[..]].concat());
        assert!(line.contains(about), "{line}");
    }
}
