//! The rules of routes and hosts with files, by handlers, by the lane, and over HTTP/2.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use http_body_util::BodyExt;
use superpoll_rt::{BackendKind, Runtime};

use crate::http2::{Trust, port};
use crate::stage::{Answer, BACKENDS, Client, Stage};
use crate::websocket2::Connection2;

/// The hash of `secret`.
const HASH: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
/// `Basic` and joe:secret.
const JOE: &str = "Authorization: Basic am9lOnNlY3JldA==\r\n";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("index.html", "<p>index"),
        ("a.txt", "hello\n"),
        ("404.html", "<p>not here"),
        ("4xx.html", "<p>your fault"),
        (".hidden", "secret"),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    folder
}

/// A configuration with a host and a route of files.
fn text(folder: &Path, host: &str, route: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n{host}\n\
         [[hosts.routes]]\npath = \"/f\"\nfiles.root = {folder:?}\n{route}\n\
         [[hosts.routes]]\npath = \"/old\"\nredirect.to = \"/f/\"\n"
    )
}

fn ask(client: &mut Client, method: &str, path: &str, fields: &str) -> Answer {
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    match method {
        "HEAD" => client.head_only(),
        _ => client.answer(),
    }
}

/// The values of a field, joined.
fn field(answer: &Answer, name: &str) -> Option<String> {
    let fields = answer.head.lines().filter_map(|line| line.split_once(": "));
    let values: Vec<&str> = fields
        .filter(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .collect();
    (!values.is_empty()).then(|| values.join("|"))
}

/// Asks until the answer has taken the lane, and returns it.
fn by_lane(stage: &Stage, method: &str, path: &str, fields: &str) -> Answer {
    for _ in 0..200 {
        let mut client = stage.connect();
        let before = stage.count(|engine| &engine.lane);
        let answer = ask(&mut client, method, path, fields);
        // It is counted behind the last byte, before the answer to a request behind.
        ask(&mut client, "GET", "/none", "");
        if stage.count(|engine| &engine.lane) > before {
            return answer;
        }
    }
    panic!("{path} never takes the lane");
}

#[test]
fn fields_are_changed_in_every_answer() {
    let folder = folder();
    let host = "headers = { set = { X-Host = \"h\", Cache-Control = \"no-cache\" }, add = { Vary = \"Origin\" }, remove = [\"ETag\"] }";
    let route = "headers = { set = { X-Route = [\"1\", \"2\"], X-Host = \"r\" }, add = { Link = \"</a>\" } }";
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text(folder.path(), host, route));
        let check = |answer: &Answer, status: u16, is_routed: bool| {
            assert_eq!(answer.status, status, "{answer:?}");
            let host = if is_routed { "r" } else { "h" };
            assert_eq!(field(answer, "x-host").as_deref(), Some(host), "{answer:?}");
            assert_eq!(
                field(answer, "x-route").as_deref(),
                is_routed.then_some("1|2"),
                "{answer:?}"
            );
            assert_eq!(field(answer, "link").as_deref(), is_routed.then_some("</a>"), "{answer:?}");
            assert_eq!(field(answer, "cache-control").as_deref(), Some("no-cache"), "{answer:?}");
            assert_eq!(field(answer, "vary").as_deref(), Some("Origin"), "{answer:?}");
            assert_eq!(field(answer, "etag"), None, "{answer:?}");
            assert!(field(answer, "date").is_some() && answer.head.matches("ate: ").count() == 1);
        };
        let mut client = stage.connect();
        check(&ask(&mut client, "GET", "/f/a.txt", ""), 200, true);
        for method in ["GET", "HEAD"] {
            let answer = by_lane(&stage, method, "/f/a.txt", "");
            check(&answer, 200, true);
            assert_eq!(field(&answer, "content-length").as_deref(), Some("6"));
        }
        let since = "If-Modified-Since: Mon, 01 Jan 2035 00:00:00 GMT\r\n";
        check(&ask(&mut client, "GET", "/f/a.txt", since), 304, true);
        check(&ask(&mut client, "GET", "/f/a.txt", "Range: bytes=1-2\r\n"), 206, true);
        check(&ask(&mut client, "GET", "/f/none", ""), 404, true);
        check(&ask(&mut client, "DELETE", "/f/a.txt", ""), 405, true);
        check(&ask(&mut client, "GET", "/f/empty", ""), 308, true);
        check(&ask(&mut client, "GET", "/f/./../x", ""), 400, true);
        check(&ask(&mut client, "GET", "/old", ""), 308, false);
        check(&ask(&mut client, "GET", "/none", ""), 404, false);
    }
}

