//! Clients that ask for too much, too slowly, or too often.

use std::time::Duration;

use superpoll_test_support::find;

use crate::stage::{BACKENDS, Stage, folder};

fn text(folder: &std::path::Path, more: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{more}\n\
         [[hosts]]\n[[hosts.routes]]\nfiles.root = {folder:?}\n"
    )
}

#[test]
fn a_head_that_comes_drop_by_drop_is_not_waited_for() {
    let folder = folder();
    let text = text(folder.path(), "[timeouts]\nheader = \"600s\"\npark = \"100s\"");
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text);
        let (mut good, mut slow) = (stage.connect(), stage.connect());
        slow.send("GET / HTTP/1.1\r\n");
        // Each byte is progress, and all of them are not a head.
        let step = Duration::from_secs(50);
        let passed = stage.elapse_until(step, 14 * step, || {
            let is_over = stage.count(|engine| &engine.timed_out) > 0;
            if !is_over {
                slow.send("a");
            }
            is_over
        });
        // The time that the test itself takes counts as well.
        assert!(passed >= 10 * step, "{backend:?}: after {passed:?}");
        stage.elapse(step);
        assert_eq!(slow.answer().status, 408, "{backend:?}");
        assert!(slow.is_closed());
        // A client that has sent nothing is closed as well, parked or not.
        assert!(good.is_closed());
        assert_eq!(stage.connect().get("/small.txt").status, 200);
    }
}

#[test]
fn an_idle_connection_is_closed_in_the_end() {
    let folder = folder();
    for park in ["1000s", "50s"] {
        let more = format!("[timeouts]\nidle = \"600s\"\npark = \"{park}\"");
        let stage = Stage::new(BACKENDS[3], 1, &text(folder.path(), &more));
        let mut client = stage.connect();
        assert_eq!(client.get("/small.txt").status, 200);
        stage.elapse(Duration::from_secs(500));
        let there = stage.count(|engine| &engine.active) + stage.count(|engine| &engine.parked);
        assert_eq!(there, 1, "{park}");
        stage.elapse(Duration::from_secs(150));
        assert!(client.is_closed());
        stage.until(|engine| &engine.active, 0);
        stage.until(|engine| &engine.parked, 0);
        assert_eq!(stage.drained(), 0);
    }
}

#[test]
fn clients_that_do_not_read_are_disconnected() {
    let folder = folder();
    let stage = Stage::new(
        BACKENDS[2],
        1,
        &text(folder.path(), "[timeouts]\nbody = \"600s\"\npark = \"5s\""),
    );
    let mut clients: Vec<_> = (0..3).map(|_| stage.connect()).collect();
    for client in &mut clients {
        // More than the kernel's buffers hold on both sides.
        let request = "GET /large.bin HTTP/1.1\r\nhost: a\r\n\r\n";
        client.send(request.repeat(6));
    }
    stage.elapse(Duration::from_secs(300));
    assert_eq!(stage.count(|engine| &engine.timed_out), 0);
    stage.elapse_until(Duration::from_secs(50), Duration::from_secs(900), || {
        stage.count(|engine| &engine.timed_out) == 3
    });
    stage.until(|engine| &engine.active, 0);
    assert_eq!(stage.connect().get("/small.txt").status, 200);
}

#[test]
fn a_head_that_is_too_large_gets_431() {
    let folder = folder();
    let stage =
        Stage::new(BACKENDS[2], 1, &text(folder.path(), "[limits]\nheader_bytes = \"8KiB\""));
    let mut client = stage.connect();
    let field = format!("x: {}\r\n", "y".repeat(1000));
    client.send(format!("GET /small.txt HTTP/1.1\r\nhost: a\r\n{}\r\n", field.repeat(6)));
    assert_eq!(client.answer().status, 200);
    client.send(format!("GET /small.txt HTTP/1.1\r\nhost: a\r\n{}\r\n", field.repeat(30)));
    assert_eq!(client.answer().status, 431);
    assert!(client.is_closed());
}

