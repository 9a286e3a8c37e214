//! The rate at which one client may publish. A message a minute is the slowest rate, so that a
//! second message comes too soon however slow the machine is.

use std::time::{Duration, Instant};

use serde_json::Value;
use superpoll_test_support::until;
use tungstenite::Message;
use tungstenite::client::IntoClientRequest;

use crate::clients::{address, field, next, post, publish, socket, stage, text, until_subscribers};
use crate::hub::{hub_with, post as post_to_hub};
use crate::stage::{Answer, BACKENDS, Client, Stage};

/// Publishes a message, and returns the answer.
fn send(client: &mut Client, before: &str) -> Answer {
    client.send(format!("{before}POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx"));
    client.answer()
}

fn assert_refused(answer: &Answer) {
    assert_eq!(answer.status, 429, "{answer:?}");
    let seconds: u64 = field(answer, "retry-after").parse().unwrap();
    assert!((1..=60).contains(&seconds), "{answer:?}");
    let reason = String::from_utf8(answer.body.clone()).unwrap();
    assert!(reason.contains("a client may publish 1 message a minute here"), "{reason}");
}

#[test]
fn a_client_is_refused_on_every_engine_and_connection() {
    for backend in BACKENDS {
        let stage = stage(backend, 2, "publish_rate = \"1/m\"");
        let mut client = stage.connect();
        assert_eq!(post(&mut client, "first"), 1);
        // The connection goes on.
        assert_refused(&send(&mut client, ""));
        assert_eq!(client.get("/c?wait=0").status, 204);
        for _ in 0..8 {
            assert_refused(&send(&mut stage.connect(), ""));
        }
        let hub = stage.channel.as_ref().unwrap();
        let refused = hub.counters().refused.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!((hub.last(), refused), (1, 9), "{backend:?}");
    }
}

#[test]
fn each_client_has_its_own_allowance() {
    let options = "publish_rate = \"1/m\", publish = \"anyone\"";
    let text = text(options).replacen('\n', "\nproxy_protocol = true\n", 1);
    let stage = Stage::new(BACKENDS[2], 1, &text);
    for (client, is_refused) in [
        ("TCP4 192.0.2.1", false),
        ("TCP4 192.0.2.2", false),
        ("TCP4 192.0.2.1", true),
        ("TCP6 2001:db8:0:1::1", false),
        ("TCP6 2001:db8:0:1::2", true),
        ("TCP6 2001:db8:0:2::1", false),
    ] {
        let server = if client.starts_with("TCP4") { "127.0.0.1" } else { "::1" };
        let answer = send(&mut stage.connect(), &format!("PROXY {client} {server} 9 9\r\n"));
        match is_refused {
            true => assert_refused(&answer),
            false => assert_eq!(answer.status, 201, "{client} {answer:?}"),
        }
    }
}

/// The users of a proxy, which has one connection for all of them, and a PROXY protocol before.
#[test]
fn each_user_of_a_trusted_proxy_has_its_own_allowance() {
    let options = "publish_rate = \"1/m\", publish = \"anyone\"";
    for before in ["", "PROXY TCP4 10.0.0.1 127.0.0.1 9 9\r\n"] {
        for trusted in ["\"local\", \"10.0.0.0/8\"", "\"192.0.2.1\""] {
            let listener = if before.is_empty() { "\n" } else { "\nproxy_protocol = true\n" };
            let text = text(options).replacen('\n', listener, 1);
            let text = format!("{text}[server]\ntrusted_proxies = [{trusted}]\n");
            let stage = Stage::new(BACKENDS[2], 2, &text);
            let mut proxy = stage.connect();
            proxy.send(before);
            let is_trusted = trusted.contains("local");
            for (index, list) in
                ["203.0.113.1", "203.0.113.2", "203.0.113.1, 203.0.113.3", "203.0.113.4, 10.1.1.1"]
                    .into_iter()
                    .enumerate()
            {
                let head = format!(
                    "POST /c HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {list}\r\ncontent-length: 1\r\n\r\nx"
                );
                proxy.send(&head);
                let answer = proxy.answer();
                if index == 0 || is_trusted {
                    assert_eq!(answer.status, 201, "{list} {answer:?}");
                } else {
                    assert_refused(&answer);
                }
                proxy.send(&head);
                assert_refused(&proxy.answer());
            }
        }
    }
}

/// A WebSocket is of the user that has asked for it.
#[test]
fn a_websocket_by_a_trusted_proxy_publishes_as_its_user() {
    let options = "publish_rate = \"1/m\", publish = \"anyone\"";
    let text = format!("{}[server]\ntrusted_proxies = [\"local\"]\n", text(options));
    let stage = Stage::new(BACKENDS[2], 1, &text);
    let mut sockets: Vec<_> = [1, 2]
        .iter()
        .map(|user| {
            let mut request = format!("ws://{}/c", address(&stage)).into_client_request().unwrap();
            let list = format!("203.0.113.{user}").parse().unwrap();
            request.headers_mut().insert("x-forwarded-for", list);
            let stream = std::net::TcpStream::connect(address(&stage)).unwrap();
            tungstenite::client(request, stream).unwrap().0
        })
        .collect();
    let hub = stage.channel.as_ref().unwrap().clone();
    for (index, socket) in sockets.iter_mut().enumerate() {
        socket.send(Message::text("one")).unwrap();
        until(&format!("user {index} publishes"), || hub.last() == index as u64 + 1);
    }
    let mut client = stage.connect();
    for user in [1, 2, 3] {
        client.send(format!("POST /c HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 203.0.113.{user}\r\ncontent-length: 1\r\n\r\nx"));
        let answer = client.answer();
        assert_eq!(answer.status, if user == 3 { 201 } else { 429 }, "{answer:?}");
    }
}

