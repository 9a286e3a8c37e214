//! Connections that an application holds (GRIP): an application of the tests says each instruction,
//! and publishers of the tests each item.

use std::io::{self, Read};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use futures_rustls::TlsConnector;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Incoming;
use superpoll_gateway::config::{KeySource, TokenRule};
use superpoll_http::token::Verifier;
use superpoll_hub::channel::GripKey;
use superpoll_rt::{BackendKind, Runtime, spawn, time};

use crate::gateway::{Gateway, LIMIT, MOST, all, wait};
use crate::http2::{certificate, encrypted, speak};
use crate::origin::{Client, Origin, Reply, Seen, ServerConnection};

pub(crate) const KEY: &str = "a secret of at least thirty-two bytes";

pub(crate) fn text(app: &str, proxy: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
         proxy = {{ upstream = \"app\", grip = {{ key = {KEY:?} }}{proxy} }}\n\
         [[hosts.routes]]\npath = \"/publish\"\ngrip = {{ key = {KEY:?} }}\n\
         [upstreams.app]\nservers = [{{ address = \"{app}\" }}]\n"
    )
}

/// An application that answers each path with one of these heads and bodies.
fn app(answers: &'static [(&'static str, &'static str, &'static str)]) -> Origin {
    Origin::start(move |line| {
        loop {
            let seen = line.request()?;
            answer(line, &seen, answers)?;
        }
    })
}

fn answer(
    line: &mut ServerConnection,
    seen: &Seen,
    answers: &[(&str, &str, &str)],
) -> io::Result<()> {
    let path = seen.line().split(' ').nth(1).unwrap();
    let found = answers.iter().find(|(known, ..)| *known == path);
    let (_, fields, body) = found.unwrap_or(&("", "", "plain"));
    let (status, fields) = match fields.split_once('|') {
        Some((status, fields)) => (status, fields),
        None => ("200 OK", *fields),
    };
    let fields: String = fields.lines().map(|line| format!("{}\r\n", line.trim())).collect();
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n");
    line.send(head)?;
    if !seen.line().starts_with("HEAD") {
        line.send(body)?;
    }
    Ok(())
}

/// Publishes items, in the JSON of the list.
pub(crate) fn publish(gateway: &Gateway, items: &str) {
    let reply = post(gateway, &format!("{{\"items\":[{items}]}}"), "");
    assert_eq!((reply.status, reply.text()), (200, "Published\n"), "{items}");
}

fn post(gateway: &Gateway, body: &str, more: &str) -> Reply {
    let mut client = Client::connect(&gateway.address);
    let length = body.len();
    client.send(format!(
        "POST /publish/ HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n{more}\
         Content-Length: {length}\r\n\r\n{body}"
    ));
    client.reply()
}

fn stream_item(channel: &str, content: &str) -> String {
    format!(r#"{{"channel":"{channel}","formats":{{"http-stream":{{"content":"{content}"}}}}}}"#)
}

/// Reads the next chunk of a stream; empty at its end.
fn chunk(client: &mut Client) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        client.reader.read_exact(&mut byte).unwrap();
        line.extend(byte);
    }
    let length = std::str::from_utf8(&line).unwrap().trim();
    let length = usize::from_str_radix(length, 16).unwrap_or_else(|_| panic!("{length:?}"));
    let mut data = vec![0; length + 2];
    client.reader.read_exact(&mut data).unwrap();
    assert!(data.ends_with(b"\r\n"));
    String::from_utf8_lossy(&data[..length]).into_owned()
}

/// Reads chunks until they are this text.
fn chunks(client: &mut Client, text: &str) {
    let mut found = String::new();
    while found.len() < text.len() {
        let next = chunk(client);
        assert!(!next.is_empty(), "the stream has ended after {found:?}");
        found += &next;
    }
    assert_eq!(found, text);
}

fn ask(gateway: &Gateway, request: &str) -> Client {
    let mut client = Client::connect(&gateway.address);
    client.send(format!("{request}\r\nHost: a.example\r\n\r\n"));
    client
}

/// Returns how many connections are held.
pub(crate) fn subscribers(gateway: &Gateway) -> usize {
    gateway.call(|_, server| {
        let path = GripKey::path(&KeySource::Text(KEY.to_owned()));
        server.channel("*grip", &path).map_or(0, |log| log.subscribers())
    })
}

const STREAMS: &[(&str, &str, &str)] = &[
    (
        "/stream",
        "Grip-Hold: stream\nGrip-Channel: c1, other; filter=nope\nX-App: 1\nContent-Type: text/plain",
        "hello\n",
    ),
    ("/alive", "Grip-Hold: stream\nGrip-Keep-Alive: k\\n; format=cstring; timeout=20", ""),
    ("/gone", "Grip-Hold: stream\nGrip-Channel: c1\nGrip-Link: </lost?x=1>; rel=gone", "held\n"),
    (
        "/filtered",
        "Grip-Hold: stream\nGrip-Channel: f; filter=skip-self; filter=skip-users; \
         filter=var-subst; filter=require-sub, g\nGrip-Set-Meta: user=\"u1\", name=\"A\\\"x\"",
        "",
    ),
    ("/exposed", "Grip-Hold: stream\nGrip-Expose-Headers: X-A\nX-A: 1\nX-B: 2", ""),
    (
        "/document",
        "Content-Type: application/grip-instruct; charset=utf-8",
        r#"{"hold":{"mode":"stream","channels":[{"name":"d"}],"meta":{"user":"u"}},
            "response":{"code":202,"headers":[["X-D","1"],["X-D","2"]],"body":"start"}}"#,
    ),
];