/// A head that outgrows its buffer, in one piece or in several.
#[test]
fn a_long_head_arrives_in_pieces() {
    let folder = folder();
    for (limit, size) in [("8KiB", 8 << 10), ("16KiB", 16 << 10), ("64KiB", 64 << 10)] {
        let more = format!("[limits]\nheader_bytes = \"{limit}\"");
        let stage = Stage::new(BACKENDS[2], 1, &text(folder.path(), &more));
        for (length, status) in [(size - 1, 200), (size, 200), (size + 1, 431), (size + 5000, 431)]
        {
            let begin = "GET /small.txt HTTP/1.1\r\nhost: a\r\nx: ";
            let head = format!("{begin}{}\r\n\r\n", "y".repeat(length - begin.len() - 4));
            for first in [length, 1, 100, length - 1, length - 3, 9000.min(length)] {
                let mut client = stage.connect();
                for piece in [&head[..first], &head[first..]] {
                    client.send(piece);
                    // So that it is read for itself, most of the time.
                    std::thread::sleep(Duration::from_millis(2));
                }
                assert_eq!(client.answer().status, status, "{limit} {length} {first}");
            }
        }
        // A target that is too long for the server is no other target.
        let mut client = stage.connect();
        client.send(format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "\"<>".repeat(size / 3 - 20)));
        assert!([404, 414, 431].contains(&client.answer().status), "{limit}");
    }
}

