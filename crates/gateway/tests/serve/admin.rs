//! The admin listener: its paths and methods, and the requests of foreign sites, which it refuses.

use superpoll_rt::BackendKind;

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
        (format!("PATCH {at}"), JSON, &long, 400, "more than 4096 bytes"),
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

#[test]
fn clients_and_users_that_are_not_allowed_are_refused() {
    let stage = Stage::new(BackendKind::Epoll, 1, &text("allow = [\"10.0.0.0/8\"]"));
    assert_eq!(get(&stage, "/api/status").status, 403);
    assert_eq!(get(&stage, "/metrics").status, 403);
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

#[test]
fn it_answers_though_clients_have_all_connections_and_no_more_than_its_own() {
    let stage =
        Stage::new(BackendKind::Epoll, 1, &format!("{}[limits]\nconnections = 1\n", text("")));
    let mut first = stage.connect();
    assert_eq!(first.get("/").status, 308);
    let mut second = stage.connect();
    second.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(second.is_closed());
    assert_eq!(get(&stage, "/api/upstreams").status, 200);
    let held: Vec<Client> = (0..64)
        .map(|_| {
            let mut client = connect(&stage);
            client.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
            assert_eq!(client.answer().status, 200);
            client
        })
        .collect();
    let mut further = connect(&stage);
    further.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(further.is_closed());
    drop(held);
}

#[test]
fn another_configuration_may_have_another_admin_listener_or_none() {
    let stage = Stage::new(BackendKind::Epoll, 1, &text(""));
    let mut client = connect(&stage);
    let ask = |client: &mut Client| {
        client.send("GET /api/upstreams HTTP/1.1\r\nhost: a.internal\r\n\r\n");
        client.answer().status
    };
    assert_eq!(ask(&mut client), 421);
    let until = |client: &mut Client, status: u16| {
        let end = std::time::Instant::now() + PATIENCE;
        while ask(client) != status {
            assert!(std::time::Instant::now() < end);
        }
    };
    stage.change(&text("hosts = [\"a.internal\"]"));
    until(&mut client, 200);
    let none = format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n{SITE}");
    stage.change(&none);
    until(&mut client, 404);
}
