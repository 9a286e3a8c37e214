//! Several channels on one connection.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use superpoll_rt::BackendKind;
use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Error, Message, WebSocket};

use crate::clients::{Events, address};
use crate::stage::{BACKENDS, Client, PATIENCE, Stage, on_each_backend};
use superpoll_test_support::tokens::{rule, token};

/// The seconds after which tokens expire: long enough for a busy machine.
const SOON: i64 = 4;

/// A configuration with rooms, and with a channel of its own that has these options.
fn text(rooms: &str, news: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [timeouts]\npark = \"40ms\"\n\
         [[hosts]]\n\
         [[hosts.routes]]\npath = \"/rooms/{{room}}\"\nchannel = {{ {rooms} }}\n\
         [[hosts.routes]]\npath = \"/news\"\nchannel = {{ {news} }}\n\
         [[hosts.routes]]\npath = \"/old\"\nredirect.to = \"/news\"\n\
         [[hosts.routes]]\npath = \"/.well-known/mercure\"\nmercure = {{ publish = \"anyone\" }}\n\
         [[hosts]]\nnames = [\"other.test\"]\n\
         [[hosts.routes]]\npath = \"/elsewhere\"\nchannel = {{}}\n"
    )
}

fn stage(backend: BackendKind, workers: usize) -> Stage {
    Stage::new(backend, workers, &text("history = 5000", "history = 5000"))
}

