//! The parts of a head that reach a server, and those that do not.

use superpoll_rt::BackendKind;

use crate::gateway::{GIVEN, Gateway, MOST, config};
use crate::origin::{Client, Origin};

/// Requests as they are written, and whether and in which form each reaches the server.
struct Case {
    sent: &'static str,
    /// The status that all of it is refused with, or the bodies of requests that the server gets.
    outcome: Result<&'static [&'static str], u16>,
}

const CASES: &[Case] = &[
    // Lengths.
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody1",
        outcome: Err(400),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4, 4\r\n\r\nbody",
        outcome: Err(400),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\nbody",
        outcome: Err(400),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -4\r\n\r\nbody",
        outcome: Err(400),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x4\r\n\r\nbody",
        outcome: Err(400),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4 4\r\n\r\nbody",
        outcome: Err(400),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551620\r\n\r\nbody",
        outcome: Err(400),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nbody",
        outcome: Ok(&["body"]),
    },
    // A length and a coding.
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n",
        outcome: Err(400),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n",
        outcome: Err(400),
    },
    // Codings.
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        outcome: Err(501),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        outcome: Err(501),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        outcome: Err(400),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        outcome: Err(400),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        outcome: Err(400),
    },
    Case {
        sent: "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        outcome: Err(400),
    },
    // Fields.
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 4\r\n\r\nbody",
        outcome: Err(400),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        outcome: Err(400),
    },
    Case { sent: "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n folded\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET / HTTP/1.1\r\n Host: a\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\0c\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\rX-B: c\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET / HTTP/1.1\r\n\r\n", outcome: Err(400) },
    // Hosts, wherever they are written.
    Case { sent: "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET / HTTP/1.1\r\nHost:\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET / HTTP/1.1\r\nHost: a:x\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET http://u@b/ HTTP/1.1\r\nHost: b\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET http://u:p@b:80/ HTTP/1.1\r\nHost: b\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET http://b:99999/ HTTP/1.1\r\nHost: b\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET http://b:x/ HTTP/1.1\r\nHost: b\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET http://b/ HTTP/1.1\r\nHost: u@a\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET ftp://b/ HTTP/1.1\r\nHost: b\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET https://b/ HTTP/1.1\r\nHost: b\r\n\r\n", outcome: Err(421) },
    Case { sent: "GET / HTTP/1.0\r\nHost: u@a\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", outcome: Ok(&[""]) },
    Case { sent: "GET / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n", outcome: Err(417) },
    // Chunks.
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4;ext=\"\r\nbody\r\n0\r\n\r\n",
        outcome: Ok(&["body"]),
    },
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0004\r\nbody\r\n000\r\n\r\n",
        outcome: Ok(&["body"]),
    },
    // Targets.
    Case { sent: "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", outcome: Err(501) },
    Case { sent: "TRACE / HTTP/1.1\r\nHost: a\r\nCookie: a=1\r\n\r\n", outcome: Err(501) },
    Case { sent: "GET /\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET /a?\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET * HTTP/1.1\r\nHost: a\r\n\r\n", outcome: Err(400) },
    Case { sent: "OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 1\r\n\r\n", outcome: Ok(&[""]) },
    Case { sent: "GET / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n", outcome: Ok(&[""]) },
    Case { sent: "GET /a/../b HTTP/1.1\r\nHost: a\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET /a/%2e%2E/b HTTP/1.1\r\nHost: a\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", outcome: Err(400) },
    Case { sent: "GET http://b/c HTTP/1.1\r\nHost: a\r\n\r\n", outcome: Ok(&[""]) },
    Case { sent: "GET http://b?c HTTP/1.1\r\nHost: a\r\n\r\n", outcome: Ok(&[""]) },
    // A bare line feed ends a line here, and has become a CRLF where it arrives.
    Case { sent: "GET / HTTP/1.1\nHost: a\nX-A: b\n\n", outcome: Ok(&[""]) },
    // Two requests at once are two requests.
    Case {
        sent: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\noneGET /two HTTP/1.1\r\nHost: a\r\n\r\n",
        outcome: Ok(&["one", ""]),
    },
];

#[test]
fn nothing_is_understood_in_two_ways() {
    for backend in MOST {
        let origin = Origin::echo();
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        for Case { sent, outcome } in CASES {
            let before = origin.seen().len();
            let mut client = Client::connect(&gateway.address);
            client.send(sent);
            let expected = match outcome {
                Ok(bodies) => bodies.iter().map(|_| 200).collect(),
                Err(status) => vec![*status],
            };
            for status in expected {
                let reply = client.reply_to("GET");
                assert_eq!(reply.map(|reply| reply.status).ok(), Some(status), "{sent:?}");
            }
            // Any bytes that follow on the connection are read before this is over.
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(client.is_closed());
            let seen = origin.seen();
            let bodies: Vec<_> =
                seen[before..].iter().map(|seen| String::from_utf8_lossy(&seen.body)).collect();
            assert_eq!(bodies, outcome.unwrap_or_default(), "{sent:?}");
            for seen in &seen[before..] {
                assert!(!seen.line().contains("evil"), "{sent:?}");
                let lengths = seen.field("content-length").is_some();
                assert!(!(lengths && seen.field("transfer-encoding").is_some()), "{sent:?}");
            }
        }
    }
}