#[test]
fn the_channels_of_a_route_count_together_and_a_new_rate_at_once() {
    let rooms = |options: &str| {
        let metrics = "[metrics]\n";
        format!("{}{metrics}", text(options).replace("\"/c\"", "\"/rooms/{room}\""))
    };
    let stage = Stage::new(BACKENDS[3], 1, &rooms("publish_rate = \"1/m\""));
    let mut client = stage.connect();
    let mut status = |room: u32| {
        let head = format!("POST /rooms/{room} HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx");
        client.send(head);
        client.answer().status
    };
    assert_eq!([1, 2, 1].map(&mut status), [201, 429, 429]);
    let mut reader = stage.connect();
    // A message that comes too soon makes no channel.
    assert_eq!(reader.get("/rooms/2?info=1").status, 404);
    reader.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let metrics = String::from_utf8(reader.answer().body).unwrap();
    let line = "superpoll_channel_messages_refused_total{host=\"\",route=\"/rooms/{room}\"} 2\n";
    assert!(metrics.contains(line), "{metrics}");
    stage.change(&rooms(""));
    let end = Instant::now() + crate::stage::PATIENCE;
    while status(2) != 201 {
        assert!(Instant::now() < end);
    }
    assert_eq!([1, 2, 1].map(&mut status), [201; 3]);
}

#[test]
fn a_websocket_waits_and_loses_nothing() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "publish_rate = \"6/m burst 50\", poll = \"1h\"");
        for is_parked in [true, false] {
            let (mut client, _) = socket(&stage, "");
            if is_parked {
                stage.until(|engine| &engine.parked, 1);
            }
            let (count, hub) = (75, stage.channel.as_ref().unwrap());
            let before = hub.last();
            for number in 0..count {
                client.send(Message::text(number.to_string())).unwrap();
            }
            // A burst of fifty, unless the first client has used it up, and six a minute.
            let burst = if is_parked { 50 } else { 0 };
            until("the burst is there", || hub.last() >= before + burst);
            let whole = 10 * Duration::from_secs(count - burst);
            stage.elapse(whole / 2);
            let come = hub.last() - before;
            assert!((burst + 1..count).contains(&come), "{backend:?}: {come} messages");
            stage.elapse(whole / 2 + Duration::from_secs(50));
            for number in 0..count {
                assert_eq!(next(&mut client), number.to_string(), "{backend:?}");
            }
            stage.until(|engine| &engine.parked, 1);
            drop(client);
            until_subscribers(&stage, 0);
        }
    }
}

#[test]
fn a_websocket_that_waits_still_gets_messages_and_others_do_not_wait() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "publish_rate = \"1/m\"");
        let hub = stage.channel.as_ref().unwrap();
        let (mut client, _) = socket(&stage, "");
        let (mut other, _) = socket(&stage, "");
        for text in ["first", "too early", "too early"] {
            client.send(Message::text(text)).unwrap();
        }
        for client in [&mut client, &mut other] {
            assert_eq!(next(client), "first", "{backend:?}");
        }
        // The one that waits is not parked.
        stage.until(|engine| &engine.parked, 1);
        hub.publish("of another");
        for client in [&mut client, &mut other] {
            assert_eq!(next(client), "of another", "{backend:?}");
        }
        assert_eq!(hub.last(), 2);
        // It ends with the server all the same.
        stage.drain();
        assert!(matches!(client.read(), Ok(Message::Close(_))), "{backend:?}");
    }
}

#[test]
fn a_publisher_to_a_hub_of_mercure_is_refused() {
    let stage = hub_with(BACKENDS[3], 1, "publish = \"anyone\", publish_rate = \"1/m\"");
    assert_eq!(post_to_hub(&stage, "", "topic=a").status, 200);
    assert_refused(&post_to_hub(&stage, "", "topic=a"));
}

#[test]
fn a_client_of_the_subprotocol_is_told_and_goes_on() {
    let stage = stage(BACKENDS[2], 1, "publish_rate = \"1/m\"");
    let mut request = format!("ws://{}/c", address(&stage)).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "superpoll.v1".parse().unwrap());
    let (mut socket, _) = tungstenite::connect(request).unwrap();
    let mut read = || match socket.read().unwrap() {
        Message::Text(text) => serde_json::from_str::<Value>(&text).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(read()["id"], 0);
    publish(&stage, "by POST");
    assert_eq!(read()["data"], "by POST");
    for message in [Message::text("{\"data\":\"x\",\"key\":\"k\"}"), Message::binary(&b"x"[..])] {
        socket.send(message).unwrap();
        let Message::Text(text) = socket.read().unwrap() else { panic!() };
        let error: Value = serde_json::from_str(&text).unwrap();
        let error = error["error"].as_str().unwrap();
        assert!(error.starts_with("a client may publish 1 message a minute here"), "{error}");
    }
    stage.channel.as_ref().unwrap().publish("goes on");
    let Message::Text(text) = socket.read().unwrap() else { panic!() };
    assert!(text.contains("goes on"), "{text}");
}