/// `try_files` of nginx and of Caddy send the file for every path without one.
#[test]
fn paths_without_a_file_are_answered_with_the_fallback() {
    let folder = folder();
    let route = "files.fallback = \"/index.html\"\nheaders.set = { x = \"1\" }";
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text(folder.path(), "", route));
        let mut client = stage.connect();
        for path in [
            "/f/app/view?x=1",
            "/f/app.js",
            "/f/a.txt/",
            "/f/.hidden",
            "/f/empty/",
            "/f/%2E%2Ex",
            "/f/app/view",
        ] {
            let answer = ask(&mut client, "GET", path, "");
            assert_eq!((answer.status, &answer.body[..]), (200, &b"<p>index"[..]), "{path}");
            assert_eq!(field(&answer, "content-type").as_deref(), Some("text/html; charset=utf-8"));
            let head = ask(&mut client, "HEAD", path, "");
            assert_eq!((head.status, field(&head, "content-length").as_deref()), (200, Some("8")));
        }
        let tag = field(&ask(&mut client, "GET", "/f/x", ""), "etag").unwrap();
        assert_eq!(
            ask(&mut client, "GET", "/f/y", &format!("If-None-Match: {tag}\r\n")).status,
            304
        );
        for (method, path, status) in [
            ("GET", "/f/a.txt", 200),
            ("GET", "/f/empty", 308),
            ("GET", "/f/a%2Fb", 400),
            ("POST", "/f/app", 405),
            ("GET", "/none", 404),
        ] {
            let answer = ask(&mut client, method, path, "");
            assert_eq!(answer.status, status, "{method} {path}");
            assert_ne!(answer.body, b"<p>index", "{method} {path}");
        }
        assert_eq!(by_lane(&stage, "GET", "/f/a.txt", "").body, b"hello\n");
    }
    // A fallback that is missing, or is no file, is an error like any other.
    for fallback in ["/none.html", "/empty", "/empty/", "/.hidden"] {
        let route = format!("files.fallback = {fallback:?}");
        let stage = Stage::new(BACKENDS[2], 1, &text(folder.path(), "", &route));
        assert_eq!(ask(&mut stage.connect(), "GET", "/f/x", "").status, 404, "{fallback}");
    }
}

#[test]
fn errors_have_pages() {
    let folder = folder();
    let page = |name: &str| folder.path().join(name);
    let host = format!("errors = {{ 404 = {:?}, 4xx = {:?} }}", page("404.html"), page("4xx.html"));
    let route = format!("errors.405 = {:?}\nheaders.set = {{ x = \"1\" }}", page("index.html"));
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text(folder.path(), &host, &route));
        let mut client = stage.connect();
        for (method, path, fields, status, body) in [
            ("GET", "/f/none", "", 404, "<p>not here"),
            ("GET", "/none", "", 404, "<p>not here"),
            ("GET", "/f/a%2Fb", "", 400, "<p>your fault"),
            ("GET", "/f/a.txt", "Range: bytes=10-\r\n", 416, "<p>your fault"),
            ("PUT", "/f/a.txt", "", 405, "<p>index"),
            ("GET", "/f/a.txt", "", 200, "hello\n"),
        ] {
            let answer = ask(&mut client, method, path, fields);
            let found = (answer.status, std::str::from_utf8(&answer.body).unwrap());
            assert_eq!(found, (status, body), "{method} {path}");
            if status != 200 {
                let kind = field(&answer, "content-type");
                assert_eq!(kind.as_deref(), Some("text/html; charset=utf-8"), "{answer:?}");
            }
            // The fields that tell about the error stay.
            let about = [field(&answer, "allow"), field(&answer, "content-range")];
            assert_eq!(about.iter().flatten().count(), usize::from([405, 416].contains(&status)));
            assert_eq!(field(&answer, "x").is_some(), path != "/none");
        }
        let head = ask(&mut client, "HEAD", "/f/none", "");
        assert_eq!((head.status, field(&head, "content-length").as_deref()), (404, Some("11")));
        assert_eq!(ask(&mut client, "GET", "/f/a.txt", "").body, b"hello\n");
    }
    // The page of the route for a class counts more than the page of the host for a status.
    let route = format!("errors.4xx = {:?}", page("index.html"));
    let stage = Stage::new(BACKENDS[2], 1, &text(folder.path(), &host, &route));
    assert_eq!(ask(&mut stage.connect(), "GET", "/f/none", "").body, b"<p>index");
    // It is in memory.
    std::fs::remove_file(page("404.html")).unwrap();
    assert_eq!(ask(&mut stage.connect(), "GET", "/none", "").body, b"<p>not here");
}