#[test]
fn broken_chunks_are_no_body() {
    let origin = Origin::echo();
    let gateway = Gateway::start(BackendKind::Adaptive, &config(&[&origin.address], "", ""));
    for chunks in [
        "4\nbody\r\n0\r\n\r\n",
        "4\r\nbodyx0\r\n\r\n",
        "0x4\r\nbody\r\n0\r\n\r\n",
        " 4\r\nbody\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\nbody",
        "-4\r\nbody\r\n0\r\n\r\n",
        "4\r\nbody\n0\r\n\r\n",
        "\r\n0\r\n\r\n",
    ] {
        let mut client = Client::connect(&gateway.address);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(chunks);
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        let reply = client.reply_to("POST");
        assert!(!reply.is_ok_and(|reply| reply.status == 200), "{chunks:?}");
    }
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
}

#[test]
fn lengths_of_responses_without_a_body_are_checked_as_well() {
    for (lengths, expected) in [
        ("Content-Length: 5\r\n", Some(Some("5"))),
        ("", Some(None)),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Some(Some("5"))),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", None),
        ("Content-Length: 5, 6\r\n", None),
        ("Content-Length: x\r\n", None),
        ("Content-Length: +5\r\n", None),
        ("Content-Length: \r\n", None),
        ("Content-Length: 99999999999999999999\r\n", None),
    ] {
        for (method, status) in [("HEAD", 200), ("GET", 304)] {
            let head = format!("HTTP/1.1 {status} Some\r\nETag: \"a\"\r\n{lengths}\r\n");
            let origin = Origin::start(move |line| {
                loop {
                    line.request()?;
                    line.send(&head)?;
                }
            });
            let gateway = Gateway::start(MOST[0], &config(&[&origin.address], "", ""));
            let mut client = Client::connect(&gateway.address);
            client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"a\"\r\n\r\n"));
            let reply = client.head().unwrap_or_else(|error| panic!("{method} {lengths}: {error}"));
            match expected {
                Some(length) => {
                    assert_eq!(reply.status, status, "{method} {lengths}");
                    // 304 has no need to tell it.
                    let told = reply.field("content-length");
                    assert_eq!(told.as_deref(), length.filter(|_| method == "HEAD"), "{lengths}");
                }
                None => assert_eq!(reply.status, 502, "{method} {lengths}"),
            }
        }
    }
}

#[test]
fn heads_change_on_their_way() {
    for backend in MOST {
        let origin = Origin::start(|line| {
            loop {
                line.request()?;
                line.send(
                    "HTTP/1.1 201 Made\r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
                     X-Kept: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\nok",
                )?;
            }
        });
        let text = config(&[&origin.address], "", "").replace(
            "[[hosts.routes]]\n",
            "[[hosts.routes]]\npath = \"/app\"\nproxy = { upstream = \"app\", strip_path = true, host = \"inner.example\", trust_forwarded = true }\n[[hosts.routes]]\n",
        );
        let gateway = Gateway::start(backend, &text);
        let mut client = Client::connect(&gateway.address);
        client.send(
            "GET /a?b=c HTTP/1.1\r\nHost: a.example\r\nConnection: x-mine, keep-alive\r\nX-Mine: 1\r\n\
             X-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\nAccept: */*\r\n\r\n",
        );
        let reply = client.reply();
        assert_eq!((reply.status, reply.text()), (201, "ok"));
        assert_eq!(reply.field("x-hop"), None);
        assert_eq!(reply.field("keep-alive"), None);
        assert_eq!(reply.field("x-kept").unwrap(), "1");
        assert_eq!(reply.field("set-cookie").unwrap(), "a=1|b=2");
        let seen = &origin.seen()[0];
        assert_eq!(seen.line(), "GET /a?b=c HTTP/1.1");
        assert_eq!(seen.field("host").unwrap(), "a.example");
        assert_eq!(seen.field("x-forwarded-for").unwrap(), "127.0.0.1");
        assert_eq!(seen.field("x-forwarded-host").unwrap(), "a.example");
        assert_eq!(seen.field("x-forwarded-proto").unwrap(), "http");
        assert_eq!(seen.field("accept").unwrap(), "*/*");
        for gone in ["connection", "x-mine", "forwarded", "x_forwarded_for"] {
            assert_eq!(seen.field(gone), None, "{gone}");
        }
        client.send(
            "GET /app/x?y HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n\r\n",
        );
        client.reply();
        let seen = &origin.seen()[1];
        assert_eq!(seen.line(), "GET /x?y HTTP/1.1");
        assert_eq!(seen.field("host").unwrap(), "inner.example");
        assert_eq!(seen.field("x-forwarded-for").unwrap(), "192.0.2.1, 127.0.0.1");
        assert_eq!(seen.field("x-forwarded-proto").unwrap(), "https");
        assert_eq!(seen.field("x-forwarded-host").unwrap(), "a.example");
        assert_eq!(seen.field("x-forwarded-prefix").unwrap(), "/app");
        assert_eq!(seen.connection, 0);
    }
}

