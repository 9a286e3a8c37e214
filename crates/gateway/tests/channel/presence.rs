//! Join and leave events.

use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest;

use crate::clients::{Events, address, ask, next, publish, socket, stage, text, until_subscribers};
use crate::stage::{BACKENDS, Stage};
use superpoll_test_support::tokens::{rule, token};

/// The next event: its type and data.
fn told(events: &mut Events) -> (String, Value) {
    loop {
        let event = events.next().unwrap();
        if !event.is_comment {
            let json = serde_json::from_str(&event.data).unwrap();
            return (event.kind, json);
        }
    }
}

fn is(change: &str, json: Value) -> (String, Value) {
    (change.to_owned(), json)
}

#[test]
fn subscribers_are_told_who_comes_and_goes_on_every_engine() {
    for backend in BACKENDS {
        let stage = stage(backend, 3, "presence = true, poll = \"10m\"");
        let (mut first, _) = Events::new(&stage, "", "");
        assert_eq!(told(&mut first), is("join", json!({ "subscribers": 1 })), "{backend:?}");
        let mut others = Vec::new();
        for number in 2..8 {
            // One that is parked, or not yet, and one of HTTP/1.0, which is never.
            match number % 3 {
                0 => others.push((Some(socket(&stage, "").0), None)),
                1 => others.push((None, Some(Events::by("1.0", &stage, "", "").0))),
                _ => others.push((None, Some(Events::new(&stage, "", "").0))),
            }
            assert_eq!(told(&mut first), is("join", json!({ "subscribers": number })));
        }
        if let (Some(socket), _) = &mut others[1] {
            assert_eq!(next(socket), "{\"subscribers\":3}");
        }
        // Some are parked when they go.
        stage.until(|engine| &engine.parked, 5);
        for number in (1..7).rev() {
            others.remove(0);
            assert_eq!(told(&mut first), is("leave", json!({ "subscribers": number })));
        }
        until_subscribers(&stage, 1);
    }
}

#[test]
fn the_subject_of_a_token_is_told() {
    let options = format!("presence = true, subscribe = \"token\", {}", rule(""));
    let stage = stage(BACKENDS[3], 2, &options);
    let joe = token(&["/c"], &[], 600);
    let (mut first, _) = Events::new(&stage, &format!("?token={joe}"), "");
    assert_eq!(told(&mut first), is("join", json!({ "subscribers": 1, "sub": "joe" })));
    for parked in [2, 1] {
        let (second, _) = socket(&stage, &format!("?token={joe}"));
        assert_eq!(told(&mut first), is("join", json!({ "subscribers": 2, "sub": "joe" })));
        if parked == 2 {
            stage.until(|engine| &engine.parked, 2);
        }
        drop(second);
        assert_eq!(told(&mut first), is("leave", json!({ "subscribers": 1, "sub": "joe" })));
    }
    // It may not subscribe, and is not told of.
    let other = token(&["/other"], &[], 600);
    assert_eq!(stage.connect().get(&format!("/c?token={other}")).status, 403);
    assert_eq!(stage.channel.as_ref().unwrap().last(), 5);
}

#[test]
fn long_polls_are_not_told_of() {
    let stage = stage(BACKENDS[2], 1, "presence = true");
    let mut poll = stage.connect();
    ask(&mut poll, "");
    until_subscribers(&stage, 1);
    let (mut first, _) = Events::new(&stage, "", "");
    // The long-poll gets the event, and goes without one.
    let answer = String::from_utf8(poll.answer().body).unwrap();
    assert!(answer.contains("\"event\":\"join\",\"data\":\"{\\\"subscribers\\\":1}\""), "{answer}");
    ask(&mut poll, "");
    until_subscribers(&stage, 2);
    drop(poll);
    until_subscribers(&stage, 1);
    assert_eq!(told(&mut first), is("join", json!({ "subscribers": 1 })));
    publish(&stage, "7");
    assert_eq!(told(&mut first), is("message", json!(7)));
}

#[test]
fn publishers_cannot_forge_these_events() {
    let stage = stage(BACKENDS[2], 1, "presence = true");
    let mut client = stage.connect();
    let mut status = |event: &str| {
        client.send(format!(
            "POST /c HTTP/1.1\r\nhost: a\r\nchannel-event: {event}\r\ncontent-length: 2\r\n\r\n{{}}"
        ));
        client.answer()
    };
    for event in ["join", "leave"] {
        let answer = status(event);
        assert_eq!(answer.status, 400);
        let reason = String::from_utf8(answer.body).unwrap();
        assert!(reason.starts_with("only the server publishes events of the types"), "{reason}");
    }
    assert_eq!(status("joined").status, 201);
    let mut request = format!("ws://{}/c", address(&stage)).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "superpoll.v1".parse().unwrap());
    let (mut socket, _) = tungstenite::connect(request).unwrap();
    let message = "{\"event\":\"leave\",\"data\":\"{}\"}";
    socket.send(tungstenite::Message::text(message)).unwrap();
    let refused = loop {
        let text = socket.read().unwrap().to_string();
        if text.contains("error") {
            break text;
        }
    };
    assert!(refused.contains("only the server publishes events"), "{refused}");
}

#[test]
fn a_changed_option_makes_subscribers_come_again_and_no_one_is_told_of_the_end() {
    // One worker, which follows the change before it takes another connection.
    let stage = stage(BACKENDS[3], 1, "");
    let (mut old, _) = Events::new(&stage, "", "");
    until_subscribers(&stage, 1);
    stage.change(&text("presence = true"));
    assert_eq!(old.next(), None);
    until_subscribers(&stage, 0);
    let (mut first, _) = Events::new(&stage, "", "");
    assert_eq!(told(&mut first), is("join", json!({ "subscribers": 1 })));
    let hub = stage.channel.clone().unwrap();
    let (mut second, _) = Events::new(&stage, "", "");
    assert_eq!(told(&mut second), is("join", json!({ "subscribers": 2 })));
    stage.drain();
    for events in [&mut first, &mut second] {
        while events.next().is_some() {}
    }
    assert_eq!(hub.last(), 2);
}

#[test]
fn each_name_has_its_own_number() {
    let text = text("presence = true").replace("\"/c\"", "\"/rooms/{room}\"");
    let stage = Stage::new(BACKENDS[3], 2, &text);
    let join = |room: &str| {
        let mut client = stage.connect();
        client.send(format!(
            "GET /rooms/{room} HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n"
        ));
        Events::answered(client).0
    };
    let (mut one, mut two) = (join("1"), join("2"));
    for events in [&mut one, &mut two] {
        assert_eq!(told(events), is("join", json!({ "subscribers": 1 })));
    }
    let mut third = join("2");
    for events in [&mut two, &mut third] {
        assert_eq!(told(events), is("join", json!({ "subscribers": 2 })));
    }
}
