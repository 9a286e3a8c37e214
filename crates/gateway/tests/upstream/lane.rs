//! Responses whose lines are passed on, next to the same responses as maps of fields.

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use superpoll_rt::BackendKind;

use crate::gateway::{GIVEN, Gateway, MOST, config, wait};
use crate::origin::{Client, Origin, Seen};

/// The first line of a head, and its fields in no order.
type Head = (String, BTreeSet<String>);

/// A response with its body and its trailers.
type Answered = (Head, Vec<u8>, String);

/// The lines of a head in no order, without the time.
fn lines(head: &str) -> Head {
    let mut lines = head.lines();
    let first = lines.next().unwrap().to_owned();
    let fields = lines.map(|line| {
        let (name, value) = line.split_once(':').unwrap();
        format!("{}: {}", name.to_ascii_lowercase(), value.trim())
    });
    (first, fields.filter(|field| !field.starts_with("date: ")).collect())
}

/// The messages that clients and servers have seen.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    /// Heads, bodies and trailers; `None` behind the last one that has come whole.
    replies: Vec<Option<Answered>>,
    requests: Vec<(Head, Vec<u8>)>,
    /// The connection is closed behind the last reply.
    is_closed: bool,
    connections: usize,
    /// The warnings of the gateway, without addresses.
    events: Vec<(&'static str, String)>,
}