/// A change of protocols has one field about the connection.
#[test]
fn a_last_request_may_change_the_protocol() {
    let folder = folder();
    let channel = "\n[[hosts.routes]]\npath = \"/c\"\nchannel = {}\n";
    let text = text(folder.path(), "[limits]\nrequests_per_connection = 1") + channel;
    let stage = Stage::new(BACKENDS[2], 1, &text);
    for connection in ["Upgrade", "close, Upgrade"] {
        let mut client = stage.connect();
        client.send(format!(
            "GET /c HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: {connection}\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ));
        let head = client.head_only();
        assert_eq!(head.status, 101);
        assert_eq!(head.head.to_lowercase().matches("\r\nconnection:").count(), 1, "{}", head.head);
    }
}

/// Bytes of the body would be taken for those of the other protocol.
#[test]
fn a_request_with_a_body_does_not_change_the_protocol() {
    let folder = folder();
    let channel = "\n[[hosts.routes]]\npath = \"/c\"\nchannel = {}\n";
    let stage = Stage::new(BACKENDS[2], 1, &(text(folder.path(), "") + channel));
    stage.connect().send("POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx");
    for (body, changes) in [("content-length: 5\r\n", false), ("content-length: 0\r\n", true)] {
        let mut client = stage.connect();
        client.send(format!(
            "GET /c?after=0 HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n{body}\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ));
        let status = client.head_only().status;
        assert_eq!(status == 101, changes, "{body}: {status}");
    }
}

#[test]
fn one_client_has_so_many_connections_and_all_together_so_many() {
    let folder = folder();
    for (limit, most) in [("connections = 5", 5), ("connections_per_client = 3", 3)] {
        // None of them is parked meanwhile.
        let more = format!("[limits]\n{limit}\n[timeouts]\npark = \"1h\"");
        let stage = Stage::new(BACKENDS[2], 2, &text(folder.path(), &more));
        let mut inside: Vec<_> = (0..most).map(|_| stage.connect()).collect();
        for client in &mut inside {
            assert_eq!(client.get("/small.txt").status, 200);
        }
        assert!(stage.connect().is_closed());
        assert_eq!(stage.count(|engine| &engine.refused), 1);
        // A place is free as soon as the server has seen the end.
        drop(inside.pop());
        stage.until(|engine| &engine.active, most - 1);
        let mut next = stage.connect();
        next.send("GET /small.txt HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(next.answer().status, 200);
    }
}

#[test]
fn a_response_arrives_though_the_request_goes_on() {
    let folder = folder();
    let stage = Stage::of_files(BACKENDS[2], 1, folder.path());
    let mut client = stage.connect();
    client.send("POST /small.txt HTTP/1.1\r\nhost: a\r\ncontent-length: 400000\r\n\r\n");
    client.send(vec![b'x'; 100_000]);
    assert_eq!(client.answer().status, 405);
    // Unwanted bytes are read or the connection ends; they are never understood as a request.
    let _ = std::io::Write::write_all(
        client.0.get_mut(),
        "GET /small.txt HTTP/1.1\r\nhost: a\r\n\r\n".repeat(4000).as_bytes(),
    );
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut client.0, &mut rest);
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

/// Most clients read no response before they have sent their whole request.
#[test]
fn a_client_whose_large_body_is_refused_gets_the_response() {
    const LARGE: usize = 48 << 20;
    let folder = folder();
    let more = "[limits]\nbody_bytes = \"1MiB\"\nheader_bytes = \"8KiB\"";
    let channel = "\n[[hosts.routes]]\npath = \"/c\"\nchannel = {}\n";
    let text = text(folder.path(), more) + channel;
    let length = format!("content-length: {LARGE}\r\n");
    let chunk = format!("transfer-encoding: chunked\r\n\r\n{LARGE:x}\r\n");
    let long = format!("x: {}\r\n", "y".repeat(20_000));
    let requests = [
        (405, format!("POST /small.txt HTTP/1.1\r\nhost: a\r\n{length}\r\n")),
        (413, format!("POST /c HTTP/1.1\r\nhost: a\r\n{length}\r\n")),
        (413, format!("POST /c HTTP/1.1\r\nhost: a\r\n{chunk}")),
        (400, format!("POST /c HTTP/1.1\r\n{length}\r\n")),
        (404, format!("POST /c/x HTTP/1.1\r\nhost: a\r\n{length}\r\n")),
        (431, format!("POST /c HTTP/1.1\r\nhost: a\r\n{length}{long}\r\n")),
        (400, format!("POST /c HTTP/1.1\r\nhost : a\r\n{length}\r\n")),
    ];
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text);
        for (status, request) in &requests {
            let mut client = stage.connect();
            client.send(request);
            client.send(vec![b'x'; LARGE]);
            let answer = client.answer();
            assert_eq!(answer.status, *status, "{backend:?} {request:?}");
            // No other request can follow, which the client is told.
            let head = answer.head.to_lowercase();
            assert!(head.contains("\r\nconnection: close\r\n"), "{request:?}: {head}");
            assert!(client.is_closed());
        }
        assert_eq!(stage.drained(), 0, "{backend:?}");
    }
}

#[test]
fn a_connection_may_make_so_many_requests_parked_or_not() {
    let folder = folder();
    let more = "[limits]\nrequests_per_connection = 3\n[timeouts]\npark = \"40ms\"";
    for parks in [false, true] {
        let stage = Stage::new(BACKENDS[3], 1, &text(folder.path(), more));
        let mut client = stage.connect();
        for round in 1..=3 {
            let answer = client.get("/small.txt");
            assert_eq!(answer.status, 200);
            assert_eq!(answer.head.contains("connection: close\r\n"), round == 3, "{round}");
            if parks && round < 3 {
                stage.until(|engine| &engine.parked, 1);
            }
        }
        assert!(client.is_closed());
    }
}

#[test]
fn requests_refused_by_their_head_are_in_the_access_log() {
    let folder = folder();
    let log = folder.path().join("log");
    for backend in [BACKENDS[2], BACKENDS[3]] {
        let _ = std::fs::remove_file(&log);
        let more = format!("[limits]\nheader_bytes = \"8KiB\"\n[access_log]\npath = {log:?}\n");
        let stage = Stage::new(backend, 1, &text(folder.path(), &more));
        let long = format!("GET /long HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(20_000));
        let fields: String = (0..120).map(|number| format!("x-{number}: y\r\n")).collect();
        let many = format!("GET /many HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
        for (sent, status) in [
            ("GET /bad HTTP/9.9\r\n\r\n", 505),
            ("\r\nGET /\x1b[2J HTTP/1.1\r\n\r\n", 400),
            ("GET /host HTTP/1.1\r\nhost: a@b\r\n\r\n", 400),
            (&*long, 431),
            (&*many, 431),
        ] {
            let mut client = stage.connect();
            client.send(sent);
            assert_eq!(client.answer().status, status, "{sent:?}");
        }
        let refused = [
            ("head-too-large", 1),
            ("host-invalid", 1),
            ("target", 1),
            ("too-many-fields", 1),
            ("version-unsupported", 1),
        ];
        assert_eq!(stage.refused_heads().into_iter().collect::<Vec<_>>(), refused);
        assert_eq!(stage.drained(), 0);
        let more = format!("{more}[timeouts]\nheader = \"60s\"\n");
        let stage = Stage::new(backend, 1, &text(folder.path(), &more));
        let mut client = stage.connect();
        client.send("GET /slow HTTP/1.1\r\n");
        stage.elapse(Duration::from_secs(65));
        assert_eq!(client.answer().status, 408);
        drop(client);
        assert_eq!(stage.drained(), 0);
        let lines = find("there are six lines", || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let lines = text.lines().map(|line| line.split("] ").nth(1).unwrap().to_owned());
            Some(lines.collect::<Vec<_>>()).filter(|lines| lines.len() >= 6)
        });
        let expected = [
            "\"GET /bad HTTP/9.9\" 505 59 \"-\" \"-\"",
            "\"GET /\\x1B[2J HTTP/1.1\" 400 49 \"-\" \"-\"",
            "\"GET /host HTTP/1.1\" 400 39 \"-\" \"-\"",
            "\"GET /long HTTP/1.1\" 431 59 \"-\" \"-\"",
            "\"GET /many HTTP/1.1\" 431 66 \"-\" \"-\"",
            "\"GET /slow HTTP/1.1\" 408 0 \"-\" \"-\"",
        ];
        assert_eq!(lines, expected);
    }
}

#[test]
fn a_dot_in_a_path_is_the_folder_itself() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("sub/x"), "x").unwrap();
    let text = text(folder.path(), "")
        + "[[hosts.routes]]\npath = \"/sub\"\nredirect.to = \"/elsewhere\"\n";
    let stage = Stage::new(BACKENDS[2], 1, &text);
    let mut client = stage.connect();
    for (path, status) in [
        ("/./small.txt", 200),
        ("/%2e/small.txt", 200),
        ("//small.txt", 200),
        ("/x/../small.txt", 400),
        ("/sub/x", 308),
        // Other spellings of another route's path.
        ("/./sub/x", 400),
        ("//sub/x", 400),
        ("/%73ub/x", 400),
    ] {
        for _ in 0..2 {
            assert_eq!(client.get(path).status, status, "{path}");
        }
    }
}

#[test]
fn a_connection_with_a_discarded_upload_becomes_idle() {
    let folder = folder();
    let text = text(folder.path(), "[timeouts]\nheader = \"60s\"\npark = \"10s\"\nidle = \"1h\"");
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text);
        let mut client = stage.connect();
        client.send("POST /small.txt HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello");
        let answer = client.answer();
        assert_eq!(answer.status, 405);
        assert!(!answer.head.to_lowercase().contains("connection: close"), "{}", answer.head);
        // It is parked like any other connection, and not told that its next request has not come
        // in time.
        stage.elapse(Duration::from_secs(70));
        stage.until(|engine| &engine.parked, 1);
        assert_eq!(client.get("/small.txt").status, 200, "{backend:?}");
        assert_eq!(stage.count(|engine| &engine.timed_out), 0);
    }
}

