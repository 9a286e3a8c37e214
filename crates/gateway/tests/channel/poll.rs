//! Subscribing by long-poll.

use std::time::Duration;

use superpoll_rt::BackendKind;

use crate::clients::{
    ask, field, is_missed, messages, post, publish, stage, text, until_subscribers,
};
use crate::stage::{BACKENDS, Stage};

fn some(messages: &[(u64, &str)]) -> Vec<(u64, String)> {
    messages.iter().map(|(id, text)| (*id, (*text).to_owned())).collect()
}

#[test]
fn a_waiting_long_poll_is_parked_and_answered() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        let mut client = stage.connect();
        // Without a place, the next message; then from the end of the last answer.
        ask(&mut client, "");
        for round in 1..=3 {
            stage.until(|engine| &engine.parked, 1);
            stage.until(|engine| &engine.active, 0);
            until_subscribers(&stage, 1);
            assert_eq!(publish(&stage, format!("message {round}")), round);
            let answer = client.answer();
            assert_eq!(messages(&answer), [(round, format!("message {round}"))]);
            assert!(!is_missed(&answer));
            ask(&mut client, &format!("?after={round}"));
        }
    }
}

#[test]
fn nothing_is_lost_between_two_answers() {
    for backend in BACKENDS {
        let stage = stage(backend, 2, "history = 1000");
        let publish = {
            let mut publisher = stage.connect();
            std::thread::spawn(move || {
                for id in 1..=300 {
                    assert_eq!(post(&mut publisher, format!("message {id}")), id);
                }
            })
        };
        let mut clients: Vec<_> = (0..8).map(|_| (stage.connect(), 0)).collect();
        while clients.iter().any(|(_, last)| *last < 300) {
            for (client, last) in clients.iter_mut().filter(|(_, last)| *last < 300) {
                ask(client, &format!("?after={last}"));
            }
            for (client, last) in clients.iter_mut().filter(|(_, last)| *last < 300) {
                let answer = client.answer();
                assert!(!is_missed(&answer));
                for (id, text) in messages(&answer) {
                    assert_eq!((id, text), (*last + 1, format!("message {id}")), "{backend:?}");
                    *last = id;
                }
            }
        }
        publish.join().unwrap();
    }
}

#[test]
fn a_long_poll_without_messages_gets_its_position() {
    for backend in [BackendKind::Poll, BackendKind::Adaptive] {
        // The connection is idle for a while after the answer.
        let text = crate::clients::text("poll = \"20m\"");
        let text = text.replace("[timeouts]", "[timeouts]\nidle = \"1h\"");
        let stage = crate::stage::Stage::new(backend, 1, &text);
        publish(&stage, "old");
        let mut client = stage.connect();
        ask(&mut client, "?wait=9999");
        until_subscribers(&stage, 1);
        stage.elapse(Duration::from_secs(15 * 60));
        until_subscribers(&stage, 1);
        stage.elapse(Duration::from_secs(8 * 60));
        let answer = client.answer();
        assert_eq!((answer.status, field(&answer, "channel-next")), (204, "1"), "{backend:?}");
        assert_eq!(field(&answer, "cache-control"), "no-store");
        // The connection goes on.
        ask(&mut client, "?wait=0");
        assert_eq!(client.answer().status, 204);
        assert_eq!(messages(&client.get("/c?after=0")), some(&[(1, "old")]));
        until_subscribers(&stage, 0);
    }
}

#[test]
fn a_client_that_was_away_too_long_learns_that_messages_are_missing() {
    let stage = stage(BACKENDS[2], 1, "history = 2");
    for text in ["a", "b", "c", "d"] {
        publish(&stage, text);
    }
    let mut client = stage.connect();
    let answer = client.get("/c?after=1");
    assert_eq!(messages(&answer), some(&[(3, "c"), (4, "d")]));
    assert!(is_missed(&answer));
    assert!(!is_missed(&client.get("/c?after=2")));
    // A place from before a restart of the server.
    let answer = client.get("/c?after=4-1");
    assert!(is_missed(&answer) && messages(&answer).len() == 2);
    client.send("GET /c?after=4 HTTP/1.1\r\nhost: a\r\nlast-event-id: 3\r\n\r\n");
    assert_eq!(messages(&client.answer()), some(&[(4, "d")]));
}