/// A response, and whether the server closes the connection behind it.
type Answer = (&'static str, bool);

/// Sends requests together on one connection, and then one more if it is still open.
fn exchange(
    backend: BackendKind,
    proxy: &str,
    requests: &[&'static str],
    answers: &'static [Answer],
) -> (Outcome, u64) {
    let origin = Origin::start(move |line| {
        loop {
            let seen = line.request()?;
            let number =
                seen.line().split(['/', ' ', '?']).nth(2).and_then(|text| text.parse().ok());
            match number.and_then(|number: usize| answers.get(number)) {
                Some((answer, is_last)) => {
                    line.send(answer)?;
                    if *is_last {
                        return Ok(());
                    }
                }
                None => line.answer("as usual")?,
            }
        }
    });
    let gateway = Gateway::start(backend, &config(&[&origin.address], "", proxy));
    let mut client = Client::connect(&gateway.address);
    client.send(requests.concat());
    let mut replies = Vec::new();
    for request in requests {
        let method = request.split(' ').next().unwrap();
        let reply = client.reply_to(method).ok();
        let is_gone = reply.is_none();
        replies.push(reply.map(|reply| {
            let mut head = lines(&reply.head);
            // A body that has come whole gets a length, so that depends on time.
            let length = format!("content-length: {}", reply.body.len());
            if method != "HEAD" && !head.1.remove("transfer-encoding: chunked") {
                head.1.remove(&length);
            }
            if proxy.contains(GIVEN) && head.0.contains(" 304 ") {
                assert!(head.1.remove("vary: accept-encoding"), "{head:?}");
            }
            (head, reply.body, reply.trailers)
        }));
        if is_gone {
            break;
        }
    }
    let last = replies.last().unwrap().as_ref();
    let says_close = |(line, fields): &Head| match line.starts_with("HTTP/1.0") {
        true => !fields.contains("connection: keep-alive"),
        false => fields.contains("connection: close"),
    };
    let is_closed = last.is_none_or(|(head, ..)| says_close(head));
    if is_closed {
        assert!(client.is_closed());
    } else {
        assert_eq!(client.get("/last").text(), "as usual");
    }
    let seen = |seen: Seen| (lines(&seen.head), seen.body);
    let requests = origin.seen().into_iter().map(seen).collect();
    let lane = gateway.call(|_, server| server.engines().iter().map(|one| one.lane.get()).sum());
    let events = gateway.told().into_iter().map(|(name, _, fields)| (name, fields)).collect();
    let connections = origin.connections();
    (Outcome { replies, requests, is_closed, connections, events }, lane)
}

/// Compares the two ways. Returns how many requests have taken the lane.
#[track_caller]
fn compared(requests: &[&'static str], answers: &'static [Answer]) -> u64 {
    let mut passed = Vec::new();
    for backend in MOST {
        let (lane, count) = exchange(backend, "", requests, answers);
        let (given, none) = exchange(backend, GIVEN, requests, answers);
        assert_eq!(lane, given, "{backend:?} {requests:?} {answers:?}");
        assert_eq!(none, 0);
        passed.push(count);
    }
    assert!(passed.iter().all(|count| *count == passed[0]), "{passed:?}");
    passed[0]
}

const PLAIN: &str = "GET /9 HTTP/1.1\r\nHost: a.example\r\n\r\n";
const FIRST: &str = "GET /0 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: x\r\nCookie: a=b\r\n\r\n";

#[test]
fn usual_requests_take_the_lane() {
    assert_eq!(compared(&[PLAIN], &[]), 2);
    assert_eq!(compared(&[PLAIN, FIRST, PLAIN, PLAIN], &[]), 5);
    let fields = "GET /9?a=b HTTP/1.1\r\nhost: A.example:80\r\nX-Forwarded-For: 6.6.6.6\r\n\
                  Forwarded: for=6\r\nX-Real-IP: 6\r\nKeep-Alive: a\r\nProxy: a\r\nX-Own:  b\t\r\n\
                  Client-Cert: a\r\nX-Own: c\r\nConnection: keep-alive\r\n\r\n";
    assert_eq!(compared(&[fields, PLAIN], &[]), 3);
    assert_eq!(compared(&["HEAD /9 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"], &[]), 1);
    for request in [
        "POST /9 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "POST /9 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "PUT /9 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "PATCH /9 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /9 HTTP/1.1\r\nHost: a\r\n\r\n",
        "DELETE /9 HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS /9 HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /9 HTTP/1.1\r\nHost: a\r\nContent-Length: 41\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nX-Smuggled: 1\r\n",
    ] {
        assert_eq!(compared(&[PLAIN, request, PLAIN], &[]), 4, "{request:?}");
    }
}

/// The changes of a route are made by the lane as well.
#[test]
fn requests_are_changed_either_way() {
    const FIELDS: [&str; 5] = [
        "",
        "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: b\r\n",
        "X-Forwarded-For: 6\r\nForwarded: for=6\r\nx-forwarded-for: \r\nX-Forwarded-For: 7\r\n",
        "X-Forwarded-For: \r\nX-Forwarded-Prefix: /b\r\nX-Real-IP: 6\r\nProxy: a\r\n",
        "X-Forwarded-For: \u{e4}\r\nX-Forwarded-For: \u{e4}, a\r\nX-Forwarded-Port: 1\r\n",
    ];
    for options in [
        ", trust_forwarded = true",
        ", strip_path = true",
        ", host = \"b.example\"",
        ", strip_path = true, trust_forwarded = true, host = \"b\"",
    ] {
        for path in ["/9", "/9?a=/b", "/ab/9/c", "/ab", "/ab?c", "/abc/9"] {
            for fields in FIELDS {
                let head = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n");
                let request = &*Box::leak(head.into_boxed_str());
                let (lane, passed) = exchange(BackendKind::Epoll, options, &[request], &[]);
                let off = format!("{options}{GIVEN}");
                let (given, _) = exchange(BackendKind::Epoll, &off, &[request], &[]);
                assert_eq!(lane, given, "{options} {request}");
                assert_eq!(passed, 2, "{options} {request}");
            }
        }
    }
}

/// A body that comes later than its head, and one that does not come for long.
#[test]
fn the_body_of_a_request_may_come_later() {
    for backend in MOST {
        let heads: Arc<AtomicUsize> = Arc::default();
        let counted = heads.clone();
        let origin = Origin::start(move |line| {
            loop {
                let mut seen = line.head()?;
                counted.fetch_add(1, Ordering::SeqCst);
                line.body(&mut seen)?;
                line.answer(std::str::from_utf8(&seen.body).unwrap())?;
            }
        });
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let mut client = Client::connect(&gateway.address);
        let lane =
            || gateway.call(|_, server| server.engines().iter().map(|one| one.lane.get()).sum());
        for (head, pieces) in [
            ("Content-Length: 6", ["abc", "def"]),
            ("Transfer-Encoding: chunked", ["3\r\nabc\r", "\n3\r\ndef\r\n0\r\n\r\n"]),
        ] {
            client.send(format!("POST /a HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n"));
            pieces.iter().for_each(|piece| client.send(piece));
            assert_eq!(client.reply().text(), "abcdef");
        }
        let passed: u64 = lane();
        // The server gets what has come of a long body.
        let long = "x".repeat(20_000);
        client.send(format!(
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n{}",
            &long[3..]
        ));
        wait(|| heads.load(Ordering::SeqCst) == 3);
        client.send("xxx");
        assert_eq!(client.reply().text(), long);
        assert_eq!(lane(), passed + 1);
        // It waits for no short one.
        client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
        assert_eq!(Client::connect(&gateway.address).get("/between").text(), "");
        assert_eq!(heads.load(Ordering::SeqCst), 4);
        client.send("def");
        assert_eq!(client.reply().text(), "abcdef");
        assert_eq!((lane(), heads.load(Ordering::SeqCst)), (passed + 3, 5));
    }
}

#[test]
fn unusual_requests_take_the_lane() {
    for request in [
        "GET /9 HTTP/1.1\nHost: a\n\n",
        "\r\nGET /9 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "DELETE /9 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "POST /9 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: 6\r\nmy_field: 7\r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: a\r\nCookie: a=b\r\nCookie: c=d\r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: a\r\nConnection: x-own\r\nX-Own: a\r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: a\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\n\r\n",
        "POST /9 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "PROPFIND /9 HTTP/1.1\r\nHost: a\r\nDepth: 1\r\n\r\n",
        "POST /9 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n",
        "PUT /9 HTTP/1.1\r\nHost: a\r\nTrailer: x, content-length\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n1\r\nd\r\n0\r\nx: y\r\nContent-Length: 7\r\nx_forwarded_for: 1\r\n\r\n",
        "POST /9 HTTP/1.1\r\nHost: a\r\nTrailer: x\r\nContent-Length: 3\r\n\r\nabc",
        "GET http://a.example/9 HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS http://b.example:81/9?a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /9 HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
        "HEAD http://b/9 HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
    ] {
        assert_eq!(compared(&[PLAIN, request, PLAIN], &[]), 4, "{request:?}");
    }
}

#[test]
fn irregular_requests_go_the_long_way_and_the_next_ones_do_not() {
    for request in [
        "GET /\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: a\r\nUpgrade: foo\r\nConnection: upgrade\r\n\r\n",
        "OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        // Of the one in the middle it counts which way it went, and of those around it as well:
        // What follows was read, and is kept.
        let passed = compared(&[PLAIN, request], &[]);
        assert_eq!(passed, 2, "{request:?}: the first one, and the one behind");
    }
    for refused in [
        "OPTIONS /9 HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n",
        "GET /9/../a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /9 HTTP/1.1\r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: u@a\r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: \r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: a:b\r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: [a]\r\n\r\n",
        "POST /9 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ] {
        compared(&[PLAIN, refused], &[]);
    }
    for broken in [
        "GET /9 HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        "GET /9 HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 4\r\n\r\nabc",
        "GET /9 HTTP/1.1\r\nHost: a\r\nX\0: a\r\n\r\n",
        "BROKEN\r\n\r\n",
    ] {
        compared(&[PLAIN, broken], &[]);
    }
}

/// A target that is a host with a query, where the head is a map of fields.
#[test]
fn a_target_has_a_path() {
    let origin = Origin::named("x");
    let gateway = Gateway::start(BackendKind::Epoll, &config(&[&origin.address], "", ""));
    let mut client = Client::connect(&gateway.address);
    for fields in ["", "Upgrade: foo\r\nConnection: upgrade\r\n"] {
        client.send(format!("GET http://a?b HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(client.reply().status, 200);
        assert_eq!(origin.seen().pop().unwrap().line(), "GET /?b HTTP/1.1");
    }
}

/// Each response is one that the lane passes on: the request and the one behind count.
#[test]
fn usual_responses_are_passed_on() {
    const ANSWERS: [&[Answer]; 12] = [
        &[(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;name=value\r\nabc\r\n0;x\r\n\r\n",
            false,
        )],
        &[(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\nServer-Timing: a\r\n\r\n",
            false,
        )],
        &[(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0000000000000003\r\nabc\r\n00\r\n\r\n",
            false,
        )],
        &[(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: a\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\nabc",
            false,
        )],
        &[("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nDate: now\r\nServer: x\r\n\r\n", false)],
        &[(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n00a\r\n0123456789\r\n0\r\n\r\n",
            false,
        )],
        &[("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false)],
        &[("HTTP/1.1 204 No Content\r\nX: a\r\n\r\n", false)],
        &[("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 7\r\n\r\n", false)],
        &[(
            "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 1\r\nKeep-Alive: a\r\nConnection: keep-alive\r\n\r\nx",
            false,
        )],
        &[(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\nClient-Cert: a\r\n\r\nabc",
            true,
        )],
        &[(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Forwarded-For: a\r\nProxy: b\r\n\r\nabc",
            true,
        )],
    ];
    for answers in ANSWERS {
        assert_eq!(compared(&[FIRST], answers), 2, "{answers:?}");
        assert_eq!(compared(&[PLAIN, FIRST, PLAIN], answers), 4, "{answers:?}");
    }
}

/// The lane reads them as well.
#[test]
fn unusual_responses_are_passed_on() {
    const ANSWERS: [&[Answer]; 7] = [
        &[("HTTP/1.1 200 OK\r\n\r\nuntil the end", true)],
        &[("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", true)],
        &[("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false)],
        &[("HTTP/1.1 299 Its own\r\nContent-Length: 3\r\n\r\nabc", false)],
        &[("HTTP/1.1 200 OK\nContent-Length: 3\n\nabc", false)],
        &[(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: x-own\r\nX-Own: a\r\n\r\nabc",
            false,
        )],
        &[(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            false,
        )],
    ];
    for answers in ANSWERS {
        assert_eq!(compared(&[FIRST], answers), 2, "{answers:?}");
    }
}

/// Each interim response reaches the client before its server goes on; 100 was not asked for.
#[test]
fn interim_responses_are_passed_on_as_they_come() {
    for (backend, proxy) in MOST.into_iter().flat_map(|kind| [(kind, ""), (kind, GIVEN)]) {
        let seen: Arc<AtomicUsize> = Arc::default();
        let counted = seen.clone();
        let origin = Origin::start(move |line| {
            line.request()?;
            line.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x-own\r\nX-Own: a\r\n\r\n")?;
            wait(|| counted.load(Ordering::SeqCst) == 1);
            line.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTT")?;
            wait(|| counted.load(Ordering::SeqCst) == 2);
            line.send("P/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        });
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", proxy));
        let mut client = Client::connect(&gateway.address);
        client.send(PLAIN);
        let hints = client.head().unwrap();
        assert_eq!(hints.status, 103);
        assert_eq!(hints.field("link").as_deref(), Some("</a.css>"));
        assert_eq!(hints.field("x-own"), None);
        seen.store(1, Ordering::SeqCst);
        assert_eq!(client.head().unwrap().status, 102);
        seen.store(2, Ordering::SeqCst);
        assert_eq!(client.reply().text(), "ok");
    }
}

/// A client of HTTP/1.0 does not know them (RFC 9110, section 15.2).
#[test]
fn clients_of_http_1_0_get_no_interim_responses() {
    let origin = Origin::start(move |line| {
        line.request()?;
        line.send("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    });
    let gateway = Gateway::start(BackendKind::Epoll, &config(&[&origin.address], "", ""));
    let mut client = Client::connect(&gateway.address);
    client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply().text(), "ok");
}

/// A server may not go on like this: the client gets an answer, and is not overwhelmed.
#[test]
fn interim_responses_without_an_end_are_a_bad_gateway() {
    let origin = Origin::start(move |line| {
        line.request()?;
        loop {
            line.send("HTTP/1.1 102 Processing\r\n\r\n")?;
        }
    });
    for proxy in ["", GIVEN] {
        let gateway = Gateway::start(BackendKind::Epoll, &config(&[&origin.address], "", proxy));
        let mut client = Client::connect(&gateway.address);
        client.send(PLAIN);
        let mut count = 0;
        let status = loop {
            match client.head().unwrap().status {
                102 => count += 1,
                other => break other,
            }
        };
        assert_eq!(status, 502);
        assert!(count <= 100, "{count}");
    }
}

/// The server goes away behind an interim response, and another one answers.
#[test]
fn an_answer_follows_an_interim_response_whatever_server_it_is_of() {
    let gone = Origin::start(move |line| {
        line.request()?;
        line.send("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n")
    });
    let other = Origin::start(|line| {
        loop {
            line.request()?;
            line.answer("other")?;
        }
    });
    let servers = [&*gone.address, &*other.address];
    let ways = ["", GIVEN].map(|proxy| config(&servers, "", proxy));
    let gateways = ways.map(|text| Gateway::start(BackendKind::Epoll, &text));
    for gateway in gateways.iter().cycle().take(8) {
        let mut client = Client::connect(&gateway.address);
        client.send(PLAIN);
        let mut head = client.head().unwrap();
        if head.status == 103 {
            head = client.head().unwrap();
        }
        assert_eq!(head.status, 200);
    }
}

/// A server that breaks the protocol gets the same answer in the client's place.
#[test]
fn broken_responses_are_answered_either_way() {
    const ANSWERS: [&[Answer]; 8] = [
        &[("", true)],
        &[("nonsense\r\n\r\n", false)],
        &[("HTTP/1.1 200 OK\r\nContent-Le", true)],
        &[("HTTP/1.1 200 OK\r\nContent-Length: 3, 4\r\n\r\nabc", false)],
        &[("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc", false)],
        &[("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\nabc", false)],
        &[("HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n", false)],
        &[("HTTP/1.1 100 Continue\r\n\r\n", true)],
    ];
    for answers in ANSWERS {
        compared(&[FIRST], answers);
    }
}

/// A body that breaks off is never taken for a whole one, and the failure is the server's.
#[test]
fn broken_bodies_are_cut_off() {
    const ANSWERS: [&[Answer]; 5] = [
        &[("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", true)],
        &[("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", true)],
        &[("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n", false)],
        &[("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nabc\r\n0\r\n\r\n", false)],
        &[("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\nabc\r\n0\r\n\r\n", false)],
    ];
    for answers in ANSWERS {
        for backend in MOST {
            for proxy in ["", GIVEN] {
                let (outcome, _) = exchange(backend, proxy, &[FIRST], answers);
                // Before the client has seen anything of it, it can be told.
                if let Some(((first, _), ..)) = &outcome.replies[0] {
                    assert_eq!(first, "HTTP/1.1 502 Bad Gateway", "{backend:?} {answers:?}");
                }
                let events: Vec<_> = outcome.events.iter().map(|event| &event.1[..]).collect();
                assert_eq!(events, ["body null"], "{backend:?} {proxy} {answers:?}");
            }
        }
    }
}

/// Bytes that belong to no response are never the beginning of the next one.
#[test]
fn bytes_behind_a_response_reach_nobody() {
    const ANSWERS: [&[Answer]; 4] = [
        &[(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
            false,
        )],
        &[(
            "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
            false,
        )],
        &[("HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\nforged", false)],
        &[(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
            false,
        )],
    ];
    for answers in ANSWERS {
        compared(&[FIRST], answers);
        compared(&[FIRST, PLAIN, PLAIN], answers);
    }
    // The answer to HEAD has no body, whatever the server sends.
    const HEAD: &[Answer] = &[("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", false)];
    let head = "HEAD /0 HTTP/1.1\r\nHost: a.example\r\n\r\n";
    compared(&[head], HEAD);
    compared(&[head, PLAIN], HEAD);
}

/// The changes of a route that has a path.
#[test]
fn a_path_is_taken_off_either_way() {
    const FIELDS: [&str; 3] =
        ["", "X-Forwarded-Prefix: /b\r\n", "X-Forwarded-Prefix: /b\r\nX-Forwarded-Prefix: /c\r\n"];
    for options in [", strip_path = true", ", strip_path = true, trust_forwarded = true"] {
        for path in ["/ab/9", "/ab/9?a=/ab/b", "/ab", "/ab?c", "/ab//e.example/9", "/ab/ab/9"] {
            for fields in FIELDS {
                let seen = |lane: &str| {
                    let origin = Origin::echo();
                    let text = config(&[&origin.address], "", &format!("{options}{lane}"))
                        .replace("[[hosts.routes]]\n", "[[hosts.routes]]\npath = \"/ab\"\n");
                    let gateway = Gateway::start(BackendKind::Epoll, &text);
                    let mut client = Client::connect(&gateway.address);
                    client.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"));
                    assert_eq!(client.reply().status, 200);
                    lines(&origin.seen()[0].head)
                };
                assert_eq!(seen(""), seen(GIVEN), "{options} {path} {fields}");
            }
        }
    }
}

/// Clients should encode these bytes, and some do not. They reach the server as they are, and the
/// log has them encoded.
#[test]
fn bytes_that_a_client_should_have_encoded_reach_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let origin = Origin::echo();
    let text = config(&[&origin.address], "", "");
    let gateway =
        Gateway::start(BackendKind::Epoll, &format!("{text}[access_log]\npath = {log:?}\n"));
    let mut client = Client::connect(&gateway.address);
    let target = "/a<b>\"^`[0]|?filter={\"c\":\"<d>\"}";
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
    assert_eq!(client.reply().status, 200);
    assert_eq!(origin.seen()[0].line(), format!("GET {target} HTTP/1.1"));
    drop(gateway);
    let line = std::fs::read_to_string(log).unwrap();
    assert!(
        line.contains("GET /a%3Cb%3E%22%5E%60%5B0%5D%7C?filter=%7B%22c%22:%22%3Cd%3E%22%7D"),
        "{line}"
    );
}

/// A request that has come before the server is told to end is answered, and its answer says that
/// it is the last one.
#[test]
fn a_request_behind_a_response_is_answered_before_the_end() {
    for proxy in [GIVEN, ""] {
        let stopped: Arc<AtomicUsize> = Arc::default();
        let goes_on = stopped.clone();
        let origin = Origin::start(move |line| {
            loop {
                let seen = line.request()?;
                if seen.line().contains("slow") {
                    line.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc")?;
                    wait(|| goes_on.load(Ordering::SeqCst) > 0);
                    line.send("def")?;
                } else {
                    line.answer("behind")?;
                }
            }
        });
        let gateway = Gateway::start(BackendKind::Epoll, &config(&[&origin.address], "", proxy));
        let mut client = Client::connect(&gateway.address);
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\nPOST /next HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.head().unwrap();
        assert_eq!(head.field("connection"), None);
        gateway.call(|_, server| server.stop());
        stopped.store(1, Ordering::SeqCst);
        let mut body = [0; 6];
        client.reader.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"abcdef");
        let behind = client.reply_to("POST");
        let behind = behind.unwrap_or_else(|error| panic!("{proxy:?}: no answer: {error}"));
        assert_eq!(behind.text(), "behind");
        assert_eq!(behind.field("connection").unwrap(), "close");
    }
}

/// Fields of requests in a response.
#[test]
fn fields_of_requests_in_responses_are_passed_on_either_way() {
    const ANSWERS: [&[Answer]; 2] = [
        &[("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nHost: b\r\n\r\nabc", false)],
        &[("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nCookie: a=b\r\n\r\nabc", false)],
    ];
    let mut wrong = Vec::new();
    for answers in ANSWERS {
        let lane = exchange(BackendKind::Epoll, "", &[FIRST], answers).0;
        let given = exchange(BackendKind::Epoll, GIVEN, &[FIRST], answers).0;
        if lane != given {
            wrong.push((lane.replies, given.replies));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A request that fails on a connection that was idle before is sent as often either way.
#[test]
fn a_body_in_chunks_is_sent_as_often_either_way() {
    const ANSWERS: &[Answer] = &[("", true)];
    for request in [
        "POST /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "POST /0 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "PATCH /0 HTTP/1.1\r\nHost: a\r\n\r\n",
        "PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "PUT /0 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ] {
        compared(&[PLAIN, request], ANSWERS);
    }
}

/// A response to a handler that cannot be passed on is a failure like others.
#[test]
fn refused_responses_count_as_failures() {
    for proxy in [GIVEN, ""] {
        let origin = Origin::start(|line| {
            if line.request()?.line().contains("coded") {
                line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")?;
            }
            Ok(())
        });
        let gateway = Gateway::start(BackendKind::Epoll, &config(&[&origin.address], "", proxy));
        for path in ["/coded", "/closed", "/closed"] {
            assert_eq!(Client::connect(&gateway.address).get(path).status, 502);
        }
        let told = gateway.told();
        assert!(told.iter().any(|(kind, ..)| *kind == "upstream-down"), "{proxy:?} {told:?}");
    }
}

/// Bytes behind a response to a handler reach nobody, however reads divide them.
#[test]
fn bytes_behind_an_irregular_response_reach_nobody() {
    for length in [100, 8_000, 8_192, 8_193, 10_000, 16_000] {
        let head = |length: usize| format!("HTTP/1.1 299 Own\r\nContent-Length: {length}\r\n\r\n");
        let body = length - head(length).len();
        let forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
        let answer: &str =
            Box::leak(format!("{}{}{forged}", head(body), "x".repeat(body)).into_boxed_str());
        let answers: &'static [Answer] = Box::leak(Box::new([(answer, false)]));
        compared(&[FIRST, PLAIN, PLAIN], answers);
        compared(&["HEAD /0 HTTP/1.1\r\nHost: a\r\n\r\n", PLAIN], answers);
    }
}

/// A client of HTTP/1.0 gets no chunks, and the end of a body of unknown length is that of its
/// connection.
#[test]
fn clients_of_http_1_0_are_answered_either_way() {
    const ANSWERS: [&[Answer]; 5] = [
        &[("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false)],
        &[("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", false)],
        &[("HTTP/1.0 200 OK\r\n\r\nabc", true)],
        &[("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", false)],
        &[("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n", false)],
    ];
    for answers in ANSWERS {
        for fields in ["", "Connection: keep-alive\r\n"] {
            // Whether it has come whole decides whether its length is known.
            let is_known = !answers[0].0.contains("abc") || answers[0].0.contains("Content-Length");
            if !fields.is_empty() && !is_known {
                continue;
            }
            for method in ["GET", "HEAD"] {
                if method == "HEAD" && answers[0].0.ends_with("abc") {
                    continue;
                }
                let request = format!("{method} /0 HTTP/1.0\r\nHost: a.example\r\n{fields}\r\n");
                let requests: [&'static str; 1] = [Box::leak(request.into_boxed_str())];
                for backend in MOST {
                    let (lane, _) = exchange(backend, "", &requests, answers);
                    let (given, _) = exchange(backend, GIVEN, &requests, answers);
                    assert_eq!(lane, given, "{backend:?} {requests:?} {answers:?}");
                }
            }
        }
    }
}

/// Bodies that their clients send when they are invited, and those that they send at once.
#[test]
fn invitations_are_sent_either_way() {
    for backend in MOST {
        for proxy in ["", GIVEN] {
            let origin = Origin::echo();
            let gateway = Gateway::start(backend, &config(&[&origin.address], "", proxy));
            let mut client = Client::connect(&gateway.address);
            for method in ["POST", "PUT"] {
                client.send(format!(
                    "{method} / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
                ));
                assert_eq!(client.head().unwrap().status, 100, "{backend:?} {proxy} {method}");
                client.send("hello");
                assert_eq!(client.reply().text(), "hello", "{backend:?} {proxy} {method}");
            }
            let lane: u64 =
                gateway.call(|_, server| server.engines().iter().map(|one| one.lane.get()).sum());
            assert_eq!(lane, if proxy.is_empty() { 2 } else { 0 });
        }
    }
}