#[test]
fn streams_get_the_items_of_their_channels() {
    for backend in all() {
        let app = app(STREAMS);
        let gateway = Gateway::start(backend, &text(&app.address, ""));
        let mut client = ask(
            &gateway,
            "GET /stream HTTP/1.1\r\nGrip-Sig: forged\r\nGrip_Sig: forged\r\nAccept-Encoding: gzip",
        );
        let head = client.head().unwrap();
        assert_eq!((head.status, head.field("x-app").as_deref()), (200, Some("1")));
        assert!(!head.head.to_ascii_lowercase().contains("grip-"), "{}", head.head);
        assert_eq!(head.field("transfer-encoding").as_deref(), Some("chunked"));
        chunks(&mut client, "hello\n");
        // The application knows the gateway by its signature alone.
        let seen = app.seen().remove(0);
        let verifier = Verifier::with_secret(KEY.as_bytes(), &TokenRule::default());
        let signed = verifier.verify(&seen.field("grip-sig").unwrap()).unwrap();
        assert!(signed.valid_until.is_some());
        assert_eq!((seen.field("grip_sig"), seen.field("accept-encoding")), (None, None));
        let features = seen.field("grip-feature").unwrap();
        assert!(features.starts_with("status, link:next, "), "{features}");
        for number in 0..50 {
            publish(&gateway, &stream_item("c1", &format!("item {number}\\n")));
            chunks(&mut client, &format!("item {number}\n"));
        }
        // Nothing is written for others, and nothing that is empty.
        publish(
            &gateway,
            &format!(
                r#"{},{{"channel":"c1","formats":{{"http-response":{{"body":"no"}}}}}},{},{}"#,
                stream_item("elsewhere", "no"),
                stream_item("c1", ""),
                stream_item("other", "of the other channel")
            ),
        );
        chunks(&mut client, "of the other channel");
        publish(&gateway, &stream_item("other", "alone"));
        chunks(&mut client, "alone");
        publish(
            &gateway,
            r#"{"channel":"c1","formats":{"http-stream":{"content-bin":"AP8="}}},
               {"channel":"c1","formats":{"http-stream":{"action":"close"}}},
               {"channel":"c1","formats":{"http-stream":{"content":"after the end"}}}"#,
        );
        assert_eq!(chunk(&mut client), "\0\u{fffd}");
        assert_eq!(chunk(&mut client), "");
        assert!(client.is_closed());
        wait(|| subscribers(&gateway) == 0);
    }
}

