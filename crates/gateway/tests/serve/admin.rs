//! The admin listener: its paths and methods, and the requests of foreign sites, which it refuses.

use std::io::{Read, Write};
use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};
use superpoll_gateway::Address;
use superpoll_rt::BackendKind;
use superpoll_test_support::until;

use crate::stage::{Answer, BACKENDS, Client, PATIENCE, Stage};

const SITE: &str = "[[hosts]]\n[[hosts.routes]]\nredirect = { to = \"/x\" }\n\
                    [upstreams.app]\nservers = [{ address = \"127.0.0.1:1\" }]\n";

fn text(admin: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[timeouts]\npark = \"40ms\"\n{SITE}\
         [admin]\naddress = \"127.0.0.1:0\"\n{admin}\n"
    )
}

/// Connects to the admin listener, which is the last one.
fn connect(stage: &Stage) -> Client {
    let address = stage.addresses.last().unwrap().to_string();
    let stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Client(std::io::BufReader::new(stream))
}

/// Sends a request with these fields and this body on a connection of its own.
fn ask(stage: &Stage, line: &str, fields: &str, body: &str) -> Answer {
    let mut client = connect(stage);
    let length = body.len();
    let length =
        if body.is_empty() { String::new() } else { format!("content-length: {length}\r\n") };
    client.send(format!("{line} HTTP/1.1\r\n{fields}{length}\r\n{body}"));
    match line.starts_with("HEAD") {
        true => client.head_only(),
        false => client.answer(),
    }
}

fn get(stage: &Stage, path: &str) -> Answer {
    ask(stage, &format!("GET {path}"), "host: localhost\r\n", "")
}

fn body(answer: &Answer) -> &str {
    std::str::from_utf8(&answer.body).unwrap()
}

fn json(answer: &Answer) -> serde_json::Value {
    serde_json::from_str(body(answer)).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

const JSON: &str = "host: localhost\r\ncontent-type: application/json\r\n";

#[test]
fn metrics_readiness_and_the_page_are_there_and_nothing_of_the_hosts() {
    for backend in BACKENDS {
        let stage = Stage::new(backend, 2, &text(""));
        for (path, said) in [
            ("/metrics", "superpoll_build_info"),
            ("/readyz", "ready"),
            ("/healthz", "ok"),
            ("/_superpoll/", "<!doctype html>"),
            ("/", "/api/upstreams"),
            ("/api/upstreams", "\"address\": \"127.0.0.1:1\""),
            ("/api/upstreams/app", "\"healthy\": true"),
            ("/api/channels", "\"channels\": []"),
            ("/api/snapshot", "\"schema\": 1"),
            ("/api/connections?limit=3", "\"http/1.1\""),
        ] {
            let answer = get(&stage, path);
            assert_eq!(answer.status, 200, "{backend:?} {path}: {answer:?}");
            let text = body(&answer).to_lowercase();
            assert!(text.contains(said), "{backend:?} {path}: {text}");
        }
        for path in
            ["/x", "/api", "/api/", "/api/upstreams/", "/api/upstreams/app/servers", "/api/x"]
        {
            let answer = get(&stage, path);
            assert_eq!(answer.status, 404, "{path}: {answer:?}");
        }
        // Streams are for the statistics socket.
        assert_eq!(get(&stage, "/api/snapshots").status, 404);
        let answer = get(&stage, "/api/status");
        assert_eq!((answer.status, json(&answer)["state"].as_str()), (200, Some("serving")));
        // The hosts do not have these paths by that.
        for path in ["/metrics", "/api/upstreams", "/healthz"] {
            assert_eq!(stage.connect().get(path).status, 308, "{path}");
        }
        assert_eq!(stage.drained(), 0);
    }
}

#[test]
fn wrong_methods_are_refused_with_those_that_there_are() {
    let stage = Stage::new(BackendKind::Epoll, 1, &text(""));
    for (path, allowed) in [
        ("/metrics", "GET, HEAD"),
        ("/readyz", "GET, HEAD"),
        ("/healthz", "GET, HEAD"),
        ("/", "GET, HEAD"),
        ("/api/status", "GET, HEAD"),
        ("/api/upstreams", "GET, HEAD"),
        ("/api/upstreams/app", "GET, HEAD"),
        ("/api/upstreams/app/servers/127.0.0.1:1", "PATCH, PUT, POST"),
        ("/api/connections", "GET, HEAD, DELETE"),
        ("/api/channels", "GET, HEAD"),
        ("/api/log", "GET, HEAD, PUT"),
        ("/api/reload", "POST"),
        ("/api/drain", "POST"),
        ("/api/upgrade", "POST"),
        ("/api/reopen-logs", "POST"),
        ("/api/snapshot", "GET, HEAD"),
        ("/api/snapshots", "GET, HEAD"),
    ] {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "X"] {
            if allowed.split(", ").any(|known| known == method) {
                continue;
            }
            let answer = ask(&stage, &format!("{method} {path}"), JSON, "");
            assert_eq!(answer.status, 405, "{method} {path}: {answer:?}");
            let said = format!("allow: {allowed}\r\n").to_lowercase();
            assert!(answer.head.to_lowercase().contains(&said), "{method} {path}: {answer:?}");
        }
    }
}

