//! Routes that ask a server whether a request may pass.

use std::time::Duration;

use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, MOST, all};
use crate::origin::{Client, Origin, get, refuses};

/// A server that lets requests with the cookie `user=NAME` pass, and names their user.
fn judge() -> Origin {
    Origin::start(|line| {
        loop {
            let seen = line.request()?;
            let cookie = seen.field("cookie").unwrap_or_default();
            line.send(match cookie.strip_prefix("user=") {
                Some("late") => "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_owned(),
                Some(user) => format!(
                    "HTTP/1.1 204 No Content\r\nX-User: {user}\r\nX-Group: a\r\nX-Group: b\r\n\
                     Set-Cookie: seen={user}\r\n\r\n"
                ),
                None => "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 4\r\n\r\nmore"
                    .to_owned(),
            })?;
        }
    })
}

fn text(judge: &str, app: &str, keys: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
         proxy = {{ upstream = \"app\" }}\n\
         auth_request = {{ upstream = \"judge\", path = \"/verify\", copy = [\"X-User\", \"X-Group\"]{keys} }}\n\
         [upstreams.app]\nservers = [{{ address = \"{app}\" }}]\n\
         [upstreams.judge]\nservers = [{{ address = \"{judge}\" }}]\n"
    )
}

#[test]
fn a_server_lets_requests_pass() {
    for backend in all() {
        let (judge, app) = (judge(), Origin::echo());
        let gateway = Gateway::start(backend, &text(&judge.address, &app.address, ""));
        let mut client = Client::connect(&gateway.address);
        let refused = client.get("/a?b");
        assert_eq!((refused.status, refused.field("location")), (302, Some("/login".to_owned())));
        assert!(app.seen().is_empty());
        client.send(
            "POST /a?b HTTP/1.1\r\nHost: a.example\r\nCookie: user=ada\r\nX-User: eve\r\n\
             x_user: eve\r\nX-Group: root\r\nX-Original-URI: /forged\r\nContent-Length: 3\r\n\r\nabc",
        );
        let reply = client.reply();
        assert_eq!((reply.status, reply.text()), (200, "abc"));
        assert_eq!(reply.field("set-cookie").as_deref(), Some("seen=ada"));
        let seen = app.seen().pop().unwrap();
        assert_eq!(seen.field("x-user").as_deref(), Some("ada"));
        assert_eq!(seen.field("x-group").as_deref(), Some("a|b"));
        assert_eq!(seen.field("x_user"), None);
        let asked = judge.seen().pop().unwrap();
        assert_eq!(asked.line(), "GET /verify HTTP/1.1");
        assert_eq!(asked.field("x-original-uri").as_deref(), Some("/a?b"));
        assert_eq!(asked.field("x-forwarded-uri").as_deref(), Some("/a?b"));
        assert_eq!(asked.field("x-original-method").as_deref(), Some("POST"));
        assert_eq!(asked.field("x-forwarded-for").as_deref(), Some("127.0.0.1"));
        assert_eq!(asked.field("host").as_deref(), Some("a.example"));
        assert_eq!((asked.field("content-length"), asked.body.len()), (None, 0));
        client.send("GET / HTTP/1.1\r\nHost: a\r\nCookie: user=late\r\n\r\n");
        assert_eq!(client.reply().status, 503);
        assert_eq!(app.seen().len(), 1);
    }
}

/// Answers a request with a refusal of its path.
fn refusals() -> Origin {
    let page = "<p>Who are you?</p>\n";
    let typed = "Content-Type: text/html\r\nContent-Language: en\r\n";
    Origin::start(move |line| {
        loop {
            let seen = line.request()?;
            let target = seen.field("x-original-uri").unwrap_or_default();
            let length = |length: usize| format!("Content-Length: {length}\r\n");
            line.send(match &*target {
                "/page" => {
                    let fields = format!("{typed}{}", length(page.len()));
                    format!("HTTP/1.1 401 Unauthorized\r\n{fields}\r\n{page}")
                }
                "/chunks" => format!(
                    "HTTP/1.1 403 Forbidden\r\n{typed}Transfer-Encoding: chunked\r\n\r\n\
                     5\r\n<p>No\r\n5\r\n!</p>\r\n0\r\n\r\n"
                ),
                "/longest" => {
                    let (fields, body) = (length(64 << 10), "x".repeat(64 << 10));
                    format!("HTTP/1.1 401 Unauthorized\r\n{typed}{fields}\r\n{body}")
                }
                "/longer" => {
                    let (fields, body) = (length((64 << 10) + 1), "x".repeat((64 << 10) + 1));
                    format!("HTTP/1.1 401 Unauthorized\r\n{typed}{fields}\r\n{body}")
                }
                "/encoded" => {
                    let fields = format!("Content-Encoding: gzip\r\n{typed}{}", length(4));
                    format!("HTTP/1.1 401 Unauthorized\r\n{fields}\r\ngzip")
                }
                "/error" => format!("HTTP/1.1 500 Oops\r\n{typed}{}\r\n{page}", length(page.len())),
                _ => "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_owned(),
            })?;
        }
    })
}

#[test]
fn the_body_of_a_refusal_reaches_the_client() {
    for backend in MOST {
        let (judge, app) = (refusals(), Origin::echo());
        let gateway = Gateway::start(backend, &text(&judge.address, &app.address, ""));
        let longest = "x".repeat(64 << 10);
        let html = Some("text/html");
        let plain = Some("text/plain; charset=utf-8");
        for (target, status, kind, encoding, body) in [
            ("/page", 401, html, None, "<p>Who are you?</p>\n"),
            ("/chunks", 403, html, None, "<p>No!</p>"),
            ("/longest", 401, html, None, &*longest),
            // A longer one is left out, and so is that of an error.
            ("/longer", 401, plain, None, "401 Unauthorized\n"),
            ("/encoded", 401, html, Some("gzip"), "gzip"),
            ("/error", 503, plain, None, "503 Service Unavailable\n"),
            ("/none", 401, plain, None, "401 Unauthorized\n"),
        ] {
            let mut client = Client::connect(&gateway.address);
            let reply = client.get(target);
            assert_eq!((reply.status, reply.text()), (status, body), "{target}");
            let field = |name: &str| reply.field(name);
            assert_eq!(field("content-type").as_deref(), kind, "{target}");
            assert_eq!(field("content-encoding").as_deref(), encoding, "{target}");
            assert_eq!(field("content-length"), Some(body.len().to_string()), "{target}");
            assert_eq!(field("transfer-encoding"), None, "{target}");
            // The connection continues.
            client.send(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(client.reply_to("HEAD").unwrap().status, status, "{target}");
            assert_eq!(client.get("/none").status, 401, "{target}");
        }
        assert!(app.seen().is_empty());
    }
}

#[test]
fn nothing_passes_while_the_server_is_down() {
    let (_held, address) = refuses();
    let app = Origin::echo();
    let gateway = Gateway::start(BackendKind::Adaptive, &text(&address, &app.address, ""));
    assert_eq!(get(&gateway.address, "/").status, 503);
    assert!(app.seen().is_empty());
}

#[test]
fn an_answer_is_known_for_a_while_by_its_fields() {
    for backend in MOST {
        let (judge, app) = (judge(), Origin::echo());
        let keys = ", cache = \"10s\", cache_by = [\"Cookie\"]";
        let gateway = Gateway::start(backend, &text(&judge.address, &app.address, keys));
        let mut client = Client::connect(&gateway.address);
        let mut ask = |user: &str| {
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: user={user}\r\n\r\n"));
            assert_eq!(client.reply().status, 200);
            let seen = app.seen().pop().unwrap();
            assert_eq!(seen.field("x-user").as_deref(), Some(user));
            judge.seen().len()
        };
        assert_eq!(ask("ada"), 1);
        assert_eq!(ask("ada"), 1);
        assert_eq!(ask("bob"), 2);
        assert_eq!(ask("ada"), 2);
        gateway.elapse(Duration::from_secs(11));
        assert_eq!(ask("ada"), 3);
        // Without a field that it would be known by, each request is asked about.
        for count in [4, 5] {
            assert_eq!(get(&gateway.address, "/").status, 302);
            assert_eq!(judge.seen().len(), count);
        }
    }
}

/// Files and fixed folders are behind it as well.
#[test]
fn files_are_behind_it() {
    let judge = judge();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "secret").unwrap();
    let text = text(&judge.address, "127.0.0.1:1", "");
    let root = folder.path().display();
    let text = text
        .replace("proxy = { upstream = \"app\" }", &format!("files = {{ root = \"{root}\" }}"))
        .replace("[upstreams.app]\nservers = [{ address = \"127.0.0.1:1\" }]\n", "");
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    for _ in 0..2 {
        assert_eq!(get(&gateway.address, "/a.txt").status, 302);
        let mut client = Client::connect(&gateway.address);
        client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nCookie: user=ada\r\n\r\n");
        assert_eq!(client.reply().text(), "secret");
    }
}