#[test]
fn what_is_sent_in_silence_is_the_application_s() {
    for backend in MOST {
        let app = app(STREAMS);
        let gateway = Gateway::start(backend, &text(&app.address, ""));
        let mut client = ask(&gateway, "GET /alive HTTP/1.1");
        client.head().unwrap();
        wait(|| subscribers(&gateway) == 1);
        for _ in 0..3 {
            gateway.elapse(Duration::from_secs(22));
            chunks(&mut client, "k\n");
        }
        // Without instructions for silence nothing is sent.
        let mut quiet = ask(&gateway, "GET /exposed HTTP/1.1");
        let head = quiet.head().unwrap();
        assert_eq!((head.field("x-a"), head.field("x-b")), (Some("1".to_owned()), None));
        wait(|| subscribers(&gateway) == 2);
        gateway.elapse(Duration::from_secs(300));
        publish(&gateway, &stream_item("c1", "for nobody"));
        quiet.stream.set_nonblocking(true).unwrap();
        let read = quiet.reader.read(&mut [0; 16]);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}

#[test]
fn the_application_is_told_of_clients_that_have_gone() {
    for backend in MOST {
        let app = app(STREAMS);
        let gateway = Gateway::start(backend, &text(&app.address, ""));
        let told = || app.seen().iter().filter(|seen| seen.line().contains("/lost")).count();
        let mut client = ask(&gateway, "GET /gone HTTP/1.1");
        client.head().unwrap();
        chunks(&mut client, "held\n");
        wait(|| subscribers(&gateway) == 1);
        drop(client);
        wait(|| told() == 1);
        assert_eq!(app.seen().last().unwrap().line(), "POST /lost?x=1 HTTP/1.1");
        // It knows of an end that it has said itself.
        let mut client = ask(&gateway, "GET /gone HTTP/1.1");
        client.head().unwrap();
        chunks(&mut client, "held\n");
        publish(&gateway, r#"{"channel":"c1","formats":{"http-stream":{"action":"close"}}}"#);
        assert_eq!(chunk(&mut client), "");
        drop(client);
        wait(|| subscribers(&gateway) == 0);
        assert_eq!(told(), 1);
    }
}

#[test]
fn filters_leave_items_out_and_fill_them_in() {
    let app = app(STREAMS);
    let gateway = Gateway::start(BackendKind::Adaptive, &text(&app.address, ""));
    let mut client = ask(&gateway, "GET /filtered HTTP/1.1");
    client.head().unwrap();
    let item = |meta: &str, content: &str| {
        format!(
            r#"{{"channel":"f","meta":{{{meta}}},"formats":{{"http-stream":{{"content":"{content}"}}}}}}"#
        )
    };
    let items = [
        item(r#""sender":"u1""#, "own"),
        item(r#""sender":"u2""#, "for %(user)s, %(name)s;"),
        item(r#""sender":"u2""#, "no value: %(none)s"),
        item(r#""skip_users":"u0, u1""#, "skipped"),
        item(r#""require_sub":"h""#, "needs h"),
        item(r#""require_sub":"g""#, "needs g;"),
        stream_item("g", "as it is: %(user)s"),
    ];
    publish(&gateway, &items.join(","));
    chunks(&mut client, "for u1, A\"x;needs g;as it is: %(user)s");
}

#[test]
fn instructions_may_be_a_document() {
    let app = app(STREAMS);
    let gateway = Gateway::start(BackendKind::Adaptive, &text(&app.address, ""));
    let mut client = ask(&gateway, "GET /document HTTP/1.1");
    let head = client.head().unwrap();
    assert_eq!((head.status, head.field("x-d").as_deref()), (202, Some("1|2")));
    chunks(&mut client, "start");
    publish(&gateway, &stream_item("d", "one"));
    chunks(&mut client, "one");
}

#[test]
fn a_stream_of_an_old_client_ends_with_its_connection_and_head_has_no_stream() {
    for backend in MOST {
        let app = app(STREAMS);
        let gateway = Gateway::start(backend, &text(&app.address, ""));
        let mut client = ask(&gateway, "GET /stream HTTP/1.0");
        let head = client.head().unwrap();
        assert_eq!((head.status, head.field("transfer-encoding")), (200, None));
        let mut data = [0; 6];
        client.reader.read_exact(&mut data).unwrap();
        publish(&gateway, &stream_item("c1", "one\\n"));
        client.reader.read_exact(&mut data[..4]).unwrap();
        assert_eq!(&data, b"one\no\n");
        publish(&gateway, r#"{"channel":"c1","formats":{"http-stream":{"action":"close"}}}"#);
        assert!(client.is_closed());
        let mut client = ask(&gateway, "HEAD /stream HTTP/1.1");
        assert_eq!(client.reply_to("HEAD").unwrap().status, 200);
        assert_eq!(subscribers(&gateway), 0);
    }
}

const POLLS: &[(&str, &str, &str)] = &[
    (
        "/lp",
        "Grip-Hold: response\nGrip-Channel: c2\nGrip-Timeout: 20\nX-T: 1\nX-P: 1\n\
         Content-Type: application/json",
        "{}",
    ),
    ("/short", "Grip-Hold: response\nGrip-Channel: c2\nGrip-Timeout: 1", "late"),
    ("/status", "Grip-Hold: response\nGrip-Channel: c2\nGrip-Status: 304 Not Modified", ""),
    ("/nobody", "Grip-Hold: response\nGrip-Timeout: 5", "nobody"),
    ("/long", "Grip-Hold: response\nGrip-Timeout: 600", "long"),
];

#[test]
fn an_item_answers_long_polls_or_their_time_ends() {
    for backend in all() {
        let app = app(POLLS);
        let gateway = Gateway::start(backend, &text(&app.address, ""));
        let mut client = ask(&gateway, "GET /lp HTTP/1.1");
        wait(|| subscribers(&gateway) == 1);
        publish(
            &gateway,
            r#"{"channel":"c2","formats":{"http-response":{"code":201,
                "headers":[["X-P","2"],["Set-Cookie","a=1"],["Set-Cookie","b=2"],
                ["Content-Length","99"]],"body":"{\"x\":1}"}}}"#,
        );
        let reply = client.reply();
        assert_eq!((reply.status, reply.text()), (201, "{\"x\":1}"));
        assert_eq!(reply.field("x-t").as_deref(), Some("1"));
        assert_eq!(reply.field("x-p").as_deref(), Some("2"));
        assert_eq!(reply.field("set-cookie").as_deref(), Some("a=1|b=2"));
        assert_eq!(reply.field("content-type").as_deref(), Some("application/json"));
        assert_eq!(reply.field("content-length").as_deref(), Some("7"));
        assert!(!reply.head.to_ascii_lowercase().contains("grip-"));
        // The connection goes on.
        assert_eq!(client.get("/plain").text(), "plain");
        client.send("GET /lp HTTP/1.1\r\nHost: a\r\n\r\n");
        wait(|| subscribers(&gateway) == 1);
        gateway.elapse(Duration::from_secs(23));
        let reply = client.reply();
        assert_eq!((reply.status, reply.text()), (200, "{}"));
        // It waits for five seconds at least.
        client.send("GET /short HTTP/1.1\r\nHost: a\r\n\r\n");
        wait(|| subscribers(&gateway) == 1);
        gateway.elapse(Duration::from_secs(3));
        assert_eq!(subscribers(&gateway), 1);
        gateway.elapse(Duration::from_secs(5));
        assert_eq!(client.reply().text(), "late");
        client.send("GET /status HTTP/1.1\r\nHost: a\r\n\r\n");
        wait(|| subscribers(&gateway) == 1);
        gateway.elapse(Duration::from_secs(60));
        let reply = client.reply();
        assert_eq!((reply.status, reply.body.len()), (304, 0));
        // A client that has gone leaves nothing behind.
        let client = ask(&gateway, "GET /nobody HTTP/1.1");
        wait(|| subscribers(&gateway) == 1);
        drop(client);
        wait(|| subscribers(&gateway) == 0);
    }
}

#[test]
fn a_hint_makes_the_application_be_asked_again() {
    for backend in MOST {
        let asked = Mutex::new(0);
        let app = Origin::start(move |line| {
            loop {
                let seen = line.request()?;
                let mut asked = asked.lock().unwrap();
                *asked += 1;
                if *asked % 3 == 0 {
                    line.answer("fresh")?;
                } else {
                    let channel = seen.line().split(' ').next().unwrap();
                    line.send(format!(
                        "HTTP/1.1 200 OK\r\nGrip-Hold: response\r\n\
                         Grip-Channel: {channel}; prev-id=5\r\nContent-Length: 1\r\n\r\nt",
                    ))?;
                }
            }
        });
        let gateway = Gateway::start(backend, &text(&app.address, ""));
        // With a body, which is sent again, and without one.
        for (method, more) in [("POST", "Content-Length: 3\r\n\r\nabc"), ("GET", "\r\n")] {
            let mut client = Client::connect(&gateway.address);
            client.send(format!("{method} /lp?x=1 HTTP/1.1\r\nHost: a\r\nX-Own: 1\r\n{more}"));
            wait(|| subscribers(&gateway) == 1);
            let asked = app.seen().len();
            let hint = r#""formats":{"http-response":{"action":"hint"}}"#;
            publish(&gateway, &format!(r#"{{"channel":"{method}",{hint}}}"#));
            // It is held again.
            wait(|| app.seen().len() == asked + 1 && subscribers(&gateway) == 1);
            // An item behind one that is missing.
            publish(
                &gateway,
                &format!(
                    r#"{{"channel":"{method}","id":"7","prev-id":"6","no-seq":true,
                       "formats":{{"http-response":{{"body":"seven"}}}}}}"#
                ),
            );
            assert_eq!(client.reply().text(), "fresh");
            let seen = app.seen().pop().unwrap();
            assert_eq!(seen.line(), format!("{method} /lp?x=1 HTTP/1.1"));
            assert_eq!(seen.field("x-own").as_deref(), Some("1"));
            let last = format!("{method}; last-id=5");
            assert_eq!(seen.field("grip-last").as_deref(), Some(&*last));
            assert_eq!(seen.body, if method == "POST" { &b"abc"[..] } else { b"" });
        }
    }
}

#[test]
fn an_item_that_was_published_before_the_hold_is_not_missed() {
    let app = app(&[("/lp", "Grip-Hold: response\nGrip-Channel: c2; prev-id=1", "late")]);
    let gateway = Gateway::start(BackendKind::Adaptive, &text(&app.address, ""));
    let item = |id: &str, previous: &str| {
        format!(
            r#"{{"channel":"c2","id":"{id}","prev-id":"{previous}",
               "formats":{{"http-response":{{"body":"item {id}"}}}}}}"#
        )
    };
    publish(&gateway, &[item("1", "0"), item("2", "1"), item("3", "2")].join(","));
    let mut client = ask(&gateway, "GET /lp HTTP/1.1");
    assert_eq!(client.reply().text(), "item 2");
}

#[test]
fn an_item_that_is_missing_at_the_hold_is_asked_for_at_once() {
    const ANSWERS: &[(&str, &str, &str)] = &[
        ("/lp", "Grip-Hold: response\nGrip-Channel: c2; prev-id=1, c3; prev-id=x", "late"),
        (
            "/stream",
            "Grip-Hold: stream\nGrip-Channel: c2; prev-id=1\nGrip-Link: </rest>; rel=next",
            "begun\n",
        ),
        (
            "/rest",
            "Grip-Hold: stream\nGrip-Channel: c2; prev-id=9\nGrip-Link: </rest>; rel=next",
            "up to 9\n",
        ),
        // It stays behind.
        (
            "/behind",
            "Grip-Hold: stream\nGrip-Channel: c2; prev-id=1\nGrip-Link: </behind>; rel=next",
            "behind\n",
        ),
    ];
    for backend in all() {
        let app = app(ANSWERS);
        let gateway = Gateway::start(backend, &text(&app.address, ""));
        let item = |id: u32, previous: u32| {
            format!(
                r#"{{"channel":"c2","id":"{id}","prev-id":"{previous}","no-seq":true,"formats":{{
                   "http-stream":{{"content":"item {id}\n"}},"http-response":{{"body":"item {id}"}}}}}}"#
            )
        };
        publish(&gateway, &item(9, 8));
        for (number, request) in ["/stream", "/behind"].into_iter().enumerate() {
            let mut client = ask(&gateway, &format!("GET {request} HTTP/1.1"));
            client.head().unwrap();
            let begin = if request == "/stream" { "begun\nup to 9\n" } else { "behind\nbehind\n" };
            chunks(&mut client, begin);
            let seen = app.seen().pop().unwrap();
            assert_eq!(seen.field("grip-last").as_deref(), Some("c2; last-id=1"), "{seen:?}");
            let id = 10 + u32::try_from(number).unwrap();
            let previous = if request == "/stream" { 9 } else { 1 };
            publish(&gateway, &item(id, previous));
            chunks(&mut client, &format!("item {id}\n"));
            drop(client);
            wait(|| subscribers(&gateway) == 0);
        }
        // Once for what the log has, whatever the application answers; then for what follows.
        let before = app.seen().len();
        let mut client = ask(&gateway, "GET /lp HTTP/1.1");
        wait(|| subscribers(&gateway) == 1);
        let seen = app.seen();
        assert_eq!(seen.len(), before + 2, "{seen:?}");
        let again = seen.last().unwrap();
        assert_eq!(again.field("grip-last").as_deref(), Some("c2; last-id=1|c3; last-id=x"));
        publish(&gateway, &item(12, 1));
        assert_eq!(client.reply().text(), "item 12");
    }
}

