//! Methods and targets that no resource has.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use futures_rustls::TlsConnector;
use superpoll_gateway::Address;
use superpoll_rt::Runtime;

use crate::http2::{Trust, port};
use crate::stage::{BACKENDS, Stage, folder};
use crate::websocket2::Connection2;

fn text(folder: &std::path::Path) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n\
         [[hosts.routes]]\nfiles.root = {folder:?}\n\
         [[hosts.routes]]\npath = \"/c\"\nchannel = {{}}\n\
         [[hosts.routes]]\npath = \"/.well-known/mercure\"\nmercure = {{ token.key = \"0123456789abcdef0123456789abcdef\" }}\n"
    )
}

#[test]
fn known_methods_are_not_allowed_and_others_are_not_implemented() {
    let folder = folder();
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text(folder.path()));
        let mut client = stage.connect();
        for (path, allowed) in [
            ("/small.txt", "GET, HEAD"),
            ("/c", "GET, HEAD, OPTIONS, POST"),
            ("/.well-known/mercure", "GET, OPTIONS, POST"),
        ] {
            for (method, status) in
                [("TRACE", 405), ("DELETE", 405), ("PATCH", 405), ("PROPFIND", 501), ("get", 501)]
            {
                client
                    .send(format!("{method} {path} HTTP/1.1\r\nhost: a\r\nx-own: s3cret\r\n\r\n"));
                let answer = client.answer();
                assert_eq!(answer.status, status, "{backend:?} {method} {path} {answer:?}");
                let head = answer.head.to_lowercase();
                let field = format!("allow: {}\r\n", allowed.to_lowercase());
                assert_eq!(head.contains(&field), status == 405, "{method} {path} {head}");
                // The fields of a request are not shown to it.
                assert!(!String::from_utf8_lossy(&answer.body).contains("s3cret"));
            }
        }
        client.send("CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n");
        assert_eq!(client.answer().status, 501);
    }
}

#[test]
fn a_target_beyond_ascii_is_refused_before_it_has_a_route() {
    let folder = folder();
    std::fs::write(folder.path().join("\u{e4}.txt"), "umlaut").unwrap();
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text(folder.path()));
        for target in ["/\u{e4}.txt", "/small.txt?\u{e4}", "/\u{1F600}", "http://a/\u{e4}.txt"] {
            let mut client = stage.connect();
            client.send(format!("GET {target} HTTP/1.1\r\nhost: a\r\n\r\n"));
            assert_eq!(client.answer().status, 400, "{backend:?} {target}");
        }
        for bytes in [&b"/\xff"[..], b"/small.txt?\x80", b"/\x7f"] {
            let mut client = stage.connect();
            client.send([b"GET ", bytes, b" HTTP/1.1\r\nhost: a\r\n\r\n"].concat());
            assert_eq!(client.answer().status, 400, "{backend:?} {bytes:?}");
        }
        assert_eq!(stage.connect().get("/%C3%A4.txt").body, b"umlaut");
    }
}

/// Over HTTP/2 the same holds, and each stream has a client of its own behind a trusted proxy.
#[test]
fn streams_of_http_2_have_the_same_rules() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let text = format!(
        "{}deny = [\"203.0.113.7\"]\n[server]\ntrusted_proxies = [\"local\"]\n",
        trust.text(folder.path())
    );
    let stage = Stage::new(BACKENDS[2], 1, &text);
    let connector = TlsConnector::from(Arc::new(trust.config.clone()));
    Runtime::new().unwrap().block_on(async {
        let address = format!("127.0.0.1:{}", port(&stage));
        let mut connection = Connection2::new(&connector, &address, "/small.txt").await;
        let denied = ("x-forwarded-for", "203.0.113.6, 203.0.113.7");
        for (method, path, field, status) in [
            ("GET", "/small.txt", ("x-forwarded-for", "203.0.113.6"), 200),
            ("GET", "/small.txt", denied, 403),
            ("GET", "/small.txt", ("forwarded", "for=203.0.113.7"), 403),
            ("GET", "/small.txt", ("x-own", "203.0.113.7"), 200),
            ("TRACE", "/small.txt", ("x-own", "a"), 405),
            ("PROPFIND", "/small.txt", ("x-own", "a"), 501),
            ("GET", "/small.txt?\u{e4}", ("x-own", "a"), 400),
            ("GET", "/\u{e4}", denied, 400),
        ] {
            let response = connection.send(method, path, &[field], "").await;
            assert_eq!(response.status(), status, "{method} {path} {field:?}");
        }
    });
}

/// Two listeners, each with a host for all names that it has no host for.
#[test]
fn each_listener_may_have_a_default_host() {
    let folder = tempfile::tempdir().unwrap();
    let host = |more: &str, to: &str| {
        format!("[[hosts]]\n{more}\n[[hosts.routes]]\nredirect.to = \"/{to}\"\n")
    };
    let socket = |name: &str| format!("unix:{}", folder.path().join(name).display());
    let bound = |name: &str, to: &str| host(&format!("listeners = [{:?}]", socket(name)), to);
    let listeners: String = ["a", "b", "c"]
        .iter()
        .map(|name| format!("[[listeners]]\naddress = {:?}\n", socket(name)))
        .collect();
    let ask = |name: &str, asked: &str| {
        let mut stream = UnixStream::connect(folder.path().join(name)).unwrap();
        stream
            .write_all(
                format!("GET / HTTP/1.1\r\nhost: {asked}\r\nconnection: close\r\n\r\n").as_bytes(),
            )
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().to_owned();
        let to = answer
            .to_lowercase()
            .split("location: ")
            .nth(1)
            .map(|rest| rest.lines().next().unwrap().to_owned());
        to.unwrap_or(status)
    };
    let named = host("names = [\"named\"]", "named");
    for backend in BACKENDS {
        for (hosts, of_c) in [
            ([bound("a", "a"), bound("b", "b"), named.clone()].concat(), "421"),
            ([host("", "rest"), bound("a", "a"), bound("b", "b"), named.clone()].concat(), "/rest"),
            ([bound("b", "b"), bound("a", "a"), host("", "rest"), named.clone()].concat(), "/rest"),
        ] {
            let stage = Stage::new(backend, 1, &format!("{listeners}{hosts}"));
            assert!(matches!(stage.addresses[0], Address::Unix(_)));
            for _ in 0..2 {
                assert_eq!(ask("a", "x"), "/a", "{backend:?} {hosts}");
                assert_eq!(ask("b", "x"), "/b");
                assert_eq!(ask("c", "x"), of_c);
                assert_eq!(ask("a", "named"), "/named");
                assert_eq!(ask("c", "named"), "/named");
            }
        }
    }
}
