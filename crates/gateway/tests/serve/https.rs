//! Redirects from HTTP to HTTPS and elsewhere, and hosts of some listeners.

use std::io::BufReader;
use std::net::TcpStream;
use std::path::Path;

use superpoll_gateway::Address;
use superpoll_rt::BackendKind;

use crate::stage::{Answer, Client, PATIENCE, Stage};
use crate::tls::{Authority, TlsClient};

fn port(address: &Address) -> u16 {
    let Address::Tcp { port, .. } = address else { panic!("it is TCP") };
    *port
}

/// A server with a plain listener and an encrypted one, and these hosts.
fn stage(folder: &Path, hosts: &str) -> Stage {
    let own = Authority::new("Test").issue(&["a.test"], 2090).write(folder, "own");
    std::fs::write(folder.join("hello.txt"), "hello\n").unwrap();
    let well_known = folder.join(".well-known/acme-challenge");
    std::fs::create_dir_all(&well_known).unwrap();
    std::fs::write(well_known.join("token"), "proof").unwrap();
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [[listeners]]\naddress = \"localhost:0\"\ntls = {{ {own} }}\n{hosts}"
    );
    Stage::new(BackendKind::Adaptive, 1, &text)
}

/// Sends a head to the plain listener.
fn send(stage: &Stage, head: &str) -> Answer {
    let stream = TcpStream::connect(("127.0.0.1", port(&stage.addresses[0]))).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client(BufReader::new(stream));
    client.send(format!("{head}\r\n\r\n"));
    client.answer()
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

const FILES: &str = "[[hosts.routes]]\nfiles.root = ";

#[test]
fn plain_requests_are_redirected_with_path_and_query() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let stage = stage(root, &format!("[[hosts]]\nhttps = \"always\"\n{FILES}{root:?}\n"));
    let secure = port(&stage.addresses[1]);
    for (head, location) in [
        ("GET /hello.txt HTTP/1.1\r\nhost: a.test", "https://a.test:P/hello.txt"),
        ("GET /a/b?c=d&e HTTP/1.1\r\nhost: a.test:8080", "https://a.test:P/a/b?c=d&e"),
        ("POST /a HTTP/1.1\r\nhost: a.test\r\ncontent-length: 0", "https://a.test:P/a"),
        ("GET / HTTP/1.1\r\nhost: [::1]:80", "https://[::1]:P/"),
        ("GET / HTTP/1.1\r\nhost: A.Test.", "https://A.Test.:P/"),
        ("GET //evil.test/%2e%2e HTTP/1.1\r\nhost: a.test", "https://a.test:P//evil.test/%2e%2e"),
        ("GET http://b.test/x?y HTTP/1.1\r\nhost: a.test", "https://b.test:P/x?y"),
        ("GET /%0d%0ax:y HTTP/1.1\r\nhost: a.test", "https://a.test:P/%0d%0ax:y"),
        (
            "GET /.well-known/acme-challenge/ HTTP/1.1\r\nhost: a.test",
            "https://a.test:P/.well-known/acme-challenge/",
        ),
        ("GET / HTTP/1.0\r\nhost: a.test", "https://a.test:P/"),
    ] {
        let answer = send(&stage, head);
        let location = location.replace(":P", &format!(":{secure}"));
        assert_eq!(
            (answer.status, field(&answer.head, "location")),
            (308, Some(&*location)),
            "{head}"
        );
        assert_eq!(field(&answer.head, "strict-transport-security"), None, "{head}");
    }
    for head in [
        "GET / HTTP/1.1\r\nhost: u@evil.test",
        "GET / HTTP/1.1\r\nhost: a.test/evil",
        "GET / HTTP/1.1\r\nhost: a.test\r\nhost: b.test",
        "GET / HTTP/1.1",
        "GET / HTTP/1.0",
    ] {
        let answer = send(&stage, head);
        assert_eq!((answer.status, field(&answer.head, "location")), (400, None), "{head}");
    }
    let answer = send(&stage, "GET /.well-known/acme-challenge/token HTTP/1.1\r\nhost: a.test");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"proof"[..]));
}

#[test]
fn browsers_are_told_to_stay_with_https() {
    for (rule, expected) in [
        ("", Some("max-age=31536000")),
        ("hsts = \"1h\"\n", Some("max-age=3600")),
        ("hsts = \"off\"\n", None),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let hosts = format!("[[hosts]]\nhttps = \"always\"\n{rule}{FILES}{root:?}\n");
        let stage = stage(root, &hosts);
        for (name, path, expected) in [
            ("a.test", "/hello.txt", expected),
            ("a.test", "/none", expected),
            ("localhost", "/hello.txt", None),
            ("a.localhost", "/hello.txt", None),
            ("127.0.0.1", "/hello.txt", None),
        ] {
            let (_, answer) = TlsClient::new(name).get(&stage.addresses[1], path).unwrap();
            assert_eq!(
                field(&answer, "strict-transport-security"),
                expected,
                "{rule} {name} {path}"
            );
        }
    }
}

#[test]
fn redirects_have_placeholders() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = "[[hosts]]\n\
        [[hosts.routes]]\npath = \"/to\"\nredirect = { to = \"https://{host}/new{path}{query}\", status = 302 }\n\
        [[hosts.routes]]\npath = \"/\"\nredirect.to = \"{path}\"\n";
    let stage = stage(folder.path(), hosts);
    for (head, status, location) in [
        ("GET /to/a/b?q=1 HTTP/1.1\r\nhost: a.test:81", 302, "https://a.test/new/to/a/b?q=1"),
        ("GET /to HTTP/1.1\r\nhost: a.test", 302, "https://a.test/new/to"),
        ("GET //evil.test/x HTTP/1.1\r\nhost: a.test", 308, "/evil.test/x"),
        ("GET /\\evil.test HTTP/1.1\r\nhost: a.test", 308, "/evil.test"),
        ("GET /x?y HTTP/1.0", 308, "/x"),
    ] {
        let answer = send(&stage, head);
        let found = (answer.status, field(&answer.head, "location"));
        assert_eq!(found, (status, Some(location)), "{head}");
    }
    assert_eq!(send(&stage, "GET /to HTTP/1.0").status, 400);
}

#[test]
fn a_host_of_some_listeners_is_served_there_only() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let hosts = format!(
        "[[hosts]]\nnames = [\"inner.test\", \"*.inner.test\"]\nlisteners = [\"127.0.0.1:0\"]\n{FILES}{root:?}\n\
         [[hosts]]\nlisteners = [\"localhost:0\"]\n[[hosts.routes]]\nredirect.to = \"/elsewhere\"\n"
    );
    let stage = stage(root, &hosts);
    for (name, inner) in [("inner.test", true), ("x.inner.test", true), ("other.test", false)] {
        let answer = send(&stage, &format!("GET /hello.txt HTTP/1.1\r\nhost: {name}"));
        assert_eq!(answer.status, if inner { 200 } else { 421 }, "{name}");
        let (_, answer) = TlsClient::new(name).get(&stage.addresses[1], "/hello.txt").unwrap();
        assert!(answer.starts_with("HTTP/1.1 308"), "{name}: {answer}");
    }
}