const LINKS: &[(&str, &str, &str)] = &[
    ("/page1", "Grip-Link: </page2>; rel=next", "part1\n"),
    (
        "/page2",
        "Grip-Hold: stream\nGrip-Channel: c8; prev-id=2\nX-Other: 1\n\
         Grip-Link: <http://any.example/recover?q=1>; rel=next; timeout=30",
        "part2\n",
    ),
    (
        "/recover?q=1",
        "Grip-Hold: stream\nGrip-Channel: c8; prev-id=4\nGrip-Link: <end>; rel=next; timeout=30",
        "rec4\n",
    ),
    ("/end", "", "end\n"),
    ("/odd", "Grip-Link: </held>; rel=next", "odd\n"),
    ("/held", "Grip-Hold: response\nGrip-Channel: x", "no"),
    ("/fails", "Grip-Link: </broken>; rel=next", "begun\n"),
    ("/broken", "500 Oops|", ""),
];

#[test]
fn the_next_part_of_a_stream_comes_from_its_link() {
    for backend in all() {
        let app = app(LINKS);
        let gateway = Gateway::start(backend, &text(&app.address, ""));
        let mut client = ask(&gateway, "GET /page1 HTTP/1.1\r\nCookie: a=b");
        client.head().unwrap();
        chunks(&mut client, "part1\npart2\n");
        let item = |id: u32, previous: u32| {
            format!(
                r#"{{"channel":"c8","id":"{id}","prev-id":"{previous}","no-seq":true,
                   "formats":{{"http-stream":{{"content":"item {id}\n"}}}}}}"#
            )
        };
        publish(&gateway, &item(3, 2));
        chunks(&mut client, "item 3\n");
        // The fourth is missing: the application has it.
        publish(&gateway, &[item(5, 4), item(6, 5)].join(","));
        chunks(&mut client, "rec4\n");
        publish(&gateway, &item(7, 4));
        chunks(&mut client, "item 7\n");
        let seen = app.seen();
        let recovered = seen.iter().find(|seen| seen.line().contains("/recover")).unwrap();
        assert_eq!(recovered.line(), "GET /recover?q=1 HTTP/1.1");
        assert_eq!(recovered.field("grip-last").as_deref(), Some("c8; last-id=3"));
        assert_eq!(recovered.field("host").as_deref(), Some("a.example"));
        assert_eq!(recovered.field("cookie"), None);
        // Silence makes it be asked for as well, or a hint.
        wait(|| subscribers(&gateway) == 1);
        if backend == BackendKind::Adaptive {
            publish(&gateway, r#"{"channel":"c8","formats":{"http-stream":{"action":"hint"}}}"#);
        } else {
            gateway.elapse(Duration::from_secs(33));
        }
        chunks(&mut client, "end\n");
        assert_eq!(chunk(&mut client), "");
        assert!(client.is_closed());
    }
}