fn post(client: &mut Client, path: &str, data: &str) -> u64 {
    let length = data.len();
    client
        .send(format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{data}"));
    let answer = client.answer();
    assert_eq!(answer.status, 201, "{answer:?}");
    serde_json::from_slice::<Value>(&answer.body).unwrap()["id"].as_u64().unwrap()
}

/// Subscribes by server-sent events.
fn events(stage: &Stage, target: &str, fields: &str) -> (Events, String) {
    let mut client = stage.connect();
    client.send(format!(
        "GET {target} HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n{fields}\r\n"
    ));
    Events::answered(client)
}

/// The next message of a stream, and the position behind it.
fn next(events: &mut Events) -> (Value, String) {
    loop {
        let event = events.next().unwrap();
        if !event.is_comment {
            assert_eq!(event.kind, "message");
            return (serde_json::from_str(&event.data).unwrap(), event.id);
        }
    }
}

/// Subscribes by `superpoll.v1`.
fn open(stage: &Stage, target: &str) -> Result<WebSocket<TcpStream>, u16> {
    let url = format!("ws://{}{target}", address(stage));
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "superpoll.v1".parse().unwrap());
    let stream = TcpStream::connect(address(stage)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    match tungstenite::client::client(request, stream) {
        Ok((socket, response)) => {
            assert_eq!(response.headers()["sec-websocket-protocol"], "superpoll.v1");
            Ok(socket)
        }
        Err(tungstenite::HandshakeError::Failure(Error::Http(response))) => {
            Err(response.status().as_u16())
        }
        Err(error) => panic!("{error}"),
    }
}

fn frame(socket: &mut WebSocket<TcpStream>) -> Value {
    loop {
        match socket.read().unwrap() {
            Message::Text(text) => return serde_json::from_str(&text).unwrap(),
            Message::Ping(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stream_has_the_messages_of_all_channels_and_resumes_in_each() {
    for backend in BACKENDS {
        let stage = stage(backend, 2);
        let mut client = stage.connect();
        post(&mut client, "/rooms/a%20b", "before");
        let target = "/rooms/1?also=/rooms/a%2520b&also=%2Fnews";
        let (mut first, start) = events(&stage, target, "");
        let ids: Vec<_> = start.split('.').map(|part| part.split('-').next().unwrap()).collect();
        assert_eq!(ids, ["0", "1", "0"], "{start}");
        let mut position = start;
        for (path, name, data) in [
            ("/news", "/news", "one\ntwo"),
            ("/rooms/1", "/rooms/1", "x"),
            ("/rooms/a%20b", "/rooms/a b", "y"),
            ("/news", "/news", ""),
        ] {
            let id = post(&mut client, path, data);
            let (message, after) = next(&mut first);
            assert_eq!((&message["channel"], &message["data"]), (&name.into(), &data.into()));
            assert_eq!(message["id"], id, "{backend:?}");
            position = after;
        }
        drop(first);
        post(&mut client, "/rooms/1", "meanwhile");
        post(&mut client, "/news", "meanwhile, too");
        let fields = format!("last-event-id: {position}\r\n");
        let (mut second, _) = events(&stage, target, &fields);
        let mut found = [next(&mut second).0, next(&mut second).0]
            .map(|message| (message["channel"].to_string(), message["id"].as_u64().unwrap()));
        found.sort();
        assert_eq!(found, [("\"/news\"".to_owned(), 3), ("\"/rooms/1\"".to_owned(), 2)]);
        // By the URL as well, from now on in one channel, and from the beginning in all.
        let (mut third, _) = events(&stage, &format!("{target}&after=..2"), "");
        assert_eq!(next(&mut third).0["data"], "meanwhile, too");
        let (mut all, _) = events(&stage, &format!("{target}&after=0"), "");
        let count = (0..7).map(|_| next(&mut all)).count();
        assert_eq!(count, 7);
        // An id of another server: what is kept comes, and the client learns of it.
        let (mut other, _) = events(&stage, target, "last-event-id: 7-1.7-1.7-1\r\n");
        for name in ["/rooms/1", "/rooms/a b", "/news"] {
            let (missed, _) = next(&mut other);
            assert_eq!((&missed["missed"], &missed["channel"]), (&true.into(), &name.into()));
        }
    }
}

#[test]
fn a_websocket_subscribes_to_several_channels_and_publishes_to_each() {
    for backend in BACKENDS {
        let stage = stage(backend, 2);
        let mut socket = open(&stage, "/rooms/1?also=/rooms/2&also=/news").unwrap();
        for name in ["/rooms/1", "/rooms/2", "/news"] {
            let place = frame(&mut socket);
            assert_eq!((&place["channel"], &place["id"]), (&name.into(), &0.into()));
        }
        for (message, expected) in [
            ("{\"data\":\"first\"}", "/rooms/1"),
            ("{\"data\":\"named\",\"channel\":\"/news\"}", "/news"),
            ("{\"data\":\"named\",\"channel\":\"/rooms/1\"}", "/rooms/1"),
        ] {
            socket.send(Message::text(message)).unwrap();
            assert_eq!(frame(&mut socket)["channel"], expected, "{backend:?}");
        }
        socket.send(Message::binary(&b"\xff"[..])).unwrap();
        let message = frame(&mut socket);
        assert_eq!((&message["channel"], &message["base64"]), (&"/rooms/1".into(), &"/w==".into()));
        socket.send(Message::text("{\"data\":\"x\",\"channel\":\"/rooms/3\"}")).unwrap();
        let error = frame(&mut socket)["error"].to_string();
        assert!(error.contains("this connection does not have the channel"), "{error}");
        socket.send(Message::text("{\"data\":\"k\",\"key\":\"k\",\"channel\":\"/news\"}")).unwrap();
        let answers = [frame(&mut socket), frame(&mut socket)];
        assert!(answers.iter().any(|answer| answer["published"] == 2), "{answers:?}");
        socket.close(None).unwrap();
        assert!(matches!(socket.read(), Ok(Message::Close(_))));
    }
}

#[test]
fn requests_that_cannot_be_answered_are_refused_with_a_reason() {
    let stage = stage(BACKENDS[2], 1);
    let stream = "accept: text/event-stream\r\n";
    let upgrade = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let thousand: String = (0..1000).map(|number| format!("&also=/rooms/{number}")).collect();
    for (line, fields, status, expected) in [
        ("GET /news?also=/rooms/1", "", 400, "several channels (also) are for server-sent events"),
        ("GET /news?also=/rooms/1&info=1", stream, 400, "several channels (also) are for"),
        ("GET /news?also=/rooms/1", upgrade, 400, "only with the subprotocol superpoll.v1"),
        ("POST /news?also=/rooms/1", "content-length: 0\r\n", 400, "only a subscriber may name"),
        ("DELETE /news?also=/rooms/1", "", 400, "only a subscriber may name"),
        ("GET /news?also=/news", stream, 400, "names the channel \"/news\" twice"),
        ("GET /news?also=/rooms/1&also=/rooms/%31", stream, 400, "\"/rooms/1\" twice"),
        ("GET /news?also=", stream, 400, "also=\"\" in the URL: no channel has this path"),
        ("GET /news?also=/old", stream, 400, "no channel has this path"),
        // Its updates may be private.
        ("GET /news?also=/.well-known/mercure", stream, 400, "no channel has this path"),
        ("GET /news?also=/elsewhere", stream, 400, "no channel has this path"),
        ("GET /news?also=/rooms/1/2", stream, 400, "no channel has this path"),
        ("GET /news?also=/rooms/..", stream, 400, "has a part"),
        ("GET /news?also=/rooms/a%252fb", stream, 400, "has a slash within a part"),
        ("GET /news/x?also=/rooms/1", stream, 404, ""),
        ("GET /news?also=/rooms/1&after=3", stream, 400, "the positions in its 2 channels"),
        (
            &format!("GET /news?x{thousand}"),
            stream,
            400,
            "at most 100 channels, and this URL names 1001",
        ),
    ] {
        let mut client = stage.connect();
        client.send(format!("{line} HTTP/1.1\r\nhost: a\r\n{fields}\r\n"));
        let answer = client.answer();
        let reason = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, status, "{line}: {reason}");
        assert!(reason.contains(expected), "{line}: {reason}");
    }
    // As many as there may be. They are one connection, and none of them was made before.
    let most: String = (0..99).map(|number| format!("&also=/rooms/{number}")).collect();
    let (mut all, _) = events(&stage, &format!("/news?x{most}"), "");
    let mut client = stage.connect();
    for number in [0, 50, 98] {
        post(&mut client, &format!("/rooms/{number}"), "x");
        assert_eq!(next(&mut all).0["channel"], format!("/rooms/{number}"));
    }
    let mut client = stage.connect();
    assert_eq!(client.get("/rooms/99?info=1").status, 404);
}

#[test]
fn each_channel_needs_the_right_and_the_first_refusal_answers() {
    let options = format!("publish = \"token\", subscribe = \"token\", {}", rule(""));
    let stage = Stage::new(BACKENDS[3], 1, &text(&options, "subscribe = \"nobody\""));
    let reads = token(&["/rooms/1", "/rooms/2"], &["/rooms/2"], 600);
    for (target, status) in [
        (format!("/rooms/1?also=/rooms/2&token={reads}"), 200),
        (format!("/rooms/1?also=/rooms/3&token={reads}"), 403),
        (format!("/rooms/3?also=/rooms/1&token={reads}"), 403),
        (format!("/rooms/1?also=/news&token={reads}"), 403),
        ("/rooms/1?also=/news".to_owned(), 401),
        ("/news?also=/rooms/1".to_owned(), 403),
    ] {
        match open(&stage, &target) {
            Ok(_) => assert_eq!(status, 200, "{target}"),
            Err(found) => assert_eq!(found, status, "{target}"),
        }
        let mut client = stage.connect();
        client
            .send(format!("GET {target} HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n"));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut client.0, &mut line).unwrap();
        assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {line}");
    }
    // Only some may be published to.
    let mut socket = open(&stage, &format!("/rooms/1?also=/rooms/2&token={reads}")).unwrap();
    let places = [frame(&mut socket), frame(&mut socket)];
    assert_eq!(places[1]["channel"], "/rooms/2");
    socket.send(Message::text("{\"data\":\"no\"}")).unwrap();
    assert_eq!(frame(&mut socket)["error"], "you may not publish here");
    socket.send(Message::text("{\"data\":\"yes\",\"channel\":\"/rooms/2\"}")).unwrap();
    assert_eq!(frame(&mut socket)["data"], "yes");
    // It made no channel that it may not read.
    let other = token(&["/rooms/3"], &[], 600);
    assert_eq!(stage.connect().get(&format!("/rooms/3?info=1&token={other}")).status, 404);
}

#[test]
fn pages_of_other_sites_need_the_consent_of_each_channel() {
    let page = "origin: https://app.example\r\n";
    let allows = "origins = [\"https://app.example\"]";
    for (rooms, news, status) in [(allows, allows, 200), (allows, "", 403), ("", allows, 403)] {
        let stage = Stage::new(BACKENDS[2], 1, &text(rooms, news));
        let mut client = stage.connect();
        client.send(format!(
            "GET /rooms/1?also=/news HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n{page}\r\n"
        ));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut client.0, &mut line).unwrap();
        assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{rooms} {news}: {line}");
    }
}

#[test]
fn the_first_grant_that_ends_ends_the_connection() {
    let options = format!("subscribe = \"token\", {}", rule(""));
    on_each_backend(|backend| {
        let stage = Stage::new(backend, 1, &text("", &options));
        let soon = token(&["/news"], &[], SOON);
        let target = format!("/rooms/1?also=/news&token={soon}");
        let mut socket = open(&stage, &target).unwrap();
        let (mut stream, _) = events(&stage, &target, "");
        let reason = loop {
            match socket.read().unwrap() {
                Message::Close(reason) => break reason.unwrap(),
                Message::Text(_) | Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        };
        let expected = (CloseCode::Policy, "the token has expired");
        assert_eq!((reason.code, reason.reason.as_str()), expected, "{backend:?}");
        while stream.next().is_some() {}
    });
}

#[test]
fn a_connection_ends_with_the_rights_of_one_channel_and_with_the_server() {
    for backend in BACKENDS {
        // One worker, which follows the change before it takes another connection.
        let stage = stage(backend, 1);
        let mut one = open(&stage, "/rooms/1?also=/news").unwrap();
        let (mut other, _) = events(&stage, "/news?also=/rooms/1", "");
        let closed = |socket: &mut WebSocket<TcpStream>| loop {
            match socket.read().unwrap() {
                Message::Close(reason) => break reason.unwrap().code,
                Message::Text(_) | Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        };
        stage.change(&text("history = 5000", "publish = \"nobody\""));
        assert_eq!(closed(&mut one), CloseCode::Restart, "{backend:?}");
        while other.next().is_some() {}
        let mut one = open(&stage, "/rooms/1?also=/news").unwrap();
        let (mut other, _) = events(&stage, "/news?also=/rooms/1", "");
        stage.drain();
        assert_eq!(closed(&mut one), CloseCode::Away, "{backend:?}");
        while other.next().is_some() {}
    }
}

#[test]
fn a_client_that_does_not_read_is_disconnected_and_harms_no_one() {
    for backend in BACKENDS {
        let slow = "backlog_bytes = \"16KiB\", message_bytes = \"64KiB\", poll = \"20m\"";
        let text = text(slow, slow).replace("[timeouts]", "[timeouts]\nbody = \"20m\"");
        let stage = Stage::new(backend, 1, &text);
        let silent = open(&stage, "/rooms/1?also=/news").unwrap();
        let (_silent_too, _) = events(&stage, "/rooms/1?also=/news", "");
        let (mut reader, _) = events(&stage, "/news?also=/rooms/1", "");
        let mut client = stage.connect();
        let count = |client: &mut Client| {
            let answer = client.get("/rooms/1?info=1");
            serde_json::from_slice::<Value>(&answer.body).unwrap()["subscribers"].as_u64().unwrap()
        };
        let message = "x".repeat(60_000);
        stage.elapse_until(Duration::from_secs(6), 2 * Duration::from_secs(20 * 60), || {
            let is_alone = count(&mut client) == 1;
            if !is_alone {
                post(&mut client, "/news", &message);
                assert_eq!(next(&mut reader).0["channel"], "/news", "{backend:?}");
            }
            is_alone
        });
        drop(silent);
    }
}

#[test]
fn a_silent_connection_is_asked_whether_it_lives() {
    on_each_backend(|backend| {
        const MINUTE: Duration = Duration::from_secs(60);
        // A sign of life after ten minutes.
        let stage = Stage::new(backend, 1, &text("poll = \"1h\"", "poll = \"20m\""));
        let mut socket = open(&stage, "/news?also=/rooms/1").unwrap();
        let (mut stream, _) = events(&stage, "/news?also=/rooms/1", "");
        for _ in 0..2 {
            stage.elapse(12 * MINUTE);
            while !matches!(socket.read().unwrap(), Message::Ping(_)) {}
            socket.flush().unwrap();
        }
        assert!((0..2).all(|_| stream.next().unwrap().is_comment), "{backend:?}");
        let count = || {
            let answer = stage.connect().get("/news?info=1");
            let info: Value = serde_json::from_slice(&answer.body).unwrap();
            info["subscribers"].as_u64().unwrap()
        };
        assert_eq!(count(), 2, "{backend:?}");
        // One that does not answer has gone.
        stage.elapse_until(4 * MINUTE, 40 * MINUTE, || count() == 1);
    });
}

const CHANNELS: usize = 5;
const PUBLISHERS: usize = 2;

/// The messages that a reader has, by channel.
#[derive(Default)]
struct Reader {
    found: BTreeMap<String, Vec<String>>,
    places: BTreeMap<String, String>,
}

impl Reader {
    /// Takes a message, which is the next one of its channel.
    fn take(&mut self, message: &Value) {
        assert_eq!(message.get("missed"), None, "{message}");
        let name = message["channel"].as_str().unwrap().to_owned();
        let (id, epoch) = (&message["id"], message["epoch"].as_str().unwrap());
        if let Some(data) = message["data"].as_str() {
            let found = self.found.entry(name.clone()).or_default();
            found.push(data.to_owned());
            assert_eq!(*id, found.len(), "{name}");
        }
        self.places.insert(name, format!("{id}-{epoch}"));
    }

    fn len(&self) -> usize {
        self.found.values().map(Vec::len).sum()
    }

    fn position(&self) -> String {
        let place = |number| self.places.get(&name(number)).cloned().unwrap_or_default();
        (0..CHANNELS).map(place).collect::<Vec<_>>().join(".")
    }
}

fn name(number: usize) -> String {
    if number == 0 { "/news".to_owned() } else { format!("/rooms/{number}") }
}

fn random(seed: &mut u64) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    usize::try_from(*seed >> 33).unwrap()
}

/// Several clients publish to several channels, and a reader connects again and again: each
/// channel's messages come in order, each once.
#[test]
fn nothing_is_lost_or_doubled_however_often_a_reader_connects_again() {
    let rounds: usize =
        std::env::var("SUPERPOLL_SEVERAL").ok().and_then(|text| text.parse().ok()).unwrap_or(16);
    let total = CHANNELS * PUBLISHERS * rounds;
    let also: String = (1..CHANNELS).map(|number| format!("&also=/rooms/{number}")).collect();
    for backend in BACKENDS {
        let stage = stage(backend, 3);
        let progress = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let expected: Vec<Vec<(u64, String)>> = std::thread::scope(|scope| {
            let publishers: Vec<_> = (0..CHANNELS * PUBLISHERS)
                .map(|publisher| {
                    let (stage, progress) = (&stage, &progress);
                    scope.spawn(move || {
                        let mut client = stage.connect();
                        let mut own = Vec::new();
                        for round in 0..rounds {
                            let data = format!("{publisher} {round}");
                            own.push((post(&mut client, &name(publisher % CHANNELS), &data), data));
                            // Readers keep up, so that there is always something to come.
                            let end = Instant::now() + PATIENCE;
                            let slowest =
                                || progress.iter().map(|one| one.load(Ordering::Relaxed)).min();
                            while slowest().unwrap() + total / 4 < round * CHANNELS * PUBLISHERS {
                                assert!(Instant::now() < end);
                                std::thread::sleep(Duration::from_millis(1));
                            }
                        }
                        own
                    })
                })
                .collect();
            let by_events = scope.spawn(|| {
                let (mut reader, mut seed) = (Reader::default(), 88_172_645_463_325_252);
                let mut position = "0".to_owned();
                while reader.len() < total {
                    let by_field = random(&mut seed).is_multiple_of(2) && position != "0";
                    let (query, field) = match by_field {
                        true => ("0", format!("last-event-id: {position}\r\n")),
                        false => (&*position, String::new()),
                    };
                    let (mut stream, start) =
                        events(&stage, &format!("/news?after={query}{also}"), &field);
                    position = start;
                    for _ in 0..random(&mut seed) % 25 {
                        if reader.len() == total {
                            break;
                        }
                        let (message, after) = next(&mut stream);
                        reader.take(&message);
                        position = after;
                        progress[0].store(reader.len(), Ordering::Relaxed);
                    }
                }
                reader
            });
            let by_socket = scope.spawn(|| {
                let (mut reader, mut seed) = (Reader::default(), 362_436_069_521_288_629);
                let mut position = "0".to_owned();
                while reader.len() < total {
                    let target = format!("/news?after={position}{also}");
                    let mut socket = open(&stage, &target).unwrap();
                    for _ in 0..CHANNELS + random(&mut seed) % 25 {
                        if reader.len() == total {
                            break;
                        }
                        reader.take(&frame(&mut socket));
                        progress[1].store(reader.len(), Ordering::Relaxed);
                    }
                    position = reader.position();
                }
                reader
            });
            let mut expected = vec![Vec::new(); CHANNELS];
            for (publisher, own) in publishers.into_iter().enumerate() {
                expected[publisher % CHANNELS].extend(own.join().unwrap());
            }
            for reader in [by_events.join().unwrap(), by_socket.join().unwrap()] {
                for (number, published) in expected.iter_mut().enumerate() {
                    published.sort();
                    let texts: Vec<_> = published.iter().map(|(_, data)| data.clone()).collect();
                    assert_eq!(reader.found[&name(number)], texts, "{backend:?}");
                }
            }
            expected
        });
        assert_eq!(expected.iter().map(Vec::len).sum::<usize>(), total);
    }
}