/// A client that connects by a proxy, with this address.
fn client_from(stage: &Stage, address: &str) -> Client {
    let mut client = stage.connect();
    let family = if address.contains(':') { "TCP6" } else { "TCP4" };
    client.send(format!("PROXY {family} {address} {address} 1000 80\r\n"));
    client
}

#[test]
fn clients_are_refused_by_their_address() {
    let folder = folder();
    let route = "allow = [\"10.0.0.0/8\", \"2001:db8::/32\"]\ndeny = [\"10.1.0.0/16\"]\nheaders.set = { x = \"1\" }";
    for backend in BACKENDS {
        let text =
            text(folder.path(), "", route).replace(":0\"\n", ":0\"\nproxy_protocol = true\n");
        let stage = Stage::new(backend, 1, &text);
        // The file is in memory, where requests take the lane.
        for round in 0..4 {
            for (address, status) in [
                ("10.2.3.4", 200),
                ("2001:db8::1", 200),
                ("::ffff:10.2.3.4", 200),
                ("10.1.3.4", 403),
                ("::ffff:10.1.3.4", 403),
                ("11.2.3.4", 403),
                ("2001:db9::1", 403),
            ] {
                let mut client = client_from(&stage, address);
                for path in ["/f/a.txt", "/f/a.txt", "/f/%61.txt", "/f//a.txt"] {
                    let fields = "X-Forwarded-For: 10.2.3.4\r\nX-Real-IP: 10.2.3.4\r\n";
                    let answer = ask(&mut client, "GET", path, fields);
                    assert_eq!(answer.status, status, "{backend:?} {round} {address} {path}");
                    assert_eq!(answer.body == b"hello\n", status == 200);
                    assert_eq!(field(&answer, "x").as_deref(), Some("1"));
                }
                assert_eq!(ask(&mut client, "GET", "/old", "").status, 308);
            }
        }
        assert!(stage.count(|engine| &engine.lane) > 0, "{backend:?}");
    }
}

#[test]
fn clients_of_unix_sockets_have_no_address() {
    let folder = folder();
    let socket = folder.path().join("socket");
    for (route, status) in [
        ("allow = [\"0.0.0.0/0\", \"::/0\"]", 403),
        ("allow = [\"unix\"]", 200),
        ("deny = [\"unix\"]", 403),
        ("deny = [\"0.0.0.0/0\"]", 200),
    ] {
        let text = text(folder.path(), "", route)
            .replace("\"127.0.0.1:0\"", &format!("{:?}", format!("unix:{}", socket.display())));
        let stage = Stage::new(BACKENDS[2], 1, &text);
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        stream.write_all(b"GET /f/a.txt HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{route}: {answer}");
        drop(stage);
    }
}

/// A configuration whose files are for users alone.
fn guarded(folder: &Path) -> String {
    let users = format!(
        "basic_auth = {{ realm = \"the \\\"area\\\"\", users = {{ joe = \"{HASH}\", \"é\" = \"{HASH}\" }} }}\nheaders.set = {{ x = \"1\" }}"
    );
    text(folder, "", &users)
}

