//! What publishers say of a message: the type of its event, a key, and a time; and the subprotocol
//! of WebSockets that carries all of it.

use std::net::TcpStream;
use std::time::Instant;

use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest;
use tungstenite::http::HeaderValue;
use tungstenite::{Message, WebSocket};

use superpoll_test_support::until;

use crate::clients::{Events, address, messages, publish, stage};
use crate::stage::{Answer, BACKENDS, Client, PATIENCE, Stage};

fn post(client: &mut Client, fields: &str, data: &str) -> Answer {
    let length = data.len();
    client.send(format!(
        "POST /c HTTP/1.1\r\nhost: a\r\n{fields}content-length: {length}\r\n\r\n{data}"
    ));
    client.answer()
}

fn json_of(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

/// A subscriber with the subprotocol.
fn socket(stage: &Stage, query: &str) -> WebSocket<TcpStream> {
    let mut request = format!("ws://{}/c{query}", address(stage)).into_client_request().unwrap();
    let offered = HeaderValue::from_static("chat, superpoll.v1");
    request.headers_mut().insert("sec-websocket-protocol", offered);
    let stream = TcpStream::connect(address(stage)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (socket, response) = tungstenite::client::client(request, stream).unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "superpoll.v1");
    socket
}

/// The next frame, which is JSON.
fn next(socket: &mut WebSocket<TcpStream>) -> Value {
    loop {
        match socket.read().unwrap() {
            Message::Text(text) => return serde_json::from_str(text.as_str()).unwrap(),
            Message::Ping(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn events_have_the_type_that_their_publisher_names() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        let (mut events, _) = Events::new(&stage, "", "");
        let mut client = stage.connect();
        assert_eq!(post(&mut client, "channel-event: added\r\n", "one").status, 201);
        assert_eq!(post(&mut client, "", "two").status, 201);
        let (one, two) = (events.next().unwrap(), events.next().unwrap());
        assert_eq!((&*one.kind, &*one.data), ("added", "one"), "{backend:?}");
        assert_eq!((&*two.kind, &*two.data), ("message", "two"), "{backend:?}");
        let kept = json_of(&client.get("/c?after=0"));
        assert_eq!(kept["messages"][0], json!({"id": 1, "event": "added", "data": "one"}));
        assert_eq!(kept["messages"][1], json!({"id": 2, "data": "two"}));
    }
}

#[test]
fn a_publication_that_is_repeated_with_its_key_is_one_message() {
    let stage = stage(BACKENDS[3], 2, "");
    let mut client = stage.connect();
    let key = "idempotency-key: \"8e03978e\"\r\n";
    let first = post(&mut client, key, "once");
    assert_eq!((first.status, &json_of(&first)["id"]), (201, &json!(1)));
    assert_eq!(publish(&stage, "between"), 2);
    for _ in 0..3 {
        let again = post(&mut client, key, "once");
        assert_eq!(again.status, 200);
        assert_eq!(
            (&json_of(&again)["id"], &json_of(&again)["repeated"]),
            (&json!(1), &json!(true))
        );
    }
    let other = post(&mut client, key, "another message");
    assert_eq!(other.status, 422);
    assert_eq!(other.body, b"another message was published with this Idempotency-Key\n");
    let expected = [(1, "once".to_owned()), (2, "between".to_owned())];
    assert_eq!(messages(&client.get("/c?after=0")), expected);
}

#[test]
fn invalid_fields_are_refused_and_nothing_is_published() {
    let stage = stage(BACKENDS[2], 1, "");
    let mut client = stage.connect();
    let long = format!("idempotency-key: {}\r\n", "k".repeat(129));
    for (fields, expected) in [
        ("channel-event: missed\r\n", "the event type \"missed\" has a meaning of its own\n"),
        ("channel-ttl: 0\r\n", "a message is kept for at least a second\n"),
        ("channel-ttl: -1\r\n", "channel-ttl: \"-1\", expected a number of seconds\n"),
        (&long, "the key has 1 to 128 bytes, not 129\n"),
    ] {
        let answer = post(&mut client, fields, "x");
        assert_eq!((answer.status, answer.body), (400, expected.into()), "{fields}");
    }
    assert_eq!(publish(&stage, "first"), 1);
}

#[test]
fn an_expired_message_is_not_given_to_subscribers_that_come() {
    let stage = stage(BACKENDS[2], 1, "");
    let mut client = stage.connect();
    let mut subscriber = socket(&stage, "");
    assert_eq!(next(&mut subscriber)["id"], 0);
    assert_eq!(post(&mut client, "", "1").status, 201);
    assert_eq!(post(&mut client, "channel-ttl: 1\r\n", "2").status, 201);
    assert_eq!(post(&mut client, "channel-ttl: 1000\r\n", "3").status, 201);
    // Those that are there get it.
    let ids: Vec<Value> = (0..3).map(|_| next(&mut subscriber)["id"].clone()).collect();
    assert_eq!(ids, [1, 2, 3]);
    let kept = |client: &mut Client| messages(&client.get("/c?after=0"));
    until("one is gone", || kept(&mut client).len() < 3);
    let expected = [(1, "1".to_owned()), (3, "3".to_owned())];
    assert_eq!(kept(&mut client), expected);
    // It does not count as missed.
    assert!(!crate::clients::is_missed(&client.get("/c?after=0")));
    let mut late = socket(&stage, "?after=0");
    assert_eq!(next(&mut late).get("missed"), None);
    let late: Vec<Value> = (0..2).map(|_| next(&mut late)["data"].clone()).collect();
    assert_eq!(late, ["1", "3"]);
    let (mut events, _) = Events::new(&stage, "?after=0", "");
    assert_eq!([events.message(), events.message()], expected);
    // A long-poll does not end for it alone.
    assert_eq!(client.get("/c?after=1&wait=0").status, 200);
    assert_eq!(client.get("/c?after=3&wait=0").status, 204);
}

#[test]
fn frames_of_the_subprotocol_have_ids_and_publish() {
    for backend in BACKENDS {
        let stage = stage(backend, 2, "message_bytes = 20");
        let epoch = format!("{:x}", stage.channel.as_ref().unwrap().epoch());
        let mut one = socket(&stage, "");
        let place = json!({"id": 0, "epoch": epoch, "channel": "/c"});
        assert_eq!(next(&mut one), place);
        let mut other = socket(&stage, "");
        assert_eq!(next(&mut other), place);
        stage.until(|engine| &engine.parked, 2);
        let send = |socket: &mut WebSocket<TcpStream>, value: Value| {
            socket.send(value.to_string().into()).unwrap();
        };
        send(&mut one, json!({"data": "hello", "event": "greeting", "key": "k1"}));
        let message = |id: u64| json!({"id": id, "epoch": epoch, "channel": "/c", "event": "greeting", "data": "hello"});
        assert_eq!(next(&mut other), message(1));
        // Its own message, and the answer to the key, in any order.
        let mut frames = vec![next(&mut one), next(&mut one)];
        frames.sort_by_key(|frame| frame.get("key").is_some());
        assert_eq!(frames, [message(1), json!({"published": 1, "key": "k1"})], "{backend:?}");
        // Repeated, as a client does that has lost its connection before the answer.
        send(&mut one, json!({"data": "hello", "event": "greeting", "key": "k1"}));
        assert_eq!(next(&mut one), json!({"published": 1, "key": "k1"}));
        for (wrong, expected) in [
            (
                json!({"data": "another", "key": "k1"}),
                "another message was published with this key",
            ),
            (json!({"data": "x".repeat(21)}), "a message of this channel has 20 bytes at most"),
            (json!({}), "this is no publication: it has data or base64, one of both"),
        ] {
            send(&mut one, wrong);
            assert_eq!(next(&mut one), json!({"error": expected}), "{backend:?}");
        }
        one.send(Message::Binary(vec![0xff].into())).unwrap();
        let binary = json!({"id": 2, "epoch": epoch, "channel": "/c", "base64": "/w=="});
        assert_eq!((next(&mut one), next(&mut other)), (binary.clone(), binary));
        // Who comes again with the position gets what follows it, once.
        let mut again = socket(&stage, &format!("?after=1-{epoch}"));
        assert_eq!(next(&mut again)["id"], 1);
        assert_eq!(next(&mut again)["id"], 2);
        // Another epoch is told.
        let mut foreign = socket(&stage, "?after=1-1");
        assert_eq!(next(&mut foreign)["missed"], true);
        assert_eq!([next(&mut foreign)["id"].clone(), next(&mut foreign)["id"].clone()], [1, 2]);
    }
}

#[test]
fn a_slow_subscriber_of_the_subprotocol_is_told_what_it_missed() {
    let options = "history = 1, backlog_bytes = \"200KiB\", slow = \"drop-oldest\"";
    let stage = stage(BACKENDS[3], 1, options);
    let hub = stage.channel.clone().unwrap();
    let mut slow = socket(&stage, "");
    assert_eq!(next(&mut slow)["id"], 0);
    stage.until(|engine| &engine.parked, 1);
    let left_out = || hub.counters().left_out.load(std::sync::atomic::Ordering::Relaxed);
    let end = Instant::now() + PATIENCE;
    while left_out() < 20 {
        assert!(Instant::now() < end);
        hub.publish("x".repeat(60_000)).unwrap();
        std::thread::yield_now();
    }
    hub.publish("last").unwrap();
    let (mut last, mut missed) = (0, 0);
    loop {
        let frame = next(&mut slow);
        let id = frame["id"].as_u64().unwrap();
        if frame["missed"] == true {
            missed += id - last;
            last = id;
            continue;
        }
        assert_eq!(id, last + 1, "a gap without a word");
        last = id;
        if frame["data"] == "last" {
            break;
        }
    }
    assert_eq!(last, hub.last());
    assert_eq!(missed, left_out());
}