#[test]
fn a_foreign_host_or_origin_is_refused_whatever_it_asks_for() {
    let stage = Stage::new(BackendKind::Epoll, 1, &text("hosts = [\"Admin.internal\"]"));
    let (down, at) = ("{\"state\":\"down\"}", "/api/upstreams/app/servers/127.0.0.1:1");
    for line in ["GET /api/status", "GET /metrics", "GET /_superpoll/", &format!("PATCH {at}")] {
        let body = if line.starts_with("PATCH") { down } else { "" };
        let ask = |fields: &str| {
            ask(&stage, line, &format!("{fields}content-type: application/json\r\n"), body).status
        };
        for (fields, status) in [
            ("host: evil.example\r\n", 421),
            ("host: localhost.evil.example\r\n", 421),
            ("host: 127.0.0.1.evil.example\r\n", 421),
            ("host: u@localhost\r\n", 400),
            ("host: localhost\r\nhost: evil.example\r\n", 400),
            ("host: localhost\r\norigin: http://evil.example\r\n", 403),
            ("host: localhost\r\norigin: null\r\n", 403),
            ("host: localhost\r\norigin: http://localhost:81\r\n", 403),
            ("host: localhost\r\norigin: http://localhost\r\norigin: http://evil.example\r\n", 400),
        ] {
            assert_eq!(ask(fields), status, "{line} {fields}");
        }
        assert_eq!(get(&stage, "/api/upstreams").status, 200);
        let state =
            json(&get(&stage, "/api/upstreams"))["upstreams"][0]["servers"][0]["state"].clone();
        assert_eq!(state, "up", "{line}");
    }
    // The target names the host as well.
    let answer = ask(&stage, "GET http://evil.example/api/status", "host: localhost\r\n", "");
    assert_eq!(answer.status, 421);
    for fields in [
        "host: localhost:9090\r\n",
        "host: LOCALHOST\r\n",
        "host: a.localhost\r\n",
        "host: 10.1.2.3\r\n",
        "host: [::1]:1\r\n",
        "host: admin.INTERNAL.\r\n",
        "host: localhost\r\norigin: http://localhost\r\n",
        "host: localhost\r\nsec-fetch-site: cross-site\r\n",
    ] {
        assert_eq!(ask(&stage, "GET /api/upstreams", fields, "").status, 200, "{fields}");
    }
    for site in ["cross-site", "same-site"] {
        let fields = format!("{JSON}sec-fetch-site: {site}\r\n");
        assert_eq!(ask(&stage, &format!("PATCH {at}"), &fields, down).status, 403, "{site}");
        assert_eq!(ask(&stage, "POST /api/drain", &fields, "").status, 403, "{site}");
    }
    let own = format!("{JSON}sec-fetch-site: same-origin\r\norigin: http://localhost\r\n");
    assert_eq!(ask(&stage, &format!("PATCH {at}"), &own, down).status, 200);
}

