//! Answers that the configuration has (`respond`).

use std::net::TcpStream;
use std::path::Path;

use superpoll_rt::BackendKind;
use superpoll_test_support::until;

use crate::frames2::{DATA, Frame, Frames2, HEADERS, RST_STREAM};
use crate::http2::port;
use crate::stage::{BACKENDS, Stage, folder};

/// The hash of `secret`.
const HASH: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
/// `Basic` and joe:secret.
const JOE: &str = "authorization: Basic am9lOnNlY3JldA==\r\n";

fn routes(folder: &Path, log: &Path) -> String {
    let page = folder.join("small.txt");
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[access_log]\npath = {log:?}\nformat = \"json\"\n\
         [[hosts]]\nerrors = {{ 404 = {page:?}, 5xx = {page:?} }}\nheaders.set.x-host = \"h\"\n\
         [[hosts.routes]]\npath = \"/gone\"\nrespond = {{ status = 410 }}\n\
         [[hosts.routes]]\npath = \"/text\"\nrespond = {{ status = 404, body = \"no\\n\" }}\n\
         headers.set.x-route = \"r\"\n\
         [[hosts.routes]]\npath = \"/json\"\nrespond.body = \"{{}}\"\n\
         respond.headers = {{ content-type = \"application/json\", x-a = [\"1\", \"2\"] }}\n\
         [[hosts.routes]]\npath = \"/empty\"\nrespond.body = \"\"\n\
         [[hosts.routes]]\npath = \"/none\"\nrespond.status = 204\n\
         [[hosts.routes]]\npath = \"/same\"\nrespond.status = 304\n\
         [[hosts.routes]]\npath = \"/odd\"\nrespond.status = 599\n\
         [[hosts.routes]]\npath = \"/denied\"\nrespond = {{}}\ndeny = [\"127.0.0.1\"]\n\
         [[hosts.routes]]\npath = \"/silent\"\nrespond.status = 444\n\
         [[hosts.routes]]\npath = \"/quiet\"\nrespond.status = 444\n\
         basic_auth.users.joe = \"{HASH}\"\n"
    )
}

#[test]
fn all_methods_get_the_answer_and_rules_come_before_it() {
    let folder = folder();
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &routes(folder.path(), &folder.path().join("log")));
        let mut client = stage.connect();
        for method in ["GET", "POST", "DELETE", "OPTIONS", "TRACE", "BREW"] {
            let length = if method == "POST" { "content-length: 3\r\n" } else { "" };
            let body = if method == "POST" { "abc" } else { "" };
            let ask =
                |path: &str| format!("{method} {path} HTTP/1.1\r\nhost: a\r\n{length}\r\n{body}");
            client.send(ask("/gone/below"));
            let answer = client.answer();
            assert_eq!((answer.status, &*answer.body), (410, &b"410 Gone\n"[..]), "{method}");
            assert!(answer.head.contains("content-type: text/plain; charset=utf-8\r\n"));
            assert!(answer.head.contains("x-content-type-options: nosniff\r\n"), "{}", answer.head);
            // No page for errors takes its place.
            client.send(ask("/text"));
            let answer = client.answer();
            assert_eq!((answer.status, &*answer.body), (404, &b"no\n"[..]), "{method}");
            assert!(
                answer.head.contains("x-host: h\r\n") && answer.head.contains("x-route: r\r\n")
            );
        }
        for (path, status, body, field) in [
            ("/json", 200, "{}", "content-type: application/json\r\n"),
            ("/json", 200, "{}", "x-a: 1\r\nx-a: 2\r\n"),
            ("/empty", 200, "", "content-length: 0\r\n"),
            ("/odd", 599, "599\n", "content-length: 4\r\n"),
            ("/denied", 403, "403 Forbidden\n", ""),
            // That is no answer of the configuration.
            ("/other", 404, "hello\n", ""),
        ] {
            let answer = client.get(path);
            assert_eq!((answer.status, &*answer.body), (status, body.as_bytes()), "{path}");
            assert!(answer.head.contains(field), "{path}: {}", answer.head);
        }
        for (method, path, status) in
            [("HEAD", "/text", 404), ("GET", "/none", 204), ("GET", "/same", 304)]
        {
            client.send(format!("{method} {path} HTTP/1.1\r\nhost: a\r\n\r\n"));
            let answer = client.head_only();
            assert_eq!(answer.status, status);
            let length = answer.head.contains("content-length: 3\r\n");
            assert_eq!(length, method == "HEAD", "{}", answer.head);
            assert_eq!(answer.head.contains("content-length"), length, "{}", answer.head);
        }
        assert_eq!(client.get("/json").status, 200);
    }
}

/// Returns the statuses in a log, once it has so many lines.
fn statuses(log: &Path, count: usize) -> Vec<u64> {
    let read = || std::fs::read_to_string(log).unwrap_or_default();
    until("the log is written", || read().lines().count() >= count);
    let status = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["bytes"], &line["complete"]), (&0.into(), &true.into()), "{line}");
        line["status"].as_u64().unwrap()
    };
    read().lines().map(status).collect()
}

#[test]
fn the_silent_status_closes_a_connection_and_is_logged() {
    for backend in BACKENDS {
        let folder = folder();
        let log = folder.path().join("log");
        let stage = Stage::new(backend, 1, &routes(folder.path(), &log));
        for (path, fields) in
            [("/silent", ""), ("/quiet", JOE), ("/silent/x", "content-length: 9\r\n")]
        {
            let mut client = stage.connect();
            let method = if fields.contains("length") { "POST" } else { "GET" };
            client.send(format!("{method} {path} HTTP/1.1\r\nhost: a\r\n{fields}\r\n"));
            assert!(client.is_closed(), "{path}");
        }
        stage.until(|engine| &engine.active, 0);
        assert_eq!(stage.count(|engine| &engine.broken), 0);
        assert_eq!(statuses(&log, 3), [444; 3], "{backend:?}");
        // Without the password there is an answer.
        let mut client = stage.connect();
        assert_eq!(client.get("/quiet").status, 401);
    }
}

#[test]
fn the_silent_status_resets_a_stream_and_leaves_the_others() {
    for backend in [BackendKind::Epoll, BackendKind::Uring] {
        let folder = folder();
        let log = folder.path().join("log");
        let stage = Stage::new(backend, 1, &routes(folder.path(), &log));
        let stream = TcpStream::connect(("127.0.0.1", port(&stage))).unwrap();
        stream.set_read_timeout(Some(crate::stage::PATIENCE)).unwrap();
        let mut client = Frames2::begin(stream, 1 << 20);
        client.send(&[
            Frame::get(1, "/silent").by_http(),
            Frame::request(3, "POST", "/silent").with("content-type", "application/grpc").by_http(),
            Frame::get(5, "/text").by_http(),
        ]);
        let (mut resets, mut body) = (Vec::new(), Vec::new());
        while resets.len() < 2 || body.is_empty() {
            let frame = client.next().expect("a frame");
            match frame.kind {
                RST_STREAM => resets.push((frame.stream, frame.payload)),
                DATA => body.extend_from_slice(&frame.payload),
                HEADERS => assert_eq!(frame.stream, 5),
                _ => {}
            }
        }
        // It is CANCEL.
        assert_eq!(resets, [(1, vec![0, 0, 0, 8]), (3, vec![0, 0, 0, 8])]);
        assert_eq!(body, b"no\n");
        drop(client);
        let read = || std::fs::read_to_string(&log).unwrap_or_default();
        until("the log is written", || read().matches("\"status\":444").count() == 2);
    }
}
