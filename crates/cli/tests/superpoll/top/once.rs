//! `--once`: figures for scripts, which grow with the work that is done.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;

use serde_json::Value;

use super::{read_snapshot, refused, top};
use crate::stage::{Running, Server, Site, backends, get, run, signal, speak};
use crate::superpoll;

/// Returns the sum of a figure over all engines.
fn sum(told: &Value, of: impl Fn(&Value) -> u64) -> u64 {
    told["engines"].as_array().unwrap().iter().map(of).sum()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn reported_figures_grow_with_the_work_of_a_server() {
    let site = Site::new();
    let path = site.path("stats");
    let at = path.to_str().unwrap();
    for backend in backends() {
        let name = backend.name();
        let arguments = ["--workers", "2", "--backend", name, "--stats", at];
        let server = Server::folder(&site.www(), &arguments);
        let before = read_snapshot(&path);
        assert_eq!(before["schema"], 1);
        assert_eq!(before["process"], server.child().id());
        assert_eq!(
            (&before["program"], &before["backend"]),
            (&"serve".into(), &name.into()),
            "{before}"
        );
        let mut clients: Vec<TcpStream> = (0..10).map(|_| server.connect()).collect();
        for client in &mut clients {
            for _ in 0..10 {
                assert!(get(client, "/small").ends_with("0123456789"));
            }
        }
        let after = read_snapshot(&path);
        assert_eq!((number(&before["connections"]), number(&after["connections"])), (0, 10));
        let grown = |of: &dyn Fn(&Value) -> u64| sum(&after, of) - sum(&before, of);
        assert_eq!(grown(&|engine| number(&engine["connections"]["responses"])), 100);
        assert_eq!(grown(&|engine| number(&engine["connections"]["accepted"])), 10);
        // A wait for each reply, except for replies that came together.
        for figure in ["waits", "events", "turns", "task_runs"] {
            assert!(grown(&|engine| number(&engine[figure])) >= 10, "{figure}: {after}");
        }
        let calls = |engine: &Value| -> u64 {
            let all = engine["socket_calls"].as_object().unwrap();
            all.values().map(number).sum()
        };
        assert!(grown(&calls) >= 100, "{after}");
        let watched = |engine: &Value| ["hot", "cold"].map(|set| number(&engine[set]["len"]));
        let watched = sum(&after, |engine| watched(engine).iter().sum());
        assert!(watched >= 10 || name == "uring", "{after}");

        let text = run(&mut top(&["--once", "--interval", "0.2", at]));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains(&format!("process {}, back-end {name}", server.child().id())));
        // As long as it was measured to be: about the interval, on a machine that is not busy.
        let over = lines[0].split_once(", 10 connections; rates over ").unwrap().1;
        assert!(over.strip_suffix(" s").is_some_and(|s| s.parse::<f64>().is_ok()), "{text}");
        for (part, count) in [("engine 0", 1), ("engine 1", 1), ("  sets ", 2), ("  calls ", 2)] {
            assert_eq!(text.matches(part).count(), count, "{part} in\n{text}");
        }
        drop(clients);
        server.finish();
        assert!(!path.exists());
    }
}

#[test]
fn a_proxy_reports_its_pairs() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = upstream.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in upstream.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut bytes = [0; 100];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    stream.write_all(&bytes[..count]).unwrap();
                }
            });
        }
    });
    let site = Site::new();
    let path = site.path("stats");
    let mut command = superpoll();
    command.args(["proxy", "--listen", "127.0.0.1:0", "--to", &to, "--stats"]).arg(&path);
    let mut proxy = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(proxy.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split(' ').nth(3).unwrap().to_owned();
    let before = read_snapshot(&path);
    assert_eq!(before["program"], "proxy");
    let mut clients: Vec<_> = (0..5).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for client in &mut clients {
        for _ in 0..10 {
            client.write_all(b"abc").unwrap();
            client.read_exact(&mut [0; 3]).unwrap();
        }
    }
    let after = read_snapshot(&path);
    assert_eq!((number(&before["connections"]), number(&after["connections"])), (0, 5));
    let events = |told: &Value| sum(told, |engine| number(&engine["events"]));
    assert!(events(&after) >= events(&before) + 50, "{after}");
    signal(&proxy.0, "KILL");
    proxy.0.wait().unwrap();
    // A file that was left behind is no obstacle.
    let mut proxy = Running(command.spawn().unwrap());
    crate::stage::until("it publishes again", || {
        std::os::unix::net::UnixStream::connect(&path).is_ok()
    });
    drop(clients);
    signal(&proxy.0, "TERM");
    assert!(proxy.0.wait().unwrap().success());
    assert!(!path.exists());
}