#[test]
fn bodies_and_names_that_are_wrong_change_nothing_and_say_what_was_expected() {
    let stage = Stage::new(BackendKind::Epoll, 1, &text(""));
    let at = "/api/upstreams/app/servers/127.0.0.1:1";
    let long = format!("{{\"state\":\"{}\"}}", "x".repeat(5000));
    for (line, fields, text, status, said) in [
        (format!("PATCH {at}"), "host: localhost\r\n", "{\"state\":\"down\"}", 415, "Content-Type"),
        (
            format!("PATCH {at}"),
            "host: localhost\r\ncontent-type: text/plain\r\n",
            "{\"state\":\"down\"}",
            415,
            "application/json",
        ),
        (
            "POST /api/drain".to_owned(),
            "host: localhost\r\ncontent-type: application/x-www-form-urlencoded\r\n",
            "",
            415,
            "application/json",
        ),
        (format!("PATCH {at}"), JSON, "{\"state\":\"off\"}", 400, "expected \\\"up\\\""),
        (format!("PATCH {at}"), JSON, "{", 400, "cannot be read"),
        (format!("PATCH {at}"), JSON, "", 400, "expected an object"),
        (format!("PATCH {at}"), JSON, "{}", 400, "nothing to change"),
        (format!("PATCH {at}"), JSON, &long, 413, "more than 4096 bytes"),
        (
            "PATCH /api/upstreams/ap/servers/127.0.0.1:1".to_owned(),
            JSON,
            "{\"state\":\"down\"}",
            404,
            "no upstream \\\"ap\\\", expected one of app",
        ),
        (
            "PATCH /api/upstreams/app/servers/127.0.0.1:2".to_owned(),
            JSON,
            "{\"state\":\"down\"}",
            404,
            "expected one of 127.0.0.1:1",
        ),
        ("GET /api/upstreams/ap".to_owned(), JSON, "", 404, "expected one of app"),
        ("GET /api/connections?limit=0".to_owned(), JSON, "", 400, "expected 1 to 1000"),
        ("DELETE /api/connections".to_owned(), JSON, "", 400, "expected client=ADDRESS"),
        ("DELETE /api/connections?client=x".to_owned(), JSON, "", 400, "expected an IP address"),
        ("PUT /api/log".to_owned(), JSON, "{\"level\":\"all\"}", 400, "expected \\\"info\\\""),
        // This server's user has no log, and takes no commands.
        ("PUT /api/log".to_owned(), JSON, "{\"level\":\"info\"}", 503, "no level"),
        ("GET /api/log".to_owned(), JSON, "", 503, "no level"),
        ("POST /api/drain".to_owned(), JSON, "", 503, "no commands"),
        ("POST /api/drain?follow=true".to_owned(), JSON, "", 404, "statistics socket"),
        ("POST /api/reload".to_owned(), JSON, "{\"a\":1}", 400, "expected none"),
    ] {
        let answer = ask(&stage, &line, fields, text);
        assert_eq!(answer.status, status, "{line}: {answer:?}");
        assert!(body(&answer).contains(said), "{line}: {answer:?}");
        assert!(json(&answer)["error"].is_string());
    }
    let server = json(&get(&stage, "/api/upstreams/app"))["servers"][0].clone();
    assert_eq!((&server["state"], &server["weight"]), (&"up".into(), &1.into()));
}