#[test]
fn a_link_that_fails_is_tried_again_and_then_the_stream_ends() {
    let app = app(LINKS);
    let gateway = Gateway::start(BackendKind::Adaptive, &text(&app.address, ""));
    let mut client = ask(&gateway, "GET /odd HTTP/1.1");
    client.head().unwrap();
    chunks(&mut client, "odd\n");
    assert_eq!(chunk(&mut client), "");
    let mut client = ask(&gateway, "GET /fails HTTP/1.1");
    client.head().unwrap();
    chunks(&mut client, "begun\n");
    let asked = || app.seen().iter().filter(|seen| seen.line().contains("/broken")).count();
    // After 1, 2, 4, 8 and 16 seconds.
    wait(|| {
        gateway.elapse(Duration::from_secs(1));
        asked() == 6
    });
    assert_eq!(chunk(&mut client), "");
    assert_eq!(asked(), 6);
}

const WRONG: &[(&str, &str, &str)] = &[
    ("/hold", "Grip-Hold: bogus\nGrip-Channel: c", "b"),
    ("/timeout", "Grip-Hold: response\nGrip-Channel: c\nGrip-Timeout: abc", "b"),
    ("/mode", "Grip-Hold: stream\nGrip-Keep-Alive: x; mode=foo", "b"),
    ("/format", "Grip-Hold: stream\nGrip-Keep-Alive: x; format=odd", "b"),
    ("/cstring", "Grip-Hold: stream\nGrip-Keep-Alive: x\\; format=cstring", "b"),
    ("/link", "Grip-Hold: stream\nGrip-Link: bad; rel=next", "b"),
    ("/status", "Grip-Hold: stream\nGrip-Status: 999x", "b"),
    ("/previous", "Grip-Hold: stream\nGrip-Channel: c; prev-id=1", "b"),
    ("/channel", "Grip-Hold: stream\nGrip-Channel: ; prev-id=1", "b"),
    ("/meta", "Grip-Hold: stream\nGrip-Set-Meta: user", "b"),
    ("/json", "Content-Type: application/grip-instruct", "{bad"),
    ("/list", "Content-Type: application/grip-instruct", "[]"),
    ("/code", "Content-Type: application/grip-instruct", r#"{"response":{"code":99}}"#),
    ("/fields", "Content-Type: application/grip-instruct", r#"{"response":{"headers":1}}"#),
];

#[test]
fn instructions_that_are_wrong_are_an_error_of_the_application() {
    let app = app(WRONG);
    let gateway = Gateway::start(BackendKind::Adaptive, &text(&app.address, ""));
    for (path, ..) in WRONG {
        let reply = Client::connect(&gateway.address).get(path);
        assert_eq!(reply.status, 502, "{path}");
        let text = reply.text();
        assert!(text.starts_with("Failed to parse accept instructions: "), "{path}: {text}");
        assert!(!reply.head.to_ascii_lowercase().contains("grip-"));
    }
    assert_eq!(subscribers(&gateway), 0);
    // The log has a line, and not one for each.
    let told = gateway.events_of("grip-failed");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].to_string().contains("Grip-Hold must be set to"), "{}", told[0]);
}