#[test]
fn failures_of_top_are_reported_in_one_line() {
    let site = Site::new();
    let at = |name: &str| site.path(name).to_str().unwrap().to_owned();
    let line = refused(&mut top(&["--once", &at("nowhere")]));
    assert!(line.contains("nowhere: No such file"), "{line}");
    site.write("file", "");
    assert!(refused(&mut top(&["--once", &at("file")])).contains("refused"));
    assert!(refused(&mut top(&["--json"])).contains("--once"));
    assert!(refused(&mut top(&["--once", "--interval", "0"])).contains("--interval"));
    assert!(refused(&mut top(&["--once", "4294967295"])).contains("no process 4294967295"));
    // Without a terminal there is nothing to show figures on.
    let line = refused(top(&[&at("nowhere")]).stdin(Stdio::null()));
    assert!(line.contains("needs a terminal; use --once"), "{line}");

    let answer = |line: &str| format!("{HEAD}{line}\n");
    for (said, expected) in [
        ("SSH-2.0-OpenSSH_9.9\n".to_owned(), "does not speak HTTP/1.1"),
        (answer("{\"schema\":2,\"engines\":7}"), "version 2, and this program knows version 1"),
        ("{\"schema\":1,\"error\":\"go away\"}\n".to_owned(), "go away"),
        (answer("{\"schema\":1}"), "cannot be read: missing field"),
        (answer("{}"), "cannot be read: missing field"),
        (String::new(), "the server has ended"),
        (HEAD.to_owned(), "the server has ended"),
        (EVIL.to_owned(), "INJECTED"),
        (HEAD.replace("200 OK", "503 Busy") + EVIL, "INJECTED"),
        ("\u{1b}[2J\u{1b}]0;x\u{7} not HTTP\n".to_owned(), "does not speak HTTP/1.1"),
        (answer("{\"schema\":1,\"engines\":\"\\u001b[2J\\r\\n\\u202e\"}"), "cannot be read"),
    ] {
        let path = site.path("other");
        let speaks = speak(&path, [said.clone()]);
        let output = top(&["--once", "--json"]).arg(&path).output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && line.contains(expected), "{said:?}: {line}");
        assert!(!line.contains(|one| one != '\n' && is_obeyed(one)), "{said:?}: {line:?}");
        speaks.join().unwrap();
    }
}

/// The head of a response with lines, until its connection ends.
const HEAD: &str = "HTTP/1.1 200 OK\r\nserver: superpoll/0.0.9\r\n\r\n";

/// A message of a process that would make the reader's terminal obey it.
const EVIL: &str = "{\"schema\":1,\"error\":\"bad \\u001b[2J\\u001b]0;PWNED\\u0007\\r\\nINJECTED\\u009b31m\\u202e\"}\n";

/// Whether a terminal obeys it, or shows its neighbours in another order.
fn is_obeyed(character: char) -> bool {
    character.is_control() || ('\u{202a}'..='\u{202e}').contains(&character)
}

/// Adds characters that terminals obey to all texts of a value.
fn spoiled(value: Value) -> Value {
    match value {
        Value::String(text) => format!("{text}\u{1b}]0;x\u{7}\u{1b}[2J\u{9b}5m\r\n\u{202e}").into(),
        Value::Array(all) => all.into_iter().map(spoiled).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, spoiled(value))).collect()
        }
        other => other,
    }
}

#[test]
fn control_characters_from_a_process_do_not_reach_the_terminal() {
    let site = Site::new();
    let path = site.path("stats");
    let server = Server::folder(&site.www(), &["--stats", path.to_str().unwrap()]);
    let mut snapshot = read_snapshot(&path);
    server.finish();
    snapshot = spoiled(snapshot);
    for escaped in [true, false] {
        let mut line = snapshot.to_string();
        if escaped {
            line = line.replace('\u{9b}', "\\u009b").replace('\u{202e}', "\\u202e");
        }
        for arguments in [&["--once", "--json"][..], &["--once", "--interval", "0.05"]] {
            let path = site.path("other");
            let speaks = speak(&path, [format!("{HEAD}{line}\n{line}\n")]);
            let text = run(top(arguments).arg(&path));
            speaks.join().unwrap();
            assert!(text.contains("serve"), "{text}");
            let bad = text.chars().find(|&one| one != '\n' && is_obeyed(one));
            assert_eq!(bad, None, "{arguments:?}: {text:?}");
        }
    }
}