/// Connects to the admin listener from another address of this machine.
fn connect_from(stage: &Stage, client: [u8; 4]) -> Client {
    let Address::Tcp { port, .. } = stage.addresses.last().unwrap() else { panic!("no port") };
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((client, 0)).into()).unwrap();
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], *port)).into()).unwrap();
    let stream = std::net::TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Client(std::io::BufReader::new(stream))
}

/// Whether the server ends a connection within the patience of a test. It may do so while bytes of
/// the client are on their way, which resets the connection.
fn is_ended(client: &mut Client) -> bool {
    match client.0.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

fn says_close(answer: &Answer) -> bool {
    answer.head.to_lowercase().contains("\r\nconnection: close\r\n")
}

fn is_healthy(client: &mut Client) -> bool {
    client.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
    client.answer().status == 200
}

#[test]
fn clients_and_users_that_are_not_allowed_are_refused() {
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text("allow = [\"127.0.0.2\"]"));
        assert!(is_ended(&mut connect(&stage)), "{backend:?}");
        assert!(is_healthy(&mut connect_from(&stage, [127, 0, 0, 2])));
        // A connection that is there already is refused with its next request.
        let mut client = connect_from(&stage, [127, 0, 0, 2]);
        assert!(is_healthy(&mut client));
        stage.change(&text("deny = [\"127.0.0.2\"]"));
        until("the client is refused", || is_ended_with(&mut connect_from(&stage, [127, 0, 0, 2])));
        client.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let answer = client.answer();
        assert_eq!((answer.status, says_close(&answer)), (403, true));
        assert!(is_ended(&mut client));
        assert!(is_healthy(&mut connect(&stage)));
    }
    let users = "[admin.basic_auth]\nusers = { joe = \"$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\" }\n";
    let stage = Stage::new(BackendKind::Epoll, 1, &text(users));
    assert_eq!(get(&stage, "/metrics").status, 401);
    let with = |password: &str| {
        let fields = format!("host: localhost\r\nauthorization: Basic {password}\r\n");
        ask(&stage, "GET /api/upstreams", &fields, "").status
    };
    // joe:secret, joe:wrong
    for _ in 0..2 {
        assert_eq!((with("am9lOnNlY3JldA=="), with("am9lOndyb25n")), (200, 401));
    }
}

/// Whether a new connection is ended without an answer to its request.
fn is_ended_with(client: &mut Client) -> bool {
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let sent = client.0.get_mut().write_all(request);
    let mut all = Vec::new();
    sent.is_err() || client.0.read_to_end(&mut all).is_err() || all.is_empty()
}

#[test]
fn a_refusal_ends_its_connection() {
    let users = "[admin.basic_auth]\nusers = { joe = \"$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\" }\n";
    let wrong = "authorization: Basic am9lOndyb25n\r\n";
    for (admin, fields, status) in [
        (users, "host: localhost\r\n".to_owned(), 401),
        (users, format!("host: localhost\r\n{wrong}"), 401),
        ("", "host: localhost\r\norigin: null\r\n".to_owned(), 403),
        ("", "host: evil.example\r\n".to_owned(), 421),
    ] {
        let stage = Stage::new(BackendKind::Adaptive, 1, &text(admin));
        let mut client = connect(&stage);
        client.send(format!("GET /metrics HTTP/1.1\r\n{fields}\r\n"));
        let answer = client.answer();
        assert_eq!((answer.status, says_close(&answer)), (status, true));
        assert!(is_ended(&mut client), "{status}");
    }
}

#[test]
fn it_answers_though_clients_have_all_connections() {
    let stage =
        Stage::new(BackendKind::Epoll, 1, &format!("{}[limits]\nconnections = 1\n", text("")));
    let mut first = stage.connect();
    assert_eq!(first.get("/").status, 308);
    let mut second = stage.connect();
    second.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(second.is_closed());
    assert_eq!(get(&stage, "/api/upstreams").status, 200);
}