#[test]
fn a_hang_up_is_noticed() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        let clients: Vec<_> = (0..5)
            .map(|_| {
                let mut client = stage.connect();
                ask(&mut client, "");
                client
            })
            .collect();
        stage.until(|engine| &engine.parked, 5);
        until_subscribers(&stage, 5);
        drop(clients);
        stage.until(|engine| &engine.parked, 0);
        until_subscribers(&stage, 0);
        assert_eq!(stage.drained(), 0);
    }
}

#[test]
fn old_and_closing_clients_get_what_they_expect() {
    let stage = stage(BACKENDS[3], 1, "");
    let mut old = stage.connect();
    old.send("GET /c HTTP/1.0\r\n\r\n");
    let mut closing = stage.connect();
    closing.send("GET /c HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    until_subscribers(&stage, 2);
    stage.until(|engine| &engine.parked, 2);
    publish(&stage, "a");
    for mut client in [old, closing] {
        assert_eq!(messages(&client.answer()), some(&[(1, "a")]));
        assert!(client.is_closed());
    }
}

#[test]
fn a_request_that_follows_is_answered_after_it() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        let mut client = stage.connect();
        client.send("GET /c HTTP/1.1\r\nhost: a\r\n\r\nGET /c?after=0 HTTP/1.1\r\nhost: a\r\n\r\n");
        until_subscribers(&stage, 1);
        stage.until(|engine| &engine.parked, 1);
        publish(&stage, "a");
        for _ in 0..2 {
            assert_eq!(messages(&client.answer()), some(&[(1, "a")]), "{backend:?}");
        }
    }
}

#[test]
fn engines_hear_of_each_other() {
    let stage = stage(BackendKind::Poll, 2, "");
    let mut clients: Vec<_> = (0..20).map(|_| stage.connect()).collect();
    for client in &mut clients {
        ask(client, "");
    }
    stage.until(|engine| &engine.parked, 20);
    until_subscribers(&stage, 20);
    publish(&stage, "to all");
    for client in &mut clients {
        assert_eq!(messages(&client.answer()), some(&[(1, "to all")]));
    }
}

#[test]
fn a_hang_up_is_noticed_though_a_body_was_not_sent() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        for (field, body) in [
            ("content-length: 10\r\n", ""),
            ("content-length: 10\r\n", "12345"),
            ("content-length: 10\r\n", "1234567890"),
            ("transfer-encoding: chunked\r\n", "5\r\n12345\r\n"),
        ] {
            let mut client = stage.connect();
            client.send(format!("GET /c HTTP/1.1\r\nhost: a\r\n{field}\r\n"));
            until_subscribers(&stage, 1);
            client.send(body);
            drop(client);
            until_subscribers(&stage, 0);
            stage.until(|engine| &engine.active, 0);
        }
        // A client that stays gets its answer, and can ask again if its body was whole.
        let mut client = stage.connect();
        client.send("GET /c HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n");
        until_subscribers(&stage, 1);
        client.send("1234567890");
        let id = publish(&stage, "hello");
        assert_eq!(messages(&client.answer()), [(id, "hello".to_owned())], "{backend:?}");
        let again = client.get(&format!("/c?after={}", id - 1));
        assert_eq!(messages(&again), [(id, "hello".to_owned())], "{backend:?}");
    }
}

#[test]
fn waiting_is_not_timed_as_slowness() {
    let options = text("origins = [\"https://app.example\"]") + "[metrics]\n";
    let stage = Stage::new(BACKENDS[3], 1, &options);
    // The first is parked as it waits; the answer to a page of another site has a task.
    for origin in ["", "origin: https://app.example\r\n"] {
        let mut client = stage.connect();
        client.send(format!("GET /c HTTP/1.1\r\nhost: a\r\n{origin}\r\n"));
        until_subscribers(&stage, 1);
        publish(&stage, "news");
        assert_eq!(client.answer().status, 200);
        until_subscribers(&stage, 0);
    }
    let mut client = stage.connect();
    assert_eq!(client.get("/c?after=0&wait=0").status, 200);
    client.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let metrics = String::from_utf8(client.answer().body).unwrap();
    let count = "superpoll_http_request_duration_seconds_count";
    // Both publications, and the request that does not wait.
    let line = format!("{count}{{host=\"\",route=\"/c\",class=\"2xx\"}} 3\n");
    assert!(metrics.contains(&line), "{metrics}");
}