#[test]
fn the_control_endpoint_takes_items_of_those_who_know_the_key() {
    let app = app(&[]);
    let gateway = Gateway::start(BackendKind::Adaptive, &text(&app.address, ""));
    let item = stream_item("x", "x");
    let items = format!("{{\"items\":[{item}]}}");
    for (body, status, text) in [
        ("not json", 400, "Body is not valid JSON.\n"),
        ("[]", 400, "Invalid format.\n"),
        ("{}", 400, "Invalid format: object does not contain 'items'\n"),
        (r#"{"items":[{"channel":"x"}]}"#, 400, "Invalid format: no formats specified\n"),
        (r#"{"items":[]}"#, 200, "Published\n"),
        (&items, 200, "Published\n"),
    ] {
        let reply = post(&gateway, body, "");
        assert_eq!((reply.status, reply.text()), (status, text), "{body}");
    }
    let json = post(&gateway, &items, "Accept: application/json\r\n");
    assert_eq!(json.text(), "{\"message\":\"Published\"}\n");
    assert_eq!(json.field("content-type").as_deref(), Some("application/json"));
    assert_eq!(post(&gateway, &items, "Accept: */*\r\n").text(), "Published\n");
    assert_eq!(post(&gateway, &items, "Accept: image/png\r\n").status, 406);
    let large = format!("{{\"items\":[{}]}}", stream_item("x", &"x".repeat(1_000_000)));
    assert_eq!(post(&gateway, &large, "").status, 413);
    let mut client = Client::connect(&gateway.address);
    let reply = client.get("/publish/");
    assert_eq!((reply.status, reply.field("allow").as_deref()), (405, Some("POST")));
    // Strangers.
    for more in ["", "Authorization: Bearer changeme\r\n", "Authorization: Basic eDp5\r\n"] {
        let length = items.len();
        client.send(format!(
            "POST /publish HTTP/1.1\r\nHost: a\r\n{more}Content-Length: {length}\r\n\r\n{items}"
        ));
        let reply = client.reply();
        assert_eq!(
            (reply.status, reply.field("www-authenticate").as_deref()),
            (401, Some("Bearer"))
        );
        client = Client::connect(&gateway.address);
    }
}

#[test]
fn items_of_one_key_are_not_those_of_another() {
    let app = app(STREAMS);
    let other = "another secret of at least thirty-two bytes";
    let text = text(&app.address, "").replacen(KEY, other, 1);
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    let mut client = ask(&gateway, "GET /stream HTTP/1.1");
    client.head().unwrap();
    chunks(&mut client, "hello\n");
    publish(&gateway, &stream_item("c1", "of the other application"));
    client.stream.set_nonblocking(true).unwrap();
    let read = client.reader.read(&mut [0; 16]);
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn items_come_in_their_order_and_once() {
    let app = app(STREAMS);
    let gateway = Gateway::start(BackendKind::Adaptive, &text(&app.address, ""));
    let mut client = ask(&gateway, "GET /stream HTTP/1.1");
    client.head().unwrap();
    chunks(&mut client, "hello\n");
    let item = |id: &str, previous: &str, content: &str| {
        format!(
            r#"{{"channel":"c1","id":"{id}","prev-id":"{previous}",
               "formats":{{"http-stream":{{"content":"{content}"}}}}}}"#
        )
    };
    publish(&gateway, &item("a", "x", "a"));
    publish(&gateway, &item("c", "b", "c"));
    publish(&gateway, &item("b", "a", "b"));
    publish(&gateway, &item("b", "a", "b again"));
    publish(&gateway, &item("e", "d", "e"));
    chunks(&mut client, "abc");
    gateway.elapse(Duration::from_secs(6));
    chunks(&mut client, "e");
}

#[test]
fn a_reload_keeps_held_connections_and_gives_them_their_new_route() {
    for backend in MOST {
        let (first, second) = (app(LINKS), app(LINKS));
        let gateway = Gateway::start(backend, &text(&first.address, ""));
        let mut client = ask(&gateway, "GET /page2 HTTP/1.1");
        client.head().unwrap();
        chunks(&mut client, "part2\n");
        wait(|| subscribers(&gateway) == 1);
        let next = text(&second.address, "");
        gateway.call(move |runtime, server| {
            let config = superpoll_gateway::Config::parse("test", &next).unwrap();
            server.change(runtime, &config).unwrap();
        });
        publish(
            &gateway,
            r#"{"channel":"c8","id":"9","prev-id":"8","formats":{"http-stream":{"content":"x"}}}"#,
        );
        // The other servers are asked for what is missing.
        chunks(&mut client, "rec4\n");
        assert!(second.seen().iter().any(|seen| seen.line().contains("/recover")));
        drop(client);
        wait(|| subscribers(&gateway) == 0);
    }
}

#[test]
fn a_head_is_never_held() {
    let app = app(POLLS);
    let gateway = Gateway::start(BackendKind::Adaptive, &text(&app.address, ""));
    let mut client = ask(&gateway, "HEAD /long HTTP/1.1");
    assert_eq!(client.reply_to("HEAD").unwrap().status, 200);
    assert_eq!(subscribers(&gateway), 0);
    // Nothing is behind it.
    assert_eq!(client.get("/plain").text(), "plain");
}

/// An application may name an id that is far behind, each time.
#[test]
fn an_item_is_a_reason_to_ask_once() {
    for backend in MOST {
        let app = app(&[("/lp", "Grip-Hold: response\nGrip-Channel: c2; prev-id=1", "t")]);
        let gateway = Gateway::start(backend, &text(&app.address, ""));
        let hint = |id: u32, previous: u32| {
            format!(
                r#"{{"channel":"c2","id":"{id}","prev-id":"{previous}","no-seq":true,
                   "formats":{{"http-response":{{"action":"hint"}}}}}}"#
            )
        };
        publish(&gateway, &[hint(1, 0), hint(2, 1), hint(4, 3)].join(","));
        let mut client = ask(&gateway, "GET /lp HTTP/1.1");
        // Once for the request, and once for each item behind the first.
        wait(|| app.seen().len() == 3 && subscribers(&gateway) == 1);
        publish(&gateway, r#"{"channel":"c2","formats":{"http-response":{"body":"answer"}}}"#);
        assert_eq!(client.reply().text(), "answer");
        assert_eq!(app.seen().len(), 3);
    }
}

