//! What an application is told, when it is away and the server crashes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::Value;
use superpoll_test_support::tokens::{SECRET, rule, with_claims};
use superpoll_test_support::{PATIENCE, find};

use crate::keep::succession::Nursery;
use crate::stage::{connect, free_port};

/// Reads requests of a server, takes them, and returns their events, until the last one is of this
/// kind.
fn told(listener: &TcpListener, last: &str) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    listener.set_nonblocking(true).unwrap();
    loop {
        let (stream, _) = find("the server connects", || listener.accept().ok());
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut reader = BufReader::new(&stream);
        loop {
            let (mut length, mut line) = (0, String::new());
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    break;
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                    length = value.trim_end().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            if line.is_empty() || reader.read_exact(&mut body).is_err() {
                break;
            }
            let body: Value = serde_json::from_slice(&body).unwrap();
            events.extend(body["events"].as_array().unwrap().iter().cloned());
            (&stream).write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            if events.last().is_some_and(|event| event["event"] == last) {
                return events;
            }
        }
    }
}

fn enter(nursery: &Nursery, name: &str) -> TcpStream {
    let channels = serde_json::json!({ "subscribe": ["/room"] });
    let token = with_claims(&serde_json::json!({ "sub": name, "superpoll": channels }), SECRET);
    let mut stream = connect(nursery.at());
    let target = format!("/room?token={token}");
    let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

#[test]
fn events_outlive_a_crash_and_an_upgrade_while_the_application_is_away() {
    let port = free_port();
    let nursery = Nursery::new(&format!(
        "[[hosts.routes]]\npath = \"/room\"\n[hosts.routes.channel]\npresence = true\n\
         presence_grace = \"200ms\"\nsubscribe = \"token\"\n{}\n\
         callbacks = {{ upstream = \"app\", key = \"{SECRET}\" }}\n\
         [upstreams.app]\nservers = [{{ address = \"127.0.0.1:{port}\" }}]\n",
        rule("")
    ));
    let server = nursery.server(&[]);
    let ada = enter(&nursery, "ada");
    nursery.until_held(1);
    let bob = enter(&nursery, "bob");
    nursery.until_held(2);
    server.signal("KILL");
    drop(server.ended());
    let server = nursery.server(&[]);
    server.says("took over");
    drop(bob);
    nursery.until_held(1);
    let next = nursery.server(&["--upgrade"]);
    assert!(server.ended().0.success());
    next.says("took over");
    drop(ada);
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let events = told(&listener, "empty");
    // After the crash the last event was told again, as the same one.
    let mut seen: Vec<(&str, String)> = Vec::new();
    for event in &events {
        let what = format!("{} {}", event["event"].as_str().unwrap(), event["user"]);
        let one = (event["id"].as_str().unwrap(), what);
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    let names: Vec<&str> = seen.iter().map(|(_, what)| &**what).collect();
    let expected = [
        "joined \"ada\"",
        "occupied null",
        "joined \"bob\"",
        "left \"bob\"",
        "left \"ada\"",
        "empty null",
    ];
    assert_eq!(names, expected, "{events:?}");
    assert!(events.len() <= expected.len() + 1, "{events:?}");
    next.signal("TERM");
    assert!(next.ended().0.success());
}