/// Clients of several addresses have all connections of the admin listener, silent or after a
/// request. A further one replaces the one that has been idle longest, however long they rest; that
/// of a client with its share is one of its own.
#[test]
fn an_operator_gets_in_though_others_have_all_of_its_connections() {
    for backend in BACKENDS {
        let stage = Stage::new(backend, 2, &text(""));
        let (one, two, three) = ([127, 0, 0, 1], [127, 0, 0, 2], [127, 0, 0, 3]);
        let mut served = connect_from(&stage, one);
        assert!(is_healthy(&mut served));
        let mut idle = connect_from(&stage, one);
        assert!(is_healthy(&mut idle));
        assert!(is_healthy(&mut served), "{backend:?}");
        let own: Vec<Client> = (2..32).map(|_| connect_from(&stage, one)).collect();
        stage.until(|engine| &engine.accepted, 32);
        // The 33rd of the first client.
        let mut further = connect_from(&stage, one);
        assert!(is_healthy(&mut further), "{backend:?}");
        assert!(is_ended(&mut idle), "{backend:?}");
        assert!(is_healthy(&mut served), "{backend:?}");
        // Another client has a half of its own.
        let mut others: Vec<Client> = (0..32).map(|_| connect_from(&stage, two)).collect();
        stage.until(|engine| &engine.accepted, 33 + 32);
        assert!(others.iter_mut().all(is_healthy), "{backend:?}");
        assert!(is_healthy(&mut served), "{backend:?}");
        // The listener is full: those of the first client that never spoke are the first to go.
        for _ in 0..2 {
            let mut operator = connect_from(&stage, three);
            assert!(is_healthy(&mut operator), "{backend:?}");
            others.push(operator);
        }
        until("two clients have ended", || {
            own.iter().filter(|client| has_ended(client)).count() == 2
        });
        assert!(is_healthy(&mut served), "{backend:?}");
        assert!(others.iter_mut().all(is_healthy), "{backend:?}");
    }
}

/// Whether the server has ended a connection by now.
fn has_ended(client: &Client) -> bool {
    let stream = client.0.get_ref();
    stream.set_nonblocking(true).unwrap();
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    match seen {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// Requests under way are not cut off for further connections, which are refused then: with as many
/// as the client's share, or as there may be at all.
#[test]
fn requests_under_way_keep_their_connections() {
    let stage = Stage::new(BackendKind::Adaptive, 1, &text(""));
    let begin = |client: [u8; 4]| {
        let mut client = connect_from(&stage, client);
        client.send("PUT /api/log HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n");
        // The server reads the body, so the request is under way.
        assert_eq!(client.head_only().status, 100);
        client
    };
    let mut held: Vec<Client> = (0..32).map(|_| begin([127, 0, 0, 1])).collect();
    assert!(is_ended(&mut connect(&stage)));
    held.extend((0..32).map(|_| begin([127, 0, 0, 2])));
    assert!(is_ended(&mut connect_from(&stage, [127, 0, 0, 3])));
    for client in &mut held {
        client.send("{}");
        assert_eq!(client.answer().status, 400);
    }
    assert!(is_healthy(&mut connect_from(&stage, [127, 0, 0, 3])));
}

#[test]
fn another_configuration_may_have_another_admin_listener_or_none() {
    let stage = Stage::new(BackendKind::Epoll, 1, &text(""));
    let ask = |client: &mut Client| {
        client.send("GET /api/upstreams HTTP/1.1\r\nhost: a.internal\r\n\r\n");
        client.answer().status
    };
    assert_eq!(ask(&mut connect(&stage)), 421);
    stage.change(&text("hosts = [\"a.internal\"]"));
    until("the client is allowed", || ask(&mut connect(&stage)) == 200);
    let mut client = connect(&stage);
    assert_eq!(ask(&mut client), 200);
    let none = format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n{SITE}");
    stage.change(&none);
    until("the client is refused", || ask(&mut client) == 404);
}