#[test]
fn files_are_for_users_with_a_password() {
    let folder = folder();
    let basic = |text: &str| {
        let encoded = data_encoding::BASE64.encode(text.as_bytes());
        format!("Authorization: Basic {encoded}\r\n")
    };
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &guarded(folder.path()));
        let mut client = stage.connect();
        let right = [
            basic("joe:secret"),
            basic("é:secret"),
            basic("joe:secret").replace("Authorization: Basic", "authorization: bASIC"),
        ];
        let wrong = [
            String::new(),
            basic("joe:Secret"),
            basic("joe:"),
            basic("joe"),
            basic("ann:secret"),
            basic(":secret"),
            basic("joe:secret:"),
            basic("\u{0}joe:secret"),
            format!("{}{}", basic("joe:secret"), basic("joe:secret")),
            "Authorization: Basic !!!\r\n".to_owned(),
            "Authorization: Basic \r\n".to_owned(),
            "Authorization: Bearer am9lOnNlY3JldA==\r\n".to_owned(),
            "Authorization: Basicam9lOnNlY3JldA==\r\n".to_owned(),
            format!("Authorization: Basic {}\r\n", "A".repeat(5000)),
        ];
        // Later the file is in memory, and its users are known.
        for round in 0..3 {
            for (fields, status) in
                right.iter().map(|one| (one, 200)).chain(wrong.iter().map(|one| (one, 401)))
            {
                for path in ["/f/a.txt", "/f//a.txt", "/f/%61.txt"] {
                    let answer = ask(&mut client, "GET", path, fields);
                    assert_eq!(answer.status, status, "{backend:?} {round} {fields}");
                    assert_eq!(answer.body == b"hello\n", status == 200, "{answer:?}");
                    let challenge = field(&answer, "www-authenticate");
                    let expected = "Basic realm=\"the \\\"area\\\"\", charset=\"UTF-8\"";
                    assert_eq!(challenge.as_deref(), (status == 401).then_some(expected));
                    assert_eq!(field(&answer, "x").as_deref(), Some("1"));
                }
                assert_eq!(ask(&mut client, "GET", "/old", "").status, 308);
            }
        }
        // A known user takes the lane, and nobody else does.
        assert_eq!(by_lane(&stage, "GET", "/f/a.txt", &basic("joe:secret")).status, 200);
        for fields in &wrong {
            let mut client = stage.connect();
            assert_eq!(ask(&mut client, "GET", "/f/a.txt", fields).status, 401, "{fields}");
        }
    }
}

/// A password is forgotten with the configuration in which it was right.
#[test]
fn a_known_user_is_asked_again_by_another_configuration() {
    let folder = folder();
    let stage = Stage::new(BACKENDS[2], 1, &guarded(folder.path()));
    assert_eq!(by_lane(&stage, "GET", "/f/a.txt", JOE).status, 200);
    let mut client = stage.connect();
    assert_eq!(ask(&mut client, "GET", "/f/a.txt", JOE).status, 200);
    stage.change(&guarded(folder.path()).replace("joe =", "ann ="));
    let end = std::time::Instant::now() + crate::stage::PATIENCE;
    while ask(&mut client, "GET", "/f/a.txt", JOE).status != 401 {
        assert!(std::time::Instant::now() < end);
    }
}

/// While passwords are verified on other threads, the one engine answers other requests, and
/// clients go without having been answered.
#[test]
fn wrong_passwords_hold_up_no_other_request() {
    let folder = folder();
    let slow = HASH.replace("$5$", "$5$rounds=1000000$");
    let stage = Stage::new(BACKENDS[2], 1, &guarded(folder.path()).replace(HASH, &slow));
    let ask = b"GET /f/a.txt HTTP/1.1\r\nHost: a\r\nAuthorization: Basic am9lOng6eA==\r\n\r\n";
    let mut clients: Vec<Client> = (0..40).map(|_| stage.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(ask));
    assert_eq!(stage.connect().get("/old").status, 308);
    assert_eq!(clients[0].answer().status, 401);
    // What has not begun is not computed for clients that are gone.
    drop(clients);
    stage.until(|engine| &engine.active, 0);
}

#[test]
fn rules_hold_over_http_2() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let page = folder.path().join("404.html");
    let rules = format!(
        "files.root = {:?}\nerrors.404 = {page:?}\nheaders.set = {{ x = \"1\" }}\nbasic_auth.users = {{ joe = \"{HASH}\" }}\n",
        folder.path()
    );
    let files = format!("files.root = {:?}\n", folder.path());
    let text = trust.text(folder.path()).replace(&files, &rules);
    for backend in [BackendKind::Epoll, BackendKind::Uring] {
        let stage = Stage::new(backend, 1, &text);
        let connector = futures_rustls::TlsConnector::from(Arc::new(trust.config.clone()));
        let address = format!("127.0.0.1:{}", port(&stage));
        Runtime::new().unwrap().block_on(async {
            let mut connection = Connection2::new(&connector, &address, "/").await;
            let joe = ("authorization", "Basic am9lOnNlY3JldA==");
            for (method, path, fields, status, length) in [
                ("GET", "/a.txt", &[][..], 401, None),
                ("GET", "/a.txt", &[("authorization", "Basic am9lOng=")], 401, None),
                ("GET", "/a.txt", &[joe], 200, Some(6)),
                ("GET", "/a.txt", &[], 401, None),
                ("GET", "/none", &[joe], 404, Some(11)),
                ("HEAD", "/none", &[joe], 404, Some(0)),
            ] {
                let response = connection.send(method, path, fields, "").await;
                assert_eq!(response.status(), status, "{method} {path} {fields:?}");
                assert_eq!(response.headers()["x"], "1");
                let body = response.into_body().collect().await.unwrap().to_bytes();
                assert!(length.is_none_or(|length| length == body.len()), "{method} {path}");
            }
        });
    }
}

