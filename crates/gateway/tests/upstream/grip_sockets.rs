//! WebSockets whose application is called by requests of HTTP (GRIP).

use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use superpoll_rt::BackendKind;
use tungstenite::protocol::CloseFrame;
use tungstenite::{ClientRequestBuilder, Error, Message, WebSocket, client};

use crate::gateway::{Gateway, LIMIT, MOST, all, wait};
use crate::grip::{publish, subscribers, text};
use crate::origin::{Client, Origin, Seen};

pub(crate) const EVENTS: &str = "application/websocket-events";

pub(crate) fn event(kind: &str, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [format!("{kind} {:x}\r\n", content.len()).as_bytes(), content, b"\r\n"].concat()
}

fn control(json: &str) -> Vec<u8> {
    event("TEXT", format!("c:{json}"))
}

/// Returns the events of a request.
fn events(seen: &Seen) -> Vec<(String, Vec<u8>)> {
    let (mut all, mut rest) = (Vec::new(), &seen.body[..]);
    while !rest.is_empty() {
        let end = rest.windows(2).position(|pair| pair == b"\r\n").unwrap();
        let line = std::str::from_utf8(&rest[..end]).unwrap();
        rest = &rest[end + 2..];
        let (kind, content) = match line.split_once(' ') {
            None => (line, &rest[..0]),
            Some((kind, length)) => {
                let length = usize::from_str_radix(length, 16).unwrap();
                let content = &rest[..length];
                rest = &rest[length + 2..];
                (kind, content)
            }
        };
        all.push((kind.to_owned(), content.to_vec()));
    }
    all
}

fn names(seen: &Seen) -> Vec<String> {
    events(seen)
        .into_iter()
        .map(|(kind, content)| {
            format!("{kind} {}", String::from_utf8_lossy(&content)).trim().to_owned()
        })
        .collect()
}

/// What an application answers: fields, and events.
type Answer = (&'static str, Vec<u8>);

/// An application that answers the handshake and each further request.
fn app(
    open: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    more: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
) -> Origin {
    Origin::start(move |line| {
        loop {
            let seen = line.request()?;
            let is_open = seen.body.starts_with(b"OPEN");
            let (fields, body) = if is_open { open(&seen) } else { more(&seen) };
            let length = body.len();
            line.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {EVENTS}\r\n{fields}Content-Length: {length}\r\n\r\n"
            ))?;
            line.send(body)?;
        }
    })
}

