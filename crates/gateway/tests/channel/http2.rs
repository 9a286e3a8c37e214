//! WebSockets on streams of HTTP/2.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_tungstenite::WebSocketStream;
use async_tungstenite::tungstenite::Message;
use async_tungstenite::tungstenite::protocol::Role;
use async_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use futures_lite::StreamExt;
use http_body_util::BodyExt;
use superpoll_gateway::channel::Hub;
use superpoll_rt::{BackendKind, Runtime, time, yield_now};

use crate::clients::{address, text};
use crate::stage::{BACKENDS, PATIENCE, Stage};
use crate::tls::Trust;
use crate::websocket2::{Bytes2, Connection2};

type Socket = WebSocketStream<Bytes2>;

async fn client(bytes: Bytes2) -> Socket {
    WebSocketStream::from_raw_socket(bytes, Role::Client, None).await
}

/// The next message, which is text.
async fn next(socket: &mut Socket) -> String {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return text.to_string(),
            Some(Ok(Message::Ping(_))) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Publishes a message to a WebSocket that answers pings while it is read.
async fn tell(hub: &Hub, socket: &mut Socket, text: String) {
    hub.publish(text.clone());
    let found = next(socket).await;
    assert!(found == text, "{found:.100}");
}

/// Runs a future against a server with a channel and a certificate.
fn with<T>(
    backend: BackendKind,
    options: &str,
    more: &str,
    talk: impl AsyncFnOnce(&Stage, &mut Connection2) -> T,
) -> T {
    let trust = Trust::new(&[b"h2"]);
    let stage = trust.stage_of(backend, &text(options), more);
    let connector = futures_rustls::TlsConnector::from(trust.config.clone());
    let outcome = Runtime::new().unwrap().block_on(async {
        let mut connection = Connection2::new(&connector, &address(&stage), "/c").await;
        let all = talk(&stage, &mut connection);
        time::timeout(3 * PATIENCE, all).await.expect("it takes too long")
    });
    assert_eq!(stage.drained(), 0, "{backend:?}");
    outcome
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        yield_now().await;
    }
}

#[test]
fn websockets_events_and_requests_share_a_connection() {
    for backend in BACKENDS {
        with(backend, "history = 10", "", async |stage, connection| {
            let hub = stage.channel.clone().unwrap();
            hub.publish("before");
            let (bytes, response) = connection.open("/c?after=0", &[]).await;
            assert_eq!(response.headers()["channel-next"], "0");
            let mut replayed = client(bytes).await;
            assert_eq!(next(&mut replayed).await, "before");
            let json = [("sec-websocket-protocol", "superpoll.v1")];
            let (bytes, response) = connection.open("/c", &json).await;
            assert_eq!(response.headers()["sec-websocket-protocol"], "superpoll.v1");
            let mut with_ids = client(bytes).await;
            assert!(next(&mut with_ids).await.contains("\"id\":1"));
            let events = [("accept", "text/event-stream")];
            let mut events = connection.send("GET", "/c", &events, "").await.into_body();
            until("all have subscribed", || hub.subscribers() == 3).await;
            // Two WebSockets, and the stream of events.
            until("all are counted", || stage.count(|engine| &engine.running) == 3).await;
            // A message by each way to publish, and larger than any window.
            replayed.send(Message::text("by WebSocket")).await.unwrap();
            assert_eq!(connection.send("POST", "/c", &[], "by POST").await.status(), 201);
            let large = "x".repeat(300_000);
            hub.publish(large.clone());
            for expected in ["by WebSocket", "by POST", &large] {
                assert!(next(&mut replayed).await == expected, "{backend:?}");
                let json = next(&mut with_ids).await;
                assert!(json.contains(&format!("\"data\":\"{expected}\"")), "{json:.100}");
            }
            let mut read = String::new();
            while !read.contains("data: by POST\n\n") {
                let data = events.frame().await.unwrap().unwrap().into_data().unwrap();
                read += std::str::from_utf8(&data).unwrap();
            }
            // The client closes one.
            replayed.close(None).await.unwrap();
            while replayed.next().await.is_some() {}
            // The server waits for the client to end the stream, too.
            stage.elapse(Duration::from_secs(3));
            until("it has gone", || hub.subscribers() == 2).await;
            until("it is not counted", || stage.count(|engine| &engine.running) == 2).await;
            // One that is dropped, without a word.
            let (bytes, _) = connection.open("/c", &[]).await;
            until("it has come", || hub.subscribers() == 3).await;
            drop(bytes);
            until("it has gone", || hub.subscribers() == 2).await;
            drop(events);
            stage.drain();
            match with_ids.next().await {
                Some(Ok(Message::Close(Some(close)))) => assert_eq!(close.code, CloseCode::Away),
                other => panic!("{backend:?}: {other:?}"),
            }
            while with_ids.next().await.is_some() {}
        });
    }
}

