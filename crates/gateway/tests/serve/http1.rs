//! Requests and responses of HTTP/1.

use crate::stage::{BACKENDS, Stage, folder};

#[test]
fn keep_alive_pipelined_head_and_1_0() {
    let folder = folder();
    for backend in BACKENDS {
        let stage = Stage::of_files(backend, 2, folder.path());
        let mut client = stage.connect();
        for _ in 0..3 {
            let answer = client.get("/small.txt");
            assert_eq!((answer.status, &*answer.body), (200, b"hello\n".as_slice()));
        }
        let one = "GET /small.txt HTTP/1.1\r\nhost: a\r\n\r\n";
        client.send(one.repeat(20));
        for _ in 0..20 {
            assert_eq!(client.answer().body, b"hello\n");
        }
        client.send("HEAD /small.txt HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut client.0, &mut rest).unwrap();
        assert!(rest.contains("content-length: 6\r\n") && rest.ends_with("\r\n\r\n"), "{rest}");
        let mut old = stage.connect();
        old.send("GET /small.txt HTTP/1.0\r\n\r\n");
        assert_eq!(old.answer().body, b"hello\n");
        assert!(old.is_closed());
    }
}

#[test]
fn a_half_closed_client_gets_its_response() {
    let folder = folder();
    let stage = Stage::of_files(BACKENDS[2], 1, folder.path());
    let mut client = stage.connect();
    client.send("GET /large.bin HTTP/1.1\r\nhost: a\r\n\r\n");
    client.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.answer().body.len(), 16 << 20);
    assert!(client.is_closed());
}

#[test]
fn hosts_are_distinguished_and_invalid_ones_refused() {
    let folder = folder();
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("small.txt"), "other\n").unwrap();
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [[hosts]]\nnames = [\"one.test\", \"*.wild.test\"]\n[[hosts.routes]]\nfiles.root = {:?}\n\
         [[hosts]]\nnames = [\"two.test\"]\n[[hosts.routes]]\nfiles.root = {:?}\n\
         [[hosts.routes]]\npath = \"/old\"\nredirect.to = \"/new\"\nredirect.status = 301\n",
        folder.path(),
        other.path()
    );
    let stage = Stage::new(BACKENDS[2], 1, &text);
    // A host that is malformed ends the connection.
    let ask = |target: &str, fields: &str| {
        let mut client = stage.connect();
        client.send(format!("GET {target} HTTP/1.1\r\n{fields}\r\n"));
        client.answer()
    };
    for host in ["one.test", "ONE.test:8080", "one.test.", "a.b.wild.test"] {
        assert_eq!(ask("/small.txt", &format!("host: {host}\r\n")).body, b"hello\n", "{host}");
    }
    assert_eq!(ask("/small.txt", "host: two.test\r\n").body, b"other\n");
    // The target names the host rather than the field.
    assert_eq!(ask("http://two.test/small.txt", "host: one.test\r\n").body, b"other\n");
    let moved = ask("/old", "host: two.test\r\n");
    assert_eq!(moved.status, 301);
    assert!(moved.head.contains("location: /new\r\n"));
    for (fields, status) in [
        ("", 400),
        ("host: one.test\r\nhost: one.test\r\n", 400),
        ("host: a b\r\n", 400),
        ("host: user@one.test\r\n", 400),
        ("host: wild.test\r\n", 421),
        ("host: three.test\r\n", 421),
        ("host:\r\n", 400),
        ("host: u:p@two.test\r\n", 400),
        ("host: two.test:99999\r\n", 400),
    ] {
        assert_eq!(ask("/small.txt", fields).status, status, "{fields:?}");
    }
}

#[test]
fn bytes_that_are_not_http_end_only_their_connection() {
    let folder = folder();
    for backend in BACKENDS {
        let stage = Stage::of_files(backend, 1, folder.path());
        let mut good = stage.connect();
        assert_eq!(good.get("/small.txt").status, 200);
        for (bytes, status) in [
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(), 400),
            (b"GET /\r\n\r\n", 400),
            (b"GET / HTTP/9.9\r\n\r\n", 505),
            (b"GET /small.txt HTTP/1.1\r\nhost: a\r\nbad header\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n", 400),
        ] {
            let mut client = stage.connect();
            client.send(bytes);
            let mut rest = Vec::new();
            let _ = std::io::Read::read_to_end(&mut client.0, &mut rest);
            let rest = String::from_utf8_lossy(&rest);
            assert!(rest.starts_with(&format!("HTTP/1.1 {status} ")), "{rest}");
        }
        assert_eq!(good.get("/small.txt").status, 200);
    }
}