#[test]
fn an_answer_says_whether_another_request_may_follow() {
    let folder = folder();
    let stage = Stage::new(BACKENDS[2], 1, &text(folder.path(), ""));
    // The last one is answered by a future.
    let targets = [("small.txt", "a", 405), ("none", "a", 405), ("_superpoll/", "localhost", 405)];
    let closes = |head: &str| head.to_lowercase().contains("\r\nconnection: close\r\n");
    for (target, host, status) in targets {
        let head = format!("POST /{target} HTTP/1.1\r\nhost: {host}\r\n");
        // All of the body has come with the head, and is thrown away.
        let mut client = stage.connect();
        for _ in 0..3 {
            client.send(format!("{head}content-length: 5\r\n\r\nhello"));
            let answer = client.answer();
            assert_eq!(answer.status, status, "{target}");
            assert!(!closes(&answer.head), "{}", answer.head);
        }
        assert_eq!(client.get("/small.txt").status, 200);
        // Some of it has not come, or its length is unknown.
        for body in [
            "content-length: 6\r\n\r\nhello",
            "content-length: 100000\r\n\r\n",
            "expect: 100-continue\r\ncontent-length: 5\r\n\r\n",
            "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        ] {
            let mut client = stage.connect();
            client.send(format!("{head}{body}"));
            let answer = client.answer();
            assert_eq!(answer.status, status, "{target} {body:?}");
            assert!(closes(&answer.head), "{body:?}: {}", answer.head);
            assert!(client.is_closed());
        }
    }
}