#[test]
fn what_is_no_websocket_is_refused() {
    let more = "[[hosts.routes]]\npath = \"/go\"\nredirect = { to = \"/c\" }\n";
    with(BACKENDS[3], "", more, async |stage, connection| {
        let version = ("sec-websocket-version", "13");
        for (protocol, path, fields, expected) in [
            ("websocket", "/c", vec![], 426),
            ("websocket", "/c", vec![("sec-websocket-version", "8")], 426),
            ("websocket", "/c", vec![version, ("origin", "https://elsewhere.example")], 403),
            ("websocket", "/c?after=x", vec![version], 400),
            ("websocket", "/nowhere", vec![version], 404),
            ("websocket", "/go", vec![version], 308),
            ("connect-udp", "/c", vec![version], 501),
        ] {
            let response = connection.ask(protocol, path, &fields).await;
            assert_eq!(response.status(), expected, "{protocol} {path} {fields:?}");
            // A refusal is a response like any other.
            response.into_body().collect().await.unwrap();
        }
        // The page of the own site may.
        let own = [("origin", "https://localhost")];
        let (bytes, _) = connection.open("/c", &own).await;
        let mut socket = client(bytes).await;
        stage.channel.as_ref().unwrap().publish("still there");
        assert_eq!(next(&mut socket).await, "still there");
        assert_eq!(stage.channel.as_ref().unwrap().subscribers(), 1);
    });
}

/// Its window is full, and stays so.
#[test]
fn a_stream_that_is_not_read_is_reset_and_the_others_go_on() {
    let more = "[timeouts]\nbody = \"600s\"\n";
    let options = "backlog_bytes = \"200KiB\", poll = \"600s\"";
    for backend in BACKENDS {
        with(backend, options, more, async |stage, connection| {
            let hub = stage.channel.clone().unwrap();
            let (slow, _) = connection.open("/c", &[]).await;
            let (bytes, _) = connection.open("/c", &[]).await;
            let mut quick = client(bytes).await;
            until("both have come", || hub.subscribers() == 2).await;
            let mut tell = async |text: String| tell(&hub, &mut quick, text).await;
            let mut id = 0;
            while hub.counters().disconnected.load(Ordering::Relaxed) == 0 {
                assert!(id < 1000, "{backend:?}");
                tell(format!("{id} {}", "x".repeat(20_000))).await;
                id += 1;
            }
            // Its session ends, since none of its bytes is taken, and its last bytes are given up.
            let mut seconds = 0;
            while stage.count(|engine| &engine.running) > 1 {
                assert!(seconds < 1200, "{backend:?}");
                tell("on".to_owned()).await;
                stage.elapse(Duration::from_secs(10));
                seconds += 10;
            }
            let left = hub.subscribers();
            tell("on".to_owned()).await;
            assert_eq!(left, 1);
            let mut slow = client(slow).await;
            let mut read = 0;
            let end = loop {
                match slow.next().await {
                    Some(Ok(Message::Text(text))) => {
                        assert!(text.starts_with(&format!("{read} ")), "{backend:?}");
                        read += 1;
                    }
                    other => break other,
                }
                tell("on".to_owned()).await;
            };
            assert!(read < id, "{backend:?}");
            assert!(!matches!(end, Some(Ok(Message::Text(_)))));
            tell("to the other".to_owned()).await;
            assert_eq!(stage.count(|engine| &engine.timed_out), 0, "{backend:?}");
        });
    }
}

#[test]
fn a_client_that_does_not_answer_pings_is_ended() {
    for backend in [BACKENDS[2], BACKENDS[3]] {
        // A ping after two hundred seconds, and the end after as many.
        with(backend, "poll = \"400s\"", "", async |stage, connection| {
            let hub = stage.channel.clone().unwrap();
            let (silent, _) = connection.open("/c", &[]).await;
            let (bytes, _) = connection.open("/c", &[]).await;
            let mut lively = client(bytes).await;
            until("both have come", || hub.subscribers() == 2).await;
            let mut seconds = 0;
            while hub.subscribers() > 1 {
                assert!(seconds < 800, "{backend:?}");
                // It answers pings while it reads.
                tell(&hub, &mut lively, "on".to_owned()).await;
                stage.elapse(Duration::from_secs(10));
                seconds += 10;
            }
            assert!(seconds > 200, "{backend:?}: {seconds} seconds");
            drop(silent);
            tell(&hub, &mut lively, "last".to_owned()).await;
        });
    }
}

#[test]
fn a_stream_may_have_several_channels() {
    let other = "[[hosts.routes]]\npath = \"/d\"\nchannel = {}\n";
    for backend in BACKENDS {
        with(backend, "", other, async |stage, connection| {
            let hub = stage.channel.clone().unwrap();
            let json = [("sec-websocket-protocol", "superpoll.v1")];
            let (bytes, _) = connection.open("/c?also=/d", &json).await;
            let mut socket = client(bytes).await;
            for name in ["/c", "/d"] {
                assert!(next(&mut socket).await.contains(&format!("\"channel\":\"{name}\"")));
            }
            let accept = [("accept", "text/event-stream")];
            let events = connection.send("GET", "/d?also=/c", &accept, "").await;
            assert_eq!(events.status(), 200);
            let mut events = events.into_body();
            until("both have subscribed", || hub.subscribers() == 2).await;
            socket.send("{\"data\":\"to d\",\"channel\":\"/d\"}".into()).await.unwrap();
            assert!(next(&mut socket).await.contains("\"data\":\"to d\""), "{backend:?}");
            let mut text = String::new();
            while !text.contains("\"channel\":\"/d\",\"data\":\"to d\"") {
                let frame = events.frame().await.unwrap().unwrap();
                text += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
            }
            drop(events);
            socket.close(None).await.unwrap();
            while socket.next().await.is_some() {}
            until("both have gone", || hub.subscribers() == 0).await;
        });
    }
}