#[test]
fn a_connection_goes_on_behind_a_refused_body() {
    let folder = folder();
    let stage = Stage::new(BACKENDS[2], 1, &guarded(folder.path()));
    let mut client = stage.connect();
    client.send("POST /f/a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.answer().status, 401);
    assert_eq!(ask(&mut client, "GET", "/old", "").status, 308);
    // A wrong password is verified before.
    for (fields, status) in [("Authorization: Basic am9lOng=\r\n", 401), (JOE, 405)] {
        let body = "Content-Length: 5\r\n\r\nhello";
        client.send(format!("POST /f/a.txt HTTP/1.1\r\nHost: a\r\n{fields}{body}"));
        assert_eq!(client.answer().status, status);
        assert_eq!(ask(&mut client, "GET", "/old", "").status, 308);
    }
    // A client that waits for leave to send its body is told at once.
    let stream = TcpStream::connect(("127.0.0.1", port(&stage))).unwrap();
    let mut client = Client(std::io::BufReader::new(stream));
    client.send(
        "POST /f/a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(client.answer().status, 401);
}

#[test]
fn files_are_looked_for_at_the_rewritten_path() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("posts")).unwrap();
    std::fs::write(folder.path().join("posts/one two.html"), "<p>one two").unwrap();
    std::fs::write(folder.path().join("posts/index.html"), "<p>posts").unwrap();
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n\
         [[hosts.routes]]\npath = \"/blog/{{slug}}\"\nfiles.root = {0:?}\nrewrite = \"/posts/{{slug}}.html\"\n\
         [[hosts.routes]]\npath = \"/news\"\nfiles.root = {0:?}\nrewrite = \"/posts{{below}}\"\n\
         [[hosts.routes]]\npath = \"/folder\"\nfiles.root = {0:?}\nrewrite = \"/posts\"\n\
         [[hosts.routes]]\npath = \"/one\"\nfiles.root = {0:?}\nrewrite = \"/a.txt\"\n\
         basic_auth.users = {{ joe = \"{HASH}\" }}\n",
        folder.path()
    );
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text);
        let mut client = stage.connect();
        for _ in 0..3 {
            for (path, fields, status, body) in [
                ("/blog/one%20two", "", 200, "<p>one two"),
                ("/blog/none", "", 404, ""),
                ("/blog/one%20two/x", "", 404, ""),
                ("/blog/%2e%2e%2fa.txt%00", "", 400, ""),
                ("/blog/..", "", 404, ""),
                ("/blog/%2e%2e%2fa", "", 400, ""),
                ("/news/", "", 200, "<p>posts"),
                ("/news/one%20two.html?x", "", 200, "<p>one two"),
                ("/news/../a.txt", "", 400, ""),
                ("/news/%2e%2e/a.txt", "", 400, ""),
                // No redirect that leads to itself.
                ("/folder", "", 308, ""),
                ("/folder/", "", 404, ""),
                ("/one/any/path", "", 401, ""),
                ("/one/any/path", JOE, 200, "hello\n"),
            ] {
                let answer = ask(&mut client, "GET", path, fields);
                assert_eq!(answer.status, status, "{backend:?} {path}");
                if status == 200 {
                    assert_eq!(String::from_utf8_lossy(&answer.body), body, "{path}");
                }
            }
            // The way to a folder is that of the client.
            let answer = ask(&mut client, "GET", "/news", "");
            assert_eq!(field(&answer, "location").as_deref(), Some("/news/"));
        }
    }
}