/// Two hosts without names, on two listeners.
#[test]
fn held_connections_come_back_to_the_application_of_their_own_host() {
    let (one, two) = (app(STREAMS), app(STREAMS));
    let route = |listener: &str, app: &str| {
        format!(
            "[[hosts]]\nlisteners = [\"127.0.0.1:{listener}\"]\n[[hosts.routes]]\n\
             proxy = {{ upstream = \"{app}\", grip = {{ key = {KEY:?} }} }}\n"
        )
    };
    let ports: Vec<_> = (0..2)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
        .map(|address| address.port().to_string())
        .collect();
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:{}\"\n[[listeners]]\naddress = \"127.0.0.1:{}\"\n{}{}\
         [upstreams.one]\nservers = [{{ address = {:?} }}]\n\
         [upstreams.two]\nservers = [{{ address = {:?} }}]\n",
        ports[0],
        ports[1],
        route(&ports[0], "one"),
        route(&ports[1], "two"),
        one.address,
        two.address,
    );
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    let mut client = ask(&gateway, "GET /gone HTTP/1.1");
    client.head().unwrap();
    wait(|| subscribers(&gateway) == 1);
    drop(client);
    wait(|| one.seen().iter().any(|seen| seen.line().contains("/lost")));
    assert!(two.seen().is_empty());
}

#[test]
fn a_client_cannot_make_events_or_name_the_gateway_s_fields() {
    let app = app(STREAMS);
    let gateway = Gateway::start(BackendKind::Adaptive, &text(&app.address, ""));
    let mut client = Client::connect(&gateway.address);
    client.send(
        "POST /plain HTTP/1.1\r\nHost: a\r\nContent-Type: Application/WebSocket-Events; x=1\r\n\
         Connection-Id: victim\r\nMeta-User: admin\r\nContent-Length: 6\r\n\r\nOPEN\r\n",
    );
    assert_eq!(client.reply().status, 415);
    assert!(app.seen().is_empty());
    let mut client = ask(
        &gateway,
        "GET /plain HTTP/1.1\r\nMeta-User: admin\r\nConnection-Id: victim\r\nX-Own: 1\r\n\
         Connection: grip-sig, Grip-Feature, x-own",
    );
    assert_eq!(client.reply().text(), "plain");
    let seen = app.seen().pop().unwrap();
    assert!(seen.field("grip-sig").is_some() && seen.field("grip-feature").is_some());
    for name in ["meta-user", "connection-id", "x-own"] {
        assert_eq!(seen.field(name), None, "{name}");
    }
    // The signature that an application gets is no right to publish.
    let own = seen.field("grip-sig").unwrap();
    let mut client = Client::connect(&gateway.address);
    client.send(format!(
        "POST /publish/ HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {own}\r\nContent-Length: 2\r\n\r\n{{}}"
    ));
    assert_eq!(client.reply().status, 401);
}

#[test]
fn links_are_relative_to_what_the_application_knows() {
    let app = app(&[
        ("/rel", "Grip-Link: <next?x=1>; rel=next", "one "),
        ("/next?x=1", "Grip-Link: <?y=2>; rel=next", "two "),
        ("/next?y=2", "", "three"),
    ]);
    let text = text(&app.address, ", strip_path = true").replacen(
        "[[hosts.routes]]\n",
        "[[hosts.routes]]\npath = \"/app\"\n",
        1,
    );
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    let mut client = ask(&gateway, "GET /app/rel HTTP/1.1");
    client.head().unwrap();
    chunks(&mut client, "one two three");
    assert_eq!(chunk(&mut client), "");
}