#[test]
fn requests_of_old_clients_are_forwarded() {
    let origin = Origin::echo();
    let gateway = Gateway::start(BackendKind::Epoll, &config(&[&origin.address], "", ""));
    let mut client = Client::connect(&gateway.address);
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    assert!(client.is_closed());
    let seen = &origin.seen()[0];
    assert_eq!(seen.line(), "GET / HTTP/1.1");
    assert_eq!(seen.field("host"), Some(origin.address.clone()));
}

#[test]
fn options_that_may_go_no_further_are_answered_here() {
    let origin = Origin::echo();
    let gateway = Gateway::start(BackendKind::Epoll, &config(&[&origin.address], "", ""));
    for head in ["OPTIONS * HTTP/1.1", "OPTIONS / HTTP/1.1\r\nMax-Forwards: 0"] {
        let mut client = Client::connect(&gateway.address);
        client.send(format!("{head}\r\nHost: a\r\n\r\n"));
        let reply = client.reply();
        assert_eq!((reply.status, reply.text()), (200, ""), "{head}");
        assert!(reply.field("allow").unwrap().contains("OPTIONS"));
    }
    assert!(origin.seen().is_empty());
    let mut client = Client::connect(&gateway.address);
    client.send("OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 7\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    assert_eq!(origin.seen()[0].field("max-forwards").unwrap(), "6");
}

#[test]
fn fields_of_the_connection_are_named_and_names_of_trailers_go_with_them() {
    let origin = Origin::start(|line| {
        loop {
            line.request()?;
            line.send(
                "HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n\
                 2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n",
            )?;
        }
    });
    let gateway = Gateway::start(BackendKind::Epoll, &config(&[&origin.address], "", ""));
    let mut client = Client::connect(&gateway.address);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nTrailer: x-sum\r\nFront-End-Https: on\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.text(), reply.field("trailer")), ("ok", None));
    client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.text(), reply.field("trailer").as_deref()), ("ok", Some("x-sum")));
    assert_eq!(reply.trailers.to_ascii_lowercase(), "x-sum: 1\r\n");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTrailer: x-sum\r\nContent-Length: 2\r\n\r\nhi");
    client.reply();
    let seen = origin.seen();
    let fields = |index: usize| {
        ["connection", "te", "trailer", "front-end-https"].map(|name| seen[index].field(name))
    };
    assert_eq!(fields(0), [None, None, None, None]);
    assert_eq!(fields(1), [Some("te".to_owned()), Some("trailers".to_owned()), None, None]);
    assert_eq!(fields(2), [None, None, None, None]);
}

#[test]
fn a_refusal_that_ends_the_connection_says_so() {
    let origin = Origin::echo();
    let text = config(&[&origin.address], "", "") + "[limits]\nbody_bytes = 100\n";
    let gateway = Gateway::start(BackendKind::Epoll, &text);
    for (fields, status, closes) in [
        ("Host: a\r\nContent-Length: 101\r\n", 413, true),
        ("Host: a@b\r\nContent-Length: 10\r\n", 400, true),
        ("Host: a\r\nContent-Length: 10\r\nExpect: more\r\n", 417, true),
        ("Host: a\r\nContent-Length: x\r\n", 400, true),
        ("Host: a@b\r\n", 400, true),
    ] {
        let mut client = Client::connect(&gateway.address);
        client.send(format!("POST / HTTP/1.1\r\n{fields}\r\n"));
        let reply = client.reply();
        assert_eq!(reply.status, status, "{fields}");
        assert_eq!(reply.field("connection").is_some(), closes, "{fields}");
    }
}

/// A large head of a response is passed on, and one that is too large is not.
#[test]
fn heads_of_responses_may_be_large() {
    for (fields, status) in [(15, 200), (50, 200), (62, 200), (70, 502)] {
        let head: String =
            (0..fields).map(|at| format!("x-{at}: {}\r\n", "v".repeat(1000))).collect();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{head}\r\nok");
        let origin = Origin::start(move |line| {
            loop {
                line.request()?;
                line.send(&answer)?;
            }
        });
        for lane in ["", GIVEN] {
            let gateway = Gateway::start(MOST[0], &config(&[&origin.address], "", lane));
            let mut client = Client::connect(&gateway.address);
            for _ in 0..2 {
                let reply = client.get("/");
                assert_eq!(reply.status, status, "{fields} {lane}");
                if status == 200 {
                    assert_eq!(reply.text(), "ok");
                    assert_eq!(reply.field(&format!("x-{}", fields - 1)).unwrap().len(), 1000);
                }
            }
        }
    }
}