/// The usual answer to a handshake: it subscribes to `w1`.
fn opened(_: &Seen) -> Answer {
    let subscribe = control(r#"{"type":"subscribe","channel":"w1"}"#);
    ("Sec-WebSocket-Extensions: grip\r\n", [&b"OPEN\r\n"[..], &subscribe].concat())
}

/// Sends texts back.
fn echoed(seen: &Seen) -> Answer {
    let echo = |(kind, content): (String, Vec<u8>)| match kind.as_str() {
        "TEXT" | "BINARY" => event(&kind, [&b"m:"[..], &content].concat()),
        _ => Vec::new(),
    };
    ("", events(seen).into_iter().flat_map(echo).collect())
}

type Socket = WebSocket<TcpStream>;

fn connect(gateway: &Gateway, path: &str) -> Socket {
    connect_with(gateway, path, &[]).unwrap().0
}

fn connect_with(
    gateway: &Gateway,
    path: &str,
    fields: &[(&str, &str)],
) -> Result<(Socket, tungstenite::handshake::client::Response), Box<Error>> {
    let uri = format!("ws://a.example{path}").parse().unwrap();
    let mut request = ClientRequestBuilder::new(uri);
    for (name, value) in fields {
        request = request.with_header(*name, *value);
    }
    let stream = TcpStream::connect(&gateway.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    client(request, stream).map_err(|error| match error {
        tungstenite::HandshakeError::Failure(error) => Box::new(error),
        other => panic!("{other}"),
    })
}

#[track_caller]
fn next(socket: &mut Socket) -> String {
    let read = socket.read();
    match read.expect("a message") {
        Message::Text(text) => text.to_string(),
        Message::Binary(data) => format!("{data:?}"),
        Message::Close(frame) => frame.map_or_else(
            || "closed".to_owned(),
            |CloseFrame { code, reason }| format!("closed {} {reason}", u16::from(code)),
        ),
        Message::Ping(data) => format!("ping {data:?}"),
        other => panic!("{other:?}"),
    }
}

fn item(content: &str) -> String {
    format!(r#"{{"channel":"w1","formats":{{"ws-message":{content}}}}}"#)
}

#[test]
fn messages_go_both_ways_and_items_come_between() {
    for backend in all() {
        let open = |_: &Seen| {
            let (_, mut body) = opened(&Seen::clone(&empty()));
            body.extend(event("TEXT", "m:welcome"));
            body.extend(event("TEXT", "neither prefix"));
            body.extend(control("not json"));
            body.extend(control(r#"{"type":"nonsense"}"#));
            let fields = "Sec-WebSocket-Extensions: grip\r\nSet-Meta-User: alice\r\n\
                          Set-Cookie: a=1\r\nSec-WebSocket-Protocol: chat\r\n";
            (fields, body)
        };
        let app = app(open, echoed);
        let gateway = Gateway::start(backend, &text(&app.address, ""));
        let fields = [
            ("Cookie", "s=1"),
            ("Meta-User", "forged"),
            ("meta_user", "forged"),
            ("Connection-Id", "forged"),
            ("Grip-Sig", "forged"),
            ("Sec-WebSocket-Protocol", "chat"),
        ];
        let (mut socket, response) = connect_with(&gateway, "/a?x=1", &fields).unwrap();
        assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
        assert_eq!(response.headers()["set-cookie"], "a=1");
        for hidden in ["sec-websocket-extensions", "set-meta-user", "content-type"] {
            assert!(!response.headers().contains_key(hidden), "{hidden}");
        }
        assert_eq!(next(&mut socket), "welcome");
        socket.send("hello".into()).unwrap();
        assert_eq!(next(&mut socket), "hello");
        socket.send(Message::Binary(vec![0, 13, 10].into())).unwrap();
        assert_eq!(next(&mut socket), "b\"\\0\\r\\n\"");
        wait(|| subscribers(&gateway) == 1);
        publish(
            &gateway,
            &[
                item(r#"{"content":"text"}"#),
                item(r#"{"content-bin":"AQI="}"#),
                item(r#"{"content":"typed","type":"binary"}"#),
                item(r#"{"type":"ping","content":"pp"}"#),
            ]
            .join(","),
        );
        for expected in ["text", "b\"\\x01\\x02\"", "b\"typed\"", "ping b\"pp\""] {
            assert_eq!(next(&mut socket), expected);
        }
        // The gateway answers pings, and the application hears nothing of them.
        let asked = app.seen().len();
        socket.send(Message::Ping("?".into())).unwrap();
        assert!(matches!(socket.read(), Ok(Message::Pong(data)) if &data[..] == b"?"));
        assert_eq!(app.seen().len(), asked);
        socket.close(Some(CloseFrame { code: 3001.into(), reason: "bye".into() })).unwrap();
        assert_eq!(next(&mut socket), "closed 3001 bye");
        wait(|| app.seen().len() == asked + 1);
        let seen = app.seen();
        assert_eq!(names(&seen[0]), ["OPEN"]);
        assert_eq!(events(&seen[asked]), [("CLOSE".to_owned(), b"\x0b\xb9bye".to_vec())]);
        let id = seen[0].field("connection-id").unwrap();
        assert_eq!((id.len(), &id[14..15]), (36, "4"));
        for (number, seen) in seen.iter().enumerate() {
            assert_eq!(seen.line(), "POST /a?x=1 HTTP/1.1");
            assert_eq!(seen.field("content-type").as_deref(), Some(EVENTS));
            assert_eq!(seen.field("accept").as_deref(), Some(EVENTS));
            assert_eq!(seen.field("sec-websocket-extensions").as_deref(), Some("grip"));
            assert_eq!(seen.field("connection-id").as_ref(), Some(&id));
            assert_eq!(seen.field("cookie").as_deref(), Some("s=1"));
            let user = (number > 0).then_some("alice");
            assert_eq!(seen.field("meta-user").as_deref(), user, "{number}");
            assert_eq!((seen.field("meta_user"), seen.field("upgrade")), (None, None));
            assert!(seen.field("grip-sig").unwrap().len() > 60);
        }
        wait(|| subscribers(&gateway) == 0);
    }
}

fn empty() -> Seen {
    Seen {
        connection: 0,
        before: Vec::new(),
        head: String::new(),
        body: Vec::new(),
        trailers: String::new(),
    }
}

#[test]
fn one_request_is_under_way_and_messages_meanwhile_go_into_the_next() {
    for backend in MOST {
        let (answers, under_way) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(())));
        let (may_answer, alone) = (answers.clone(), under_way.clone());
        let app = app(opened, move |seen| {
            let _alone = alone.try_lock().expect("one request at a time");
            wait(|| may_answer.load(Ordering::SeqCst));
            echoed(seen)
        });
        let gateway = Gateway::start(backend, &text(&app.address, ""));
        let mut socket = connect(&gateway, "/");
        socket.send("first".into()).unwrap();
        wait(|| app.seen().len() == 2);
        for number in 0..20 {
            socket.send(format!("m{number}").into()).unwrap();
        }
        answers.store(true, Ordering::SeqCst);
        assert_eq!(next(&mut socket), "first");
        for number in 0..20 {
            assert_eq!(next(&mut socket), format!("m{number}"));
        }
        let all: Vec<String> = app.seen()[2..].iter().flat_map(names).collect();
        let expected: Vec<String> = (0..20).map(|number| format!("TEXT m{number}")).collect();
        assert_eq!(all, expected);
        // Parts of a message are one, however large it is.
        let large = "y".repeat(300_000);
        socket.send(large.clone().into()).unwrap();
        assert!(next(&mut socket) == large);
    }
}

#[test]
fn ends_are_told_to_both_sides() {
    for backend in MOST {
        let app = app(opened, |seen| match names(seen).first().map(String::as_str) {
            Some("TEXT close") => ("", event("CLOSE", b"\x0f\xa1why")),
            Some("TEXT zero") => ("", event("CLOSE", b"\0\0")),
            Some("TEXT drop") => ("", b"DISCONNECT\r\n".to_vec()),
            Some("TEXT odd") => ("", b"ODD\r\n".to_vec()),
            _ => ("", Vec::new()),
        });
        let gateway = Gateway::start(backend, &text(&app.address, ""));
        let last = || app.seen().last().map(names).unwrap();
        let mut socket = connect(&gateway, "/");
        wait(|| subscribers(&gateway) == 1);
        publish(&gateway, &item(r#"{"action":"close","code":4001,"reason":"kicked"}"#));
        assert_eq!(next(&mut socket), "closed 4001 kicked");
        wait(|| last() == ["CLOSE"]);
        for (said, heard) in [("close", "closed 4001 why"), ("zero", "closed 1000 ")] {
            let mut socket = connect(&gateway, "/");
            socket.send(said.into()).unwrap();
            assert_eq!(next(&mut socket), heard);
        }
        for said in ["drop", "odd"] {
            let mut socket = connect(&gateway, "/");
            socket.send(said.into()).unwrap();
            assert!(socket.read().is_err(), "{said}: it ends without a word");
        }
        let asked = app.seen().len();
        let socket = connect(&gateway, "/");
        wait(|| subscribers(&gateway) == 1);
        drop(socket);
        wait(|| app.seen().len() == asked + 2);
        assert_eq!(last(), ["DISCONNECT"]);
        wait(|| subscribers(&gateway) == 0);
    }
}

#[test]
fn the_application_says_what_the_gateway_does() {
    for backend in MOST {
        let app = app(opened, |seen| match names(seen).first().map(String::as_str) {
            Some("TEXT stop") => {
                let stop = control(r#"{"type":"unsubscribe","channel":"w1"}"#);
                ("Set-Meta-A: \r\n", [stop, event("TEXT", "m:stopped")].concat())
            }
            Some("TEXT alive") => {
                let alive = r#"{"type":"keep-alive","content":"ka","timeout":20}"#;
                let user = r#"{"type":"set-meta","name":"user","value":"u9"}"#;
                ("Set-Meta-A: 1\r\n", [control(alive), control(user)].concat())
            }
            Some("TEXT later") => {
                let later = r#"{"type":"send-delayed","content":"late","timeout":7}"#;
                ("", control(later))
            }
            Some("TEXT detach") => {
                ("", [control(r#"{"type":"detach"}"#), event("TEXT", "m:detached")].concat())
            }
            Some("CLOSE") => ("", event("CLOSE", b"\x03\xe8")),
            _ => ("", Vec::new()),
        });
        let gateway = Gateway::start(backend, &text(&app.address, ""));
        let mut socket = connect(&gateway, "/");
        socket.send("alive".into()).unwrap();
        wait(|| app.seen().len() == 2 && subscribers(&gateway) == 1);
        gateway.elapse(Duration::from_secs(23));
        assert_eq!(next(&mut socket), "ka");
        socket.send("later".into()).unwrap();
        wait(|| app.seen().len() == 3);
        gateway.elapse(Duration::from_secs(8));
        assert_eq!(next(&mut socket), "late");
        let seen = app.seen().pop().unwrap();
        assert_eq!(seen.field("meta-a").as_deref(), Some("1"));
        assert_eq!(seen.field("meta-user").as_deref(), Some("u9"));
        socket.send("detach".into()).unwrap();
        assert_eq!(next(&mut socket), "detached");
        wait(|| app.seen().len() == 5);
        assert_eq!(app.seen().last().map(names).unwrap(), ["CLOSE"]);
        // The client stays, and what it says is for nobody.
        socket.send("into the void".into()).unwrap();
        publish(&gateway, &item(r#"{"content":"still here"}"#));
        assert_eq!(next(&mut socket), "still here");
        drop(socket);
        wait(|| subscribers(&gateway) == 0);
        assert_eq!(app.seen().len(), 5);
        let mut socket = connect(&gateway, "/");
        socket.send("stop".into()).unwrap();
        assert_eq!(next(&mut socket), "stopped");
        publish(&gateway, &item(r#"{"content":"for nobody"}"#));
        socket.send(Message::Ping("".into())).unwrap();
        assert!(matches!(socket.read(), Ok(Message::Pong(_))));
    }
}

#[test]
fn without_the_extension_all_is_for_the_client() {
    let open = |_: &Seen| {
        let subscribe = control(r#"{"type":"subscribe","channel":"w1"}"#);
        ("", [&b"OPEN\r\n"[..], &subscribe, &event("TEXT", "m:raw")].concat())
    };
    let with_prefix = |_: &Seen| {
        let own = event("TEXT", "P!own");
        let fields = "Sec-WebSocket-Extensions: grip; message-prefix=\"P!\"\r\n";
        (fields, [&b"OPEN\r\n"[..], &event("TEXT", "m:no"), &own].concat())
    };
    let app_without = app(open, echoed);
    let gateway = Gateway::start(BackendKind::Adaptive, &text(&app_without.address, ""));
    let mut socket = connect(&gateway, "/");
    assert_eq!(next(&mut socket), r#"c:{"type":"subscribe","channel":"w1"}"#);
    assert_eq!(next(&mut socket), "m:raw");
    let app_with = app(with_prefix, echoed);
    let gateway = Gateway::start(BackendKind::Adaptive, &text(&app_with.address, ""));
    assert_eq!(next(&mut connect(&gateway, "/")), "own");
}

#[test]
fn the_application_rejects_handshakes() {
    for (answer, status) in [
        ("HTTP/1.1 403 Forbidden\r\nX-R: 1\r\nContent-Length: 8\r\n\r\nno entry", 403),
        ("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nOPEN\r\n", 200),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: application/websocket-events\r\nContent-Length: 4\r\n\r\nOPEN",
            502,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: application/websocket-events\r\nContent-Length: 7\r\n\r\nCLOSE\r\n",
            502,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: application/websocket-events\r\nContent-Length: 0\r\n\r\n",
            502,
        ),
    ] {
        let app = Origin::start(move |line| {
            loop {
                line.request()?;
                line.send(answer)?;
            }
        });
        let gateway = Gateway::start(BackendKind::Adaptive, &text(&app.address, ""));
        match *connect_with(&gateway, "/", &[]).unwrap_err() {
            Error::Http(response) => assert_eq!(response.status(), status, "{answer}"),
            other => panic!("{answer}: {other}"),
        }
        assert_eq!(subscribers(&gateway), 0);
    }
    // A handshake that is none.
    let app = app(opened, echoed);
    let gateway = Gateway::start(BackendKind::Adaptive, &text(&app.address, ""));
    let mut client = Client::connect(&gateway.address);
    client.send(
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    );
    assert_eq!(client.reply().status, 426);
    assert!(app.seen().is_empty());
}

#[test]
fn an_application_that_is_away_for_a_while_gets_the_events_later() {
    for backend in MOST {
        let first = Origin::start(|line| {
            let seen = line.request()?;
            let (fields, body) = opened(&seen);
            let length = body.len();
            line.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {EVENTS}\r\nConnection: close\r\n{fields}\
                 Content-Length: {length}\r\n\r\n"
            ))?;
            line.send(body)
        });
        let address = first.address.clone();
        let gateway = Gateway::start(backend, &text(&address, ""));
        let mut socket = connect(&gateway, "/");
        wait(|| subscribers(&gateway) == 1);
        drop(first);
        wait(|| TcpStream::connect(&address).is_err());
        socket.send("while it is away".into()).unwrap();
        socket.send("and more".into()).unwrap();
        wait(|| !gateway.events_of("upstream-failed").is_empty());
        let listener = std::net::TcpListener::bind(&address);
        let Ok(listener) = listener else { continue };
        let second = Origin::at(listener, |line| -> io::Result<()> {
            loop {
                let seen = line.request()?;
                let (_, body) = echoed(&seen);
                let length = body.len();
                line.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {EVENTS}\r\nContent-Length: {length}\r\n\r\n"
                ))?;
                line.send(body)?;
            }
        });
        wait(|| {
            gateway.elapse(Duration::from_secs(1));
            !second.seen().is_empty()
        });
        assert_eq!(next(&mut socket), "while it is away");
        assert_eq!(next(&mut socket), "and more");
        let said: Vec<String> = second.seen().iter().flat_map(names).collect();
        assert_eq!(said, ["TEXT while it is away", "TEXT and more"]);
    }
}