#[test]
fn connections_end_with_the_password_of_their_client_or_with_their_route() {
    for backend in MOST {
        let app = app(STREAMS);
        let folder = tempfile::tempdir().unwrap();
        let users = folder.path().join("users");
        std::fs::write(&users, "joe:$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\n")
            .unwrap();
        let rule = format!("basic_auth = {{ realm = \"r\", file = {users:?} }}\n");
        let plain = text(&app.address, "");
        let guarded =
            plain.replacen("[[hosts.routes]]\npath", &format!("{rule}[[hosts.routes]]\npath"), 1);
        let gateway = Gateway::start(backend, &guarded);
        let change = |text: String| {
            gateway.call(move |runtime, server| {
                let config = superpoll_gateway::Config::parse("test", &text).unwrap();
                server.change(runtime, &config).unwrap();
            });
        };
        let ask_as_joe = || {
            let mut client =
                ask(&gateway, "GET /stream HTTP/1.1\r\nAuthorization: Basic am9lOnNlY3JldA==");
            assert_eq!(client.head().unwrap().status, 200);
            chunks(&mut client, "hello\n");
            wait(|| subscribers(&gateway) == 1);
            client
        };
        let mut client = ask_as_joe();
        change(guarded.clone());
        publish(&gateway, &stream_item("c1", "same rules"));
        chunks(&mut client, "same rules");
        std::fs::write(&users, "joan:$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\n")
            .unwrap();
        change(guarded.clone());
        assert_eq!(chunk(&mut client), "");
        wait(|| subscribers(&gateway) == 0);
        std::fs::write(&users, "joe:$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\n")
            .unwrap();
        change(guarded.clone());
        let mut client = ask_as_joe();
        // The route has another path, which is another route.
        change(plain.replacen("[[hosts.routes]]\n", "[[hosts.routes]]\npath = \"/other\"\n", 1));
        assert_eq!(chunk(&mut client), "");
        wait(|| subscribers(&gateway) == 0);
    }
}

#[test]
fn long_polls_and_streams_rest_on_streams_of_http2() {
    const BOTH: &[(&str, &str, &str)] = &[
        ("/lp", "Grip-Hold: response\nGrip-Channel: c2\nGrip-Timeout: 18446744073709551615", "{}"),
        ("/stream", "Grip-Hold: stream\nGrip-Channel: c1", "hello\n"),
        ("/hint", "Grip-Hold: response\nGrip-Channel: c3", "late"),
    ];
    for backend in MOST {
        let app = app(BOTH);
        let folder = tempfile::tempdir().unwrap();
        certificate(folder.path());
        let (gateway, connector) = encrypted(backend, folder.path(), &text(&app.address, ""));
        let address = gateway.address.clone();
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let mut sender = speak(&connector, &address).await;
            let mut asked = |path: &str| {
                let request = Request::get(format!("https://localhost{path}"));
                sender.send_request(request.body(Full::<Bytes>::default()).unwrap())
            };
            let stream = asked("/stream").await.unwrap();
            let mut body = stream.into_body();
            let poll = spawn(asked("/lp"));
            let hint = spawn(asked("/hint"));
            until(|| subscribers(&gateway) == 3).await;
            let next = async |body: &mut Incoming| {
                let frame = body.frame().await.unwrap().unwrap();
                String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
            };
            assert_eq!(next(&mut body).await, "hello\n");
            let post = |items: String| publish_encrypted(&connector, &address, items);
            post(stream_item("c1", "one")).await;
            assert_eq!(next(&mut body).await, "one");
            post(r#"{"channel":"c3","formats":{"http-response":{"action":"hint"}}}"#.into()).await;
            let asked_again = || app.seen().iter().filter(|it| it.line().contains("/hint")).count();
            until(|| asked_again() == 2 && subscribers(&gateway) >= 3).await;
            // The second time as the first.
            for seen in app.seen().iter().filter(|it| it.line().contains("/hint")) {
                assert_eq!(seen.field("x-forwarded-for").as_deref(), Some("127.0.0.1"), "{seen:?}");
                assert_eq!(seen.field("x-forwarded-proto").as_deref(), Some("https"), "{seen:?}");
            }
            post(r#"{"channel":"c3","formats":{"http-response":{"body":"c3"}}}"#.into()).await;
            let response = hint.await.unwrap().unwrap();
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "c3");
            post(r#"{"channel":"c2","formats":{"http-response":{"code":201,"body":"c2"}}}"#.into())
                .await;
            let response = poll.await.unwrap().unwrap();
            assert_eq!(response.status(), 201);
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "c2");
            post(r#"{"channel":"c1","formats":{"http-stream":{"action":"close"}}}"#.into()).await;
            let rest = body.collect().await.unwrap().to_bytes();
            assert!(rest.is_empty(), "{rest:?}");
        });
        wait(|| subscribers(&gateway) == 0);
    }
}

/// Waits while tasks have their turns.
async fn until(is_so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + LIMIT;
    while !is_so() {
        assert!(std::time::Instant::now() < end, "the condition holds");
        time::sleep(Duration::from_millis(5)).await;
    }
}

async fn publish_encrypted(connector: &TlsConnector, address: &str, items: String) {
    let mut sender = speak(connector, address).await;
    let request = Request::post("https://localhost/publish/")
        .header("authorization", format!("Bearer {KEY}"))
        .body(Full::from(format!("{{\"items\":[{items}]}}")))
        .unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
}

#[test]
fn the_admin_listener_takes_items_as_well() {
    let app = app(STREAMS);
    let text = format!("{}[admin]\naddress = \"127.0.0.1:0\"\n", text(&app.address, ""));
    let gateway = Gateway::start(BackendKind::Adaptive, &text);
    let admin = gateway.call(|_, server| server.listening().nth(1).unwrap().to_string());
    let mut client = ask(&gateway, "GET /stream HTTP/1.1");
    client.head().unwrap();
    chunks(&mut client, "hello\n");
    let items = format!("{{\"items\":[{}]}}", stream_item("c1", "by admin"));
    let length = items.len();
    for (key, status) in [("changeme", 401), (KEY, 200)] {
        let mut publisher = Client::connect(&admin);
        publisher.send(format!(
            "POST /publish/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
             Content-Length: {length}\r\n\r\n{items}"
        ));
        assert_eq!(publisher.reply().status, status);
    }
    chunks(&mut client, "by admin");
}
