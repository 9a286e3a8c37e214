//! The demonstration that is served without a configuration, with curl as the browser.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::stage::{Running, Server, run, tool};
use crate::superpoll;

fn curl(arguments: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["-sSN", "--max-time", "60"]).args(arguments);
    command
}

#[test]
fn its_page_and_all_that_the_page_asks_for_are_there() {
    if tool("curl").is_none() {
        return;
    }
    let server = Server::start(&["--listen", "127.0.0.1:0"]);
    let page = run(&mut curl(&["--compressed", &server.url("/")]));
    assert!(page.contains("<title>Superpoll"), "{page}");
    // It begins with a visitor's benefits; how the engine works comes after that.
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text:?} is not in {page}"));
    assert!(at("Live updates") < at("restart") && at("id=\"snippet\"") < at("epoll"), "{page}");
    // What it tells visitors to run is there after `cargo install`, which installs this program
    // alone.
    let commands: Vec<&str> = page
        .split("<code>")
        .filter_map(|rest| rest.split("</code>").next()?.strip_prefix("superpoll"))
        .filter_map(|rest| rest.split(['\n', ' ', '<']).find(|word| !word.is_empty()))
        .collect();
    assert!(commands.len() >= 5, "{commands:?}");
    for command in commands {
        run(superpoll().args([command, "--help"]));
    }
    let asked: Vec<&str> = page
        .split(['"', '\''])
        .filter(|part| part.starts_with('/') && part.len() > 1 && !part.contains(' '))
        .collect();
    assert!(asked.len() >= 3, "{asked:?}");
    for path in asked {
        let status = run(&mut curl(&["-o", "/dev/null", "-w", "%{http_code}", &server.url(path)]));
        // A channel waits for a message unless it is asked from where on.
        assert!(path.contains("chat") || status == "200", "{path}: {status}");
    }
    let status =
        run(&mut curl(&["-w", "%{http_code}", "-o", "/dev/null", &server.url("/_superpoll/")]));
    assert_eq!(status, "200");
    server.finish();
}

#[test]
fn published_messages_reach_waiting_and_later_clients() {
    if tool("curl").is_none() {
        return;
    }
    for backend in crate::stage::backends() {
        let server = Server::start(&[
            "--listen",
            "127.0.0.1:0",
            "--workers",
            "2",
            "--backend",
            backend.name(),
        ]);
        let url = server.url("/demo/chat");
        let post = |text: &str| -> Value {
            serde_json::from_str(&run(&mut curl(&["--data", text, &url]))).unwrap()
        };
        let first = post("one");
        assert_eq!(first["id"], json!(1));

        // A long-poll that waits for the second message, and a stream that begins with the first.
        let waiting = curl(&[&format!("{url}?after=1")]).stdout(Stdio::piped()).spawn().unwrap();
        let stream = curl(&["-H", "Accept: text/event-stream", &format!("{url}?after=0")])
            .stdout(Stdio::piped())
            .spawn();
        let mut stream = Running(stream.unwrap());
        let mut events = BufReader::new(stream.0.stdout.take().unwrap()).lines();
        let mut event = |text: &str| {
            let line = events.find(|line| line.as_ref().unwrap().starts_with("data:"));
            assert_eq!(line.unwrap().unwrap(), format!("data: {text}"), "{backend:?}");
        };
        event("one");
        assert_eq!(post("two")["id"], json!(2));
        event("two");
        let waited = waiting.wait_with_output().unwrap();
        let waited: Value = serde_json::from_slice(&waited.stdout).unwrap();
        assert_eq!(waited["messages"], json!([{"id": 2, "data": "two"}]), "{backend:?}");
        assert_eq!((&waited["next"], &waited["epoch"]), (&json!(2), &first["epoch"]));

        let all = run(&mut curl(&[&format!("{url}?after=0")]));
        let all: Value = serde_json::from_str(&all).unwrap();
        let texts: Vec<&str> = all["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["data"].as_str().unwrap())
            .collect();
        assert_eq!(texts, ["one", "two"]);
        let nothing = run(&mut curl(&["-w", "%{http_code}", &format!("{url}?after=2&wait=0")]));
        assert_eq!(nothing, "204");

        // The stream is still open; the end of the server ends it.
        server.finish();
        assert!(events.all(|line| line.is_ok()));
    }
}

#[test]
fn a_site_whose_name_resolves_to_this_machine_is_not_served() {
    let site = crate::stage::Site::new();
    let folder = site.www();
    let cases: [(&[&str], &str); 2] = [
        (&["--listen", "127.0.0.1:0", "--name", "Some.Test"], "/demo/chat?after=0&wait=0"),
        (&[folder.to_str().unwrap(), "--listen", "localhost:0", "--name", "some.test"], "/small"),
    ];
    for (arguments, path) in cases {
        let server = Server::start(arguments);
        let ask = |version: &str, host: &str| {
            let mut stream = server.connect();
            let head = format!("GET {path} HTTP/{version}\r\n{host}Connection: close\r\n\r\n");
            std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
            crate::stage::response(&mut stream).split(' ').nth(1).unwrap().to_owned()
        };
        for host in
            ["localhost", "a.localhost:80", "127.0.0.1", "[::1]:8080", "192.0.2.7", "some.test:1"]
        {
            assert_ne!(ask("1.1", &format!("Host: {host}\r\n")), "421", "{host}");
        }
        assert_ne!(ask("1.0", ""), "421");
        for host in ["evil.test", "localhost.evil.test", "127.0.0.1.evil.test", "some.test.evil"] {
            assert_eq!(ask("1.1", &format!("Host: {host}\r\n")), "421", "{host}");
        }
        server.finish();
    }
}
