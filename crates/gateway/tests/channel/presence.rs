//! Users who come and go, and the list of those who are there.

use std::net::TcpStream;

use serde_json::{Value, json};
use superpoll_test_support::tokens::{SECRET, rule, token, with_claims};
use tungstenite::WebSocket;
use tungstenite::client::IntoClientRequest;

use crate::clients::{Events, address, ask, next, publish, socket, stage, text, until_subscribers};
use crate::stage::{BACKENDS, Stage};

/// The options of a channel that counts users, with no grace to speak of.
fn options(more: &str) -> String {
    format!("presence = true, presence_grace = \"1ms\", subscribe = \"token\", {}{more}", rule(""))
}

/// The query with the token of a user, with further claims.
fn query_with(name: &str, more: Value) -> String {
    let mut claims = json!({ "sub": name, "superpoll": { "subscribe": ["*"], "publish": ["*"] } });
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    format!("?token={}", with_claims(&claims, SECRET))
}

fn query(name: &str) -> String {
    query_with(name, json!({}))
}

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

fn is(change: &str, name: &str, users: u64) -> (String, Value) {
    (change.to_owned(), json!({ "user": name, "users": users }))
}

/// What a client that asks is told of the channel.
fn question(stage: &Stage, query: &str) -> Value {
    let answer = stage.connect().get(&format!("/c{query}"));
    assert_eq!(answer.status, 200, "{:?}", String::from_utf8(answer.body));
    serde_json::from_slice(&answer.body).unwrap()
}

enum Tab {
    Socket(WebSocket<TcpStream>),
    Events { _events: Events },
}

#[test]
fn users_are_told_who_comes_and_goes_on_every_engine() {
    for backend in BACKENDS {
        let stage = stage(backend, 3, &options(", poll = \"10m\""));
        let (mut first, _) = Events::new(&stage, &query("u1"), "");
        assert_eq!(told(&mut first), is("join", "u1", 1), "{backend:?}");
        let mut others = Vec::new();
        for number in 2..8 {
            let query = query(&format!("u{number}"));
            // One that is parked, or not yet, and one of HTTP/1.0, which is never; each has a tab
            // more.
            let tab = |kind| match kind % 3 {
                0 => Tab::Socket(socket(&stage, &query).0),
                1 => Tab::Events { _events: Events::by("1.0", &stage, &query, "").0 },
                _ => Tab::Events { _events: Events::new(&stage, &query, "").0 },
            };
            others.push([tab(number), tab(number + 1)]);
            assert_eq!(told(&mut first), is("join", &format!("u{number}"), number));
        }
        if let Tab::Socket(socket) = &mut others[1][0] {
            assert_eq!(next(socket), "{\"user\":\"u3\",\"users\":3}");
        }
        // Some are parked when they go, which is told when their last tab has gone.
        stage.until(|engine| &engine.parked, 9);
        for number in (1..7).rev() {
            let [one, other] = others.remove(0);
            drop(one);
            until_subscribers(&stage, usize::try_from(2 * number).unwrap());
            drop(other);
            assert_eq!(told(&mut first), is("leave", &format!("u{}", 8 - number), number));
        }
        until_subscribers(&stage, 1);
    }
}

#[test]
fn the_members_of_a_channel_are_listed_with_what_is_known_of_them() {
    let stage = stage(BACKENDS[3], 2, &options(""));
    let ada = query_with("ada", json!({ "info": { "name": "Ada L." } }));
    let (mut first, _) = Events::new(&stage, &ada, "");
    let expected = json!({ "user": "ada", "info": { "name": "Ada L." }, "users": 1 });
    assert_eq!(told(&mut first), ("join".to_owned(), expected));
    let (_second, _) = socket(&stage, &query("bob"));
    assert_eq!(told(&mut first), is("join", "bob", 2));
    // A subscriber without a name is counted, and nothing else.
    let claims = json!({ "superpoll": { "subscribe": ["*"] } });
    let unnamed = format!("?token={}", with_claims(&claims, SECRET));
    let (_third, _) = Events::new(&stage, &unnamed, "");
    until_subscribers(&stage, 3);
    let info = question(&stage, &format!("{unnamed}&info=1"));
    assert_eq!((&info["subscribers"], &info["users"]), (&json!(3), &json!(2)));
    assert_eq!(info.get("members"), None);
    let listed = question(&stage, &format!("{unnamed}&info=1&members=1"));
    let members = json!([{ "user": "ada", "info": { "name": "Ada L." } }, { "user": "bob" }]);
    assert_eq!((&listed["members"], &listed["last"]), (&members, &json!(2)));
    let listed = question(&stage, &format!("{unnamed}&info=1&members=1&after_user=ada"));
    assert_eq!(listed["members"], json!([{ "user": "bob" }]));
    // Whoever may not subscribe may not ask.
    assert_eq!(stage.connect().get("/c?info=1&members=1").status, 401);
}

#[test]
fn users_that_cannot_be_are_refused_with_the_reason() {
    let stage = stage(BACKENDS[3], 1, &options(""));
    let long = "x".repeat(1100);
    for (query, part) in [
        (query(&"u".repeat(257)), "more than 256 bytes"),
        (query(""), "is empty"),
        (query_with("ada", json!({ "info": long })), "(info) has more than 1024 bytes"),
    ] {
        let answer = stage.connect().get(&format!("/c{query}"));
        let reason = String::from_utf8(answer.body).unwrap();
        assert_eq!(answer.status, 403, "{reason}");
        assert!(reason.contains(part), "{reason}");
    }
    let plain = crate::clients::stage(BACKENDS[3], 1, "");
    let (_open, _) = Events::new(&plain, "", "");
    let answer = plain.connect().get("/c?info=1&members=1");
    assert_eq!(answer.status, 400);
    assert!(String::from_utf8(answer.body).unwrap().contains("does not count users"));
    assert_eq!(question(&plain, "?info=1").get("users"), None);
}

#[test]
fn long_polls_are_not_told_of() {
    let stage = stage(BACKENDS[2], 1, &options(""));
    let joe = format!("?token={}", token(&["/c"], &["/c"], 600));
    let mut poll = stage.connect();
    ask(&mut poll, &joe);
    until_subscribers(&stage, 1);
    let (mut first, _) = Events::new(&stage, &joe, "");
    // The long-poll gets the event, and goes without one.
    let answer = String::from_utf8(poll.answer().body).unwrap();
    let data = "\"data\":\"{\\\"user\\\":\\\"joe\\\",\\\"users\\\":1}\"";
    assert!(answer.contains(&format!("\"event\":\"join\",{data}")), "{answer}");
    ask(&mut poll, &joe);
    until_subscribers(&stage, 2);
    drop(poll);
    until_subscribers(&stage, 1);
    assert_eq!(told(&mut first), is("join", "joe", 1));
    publish(&stage, "7");
    assert_eq!(told(&mut first), ("message".to_owned(), json!(7)));
}

#[test]
fn publishers_cannot_forge_these_events() {
    let stage = stage(BACKENDS[2], 1, &options(""));
    let joe = format!("?token={}", token(&["/c"], &["/c"], 600));
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
    let url = format!("ws://{}/c{joe}", address(&stage));
    let mut request = url.into_client_request().unwrap();
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
    let plain = format!("subscribe = \"token\", {}", rule(""));
    let stage = stage(BACKENDS[3], 1, &plain);
    let (mut old, _) = Events::new(&stage, &query("ada"), "");
    until_subscribers(&stage, 1);
    stage.change(&text(&options("")));
    assert_eq!(old.next(), None);
    until_subscribers(&stage, 0);
    let (mut first, _) = Events::new(&stage, &query("ada"), "");
    assert_eq!(told(&mut first), is("join", "ada", 1));
    let hub = stage.channel.clone().unwrap();
    let (mut second, _) = Events::new(&stage, &query("bob"), "");
    assert_eq!(told(&mut second), is("join", "bob", 2));
    stage.drain();
    for events in [&mut first, &mut second] {
        while events.next().is_some() {}
    }
    assert_eq!(hub.last(), 2);
}

#[test]
fn each_name_has_its_own_members() {
    let text = text(&options("")).replace("\"/c\"", "\"/rooms/{room}\"");
    let stage = Stage::new(BACKENDS[3], 2, &text);
    let join = |room: &str, name: &str| {
        let (mut client, query) = (stage.connect(), query(name));
        client.send(format!(
            "GET /rooms/{room}{query} HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n"
        ));
        Events::answered(client).0
    };
    let (mut one, mut two) = (join("1", "ada"), join("2", "ada"));
    for events in [&mut one, &mut two] {
        assert_eq!(told(events), is("join", "ada", 1));
    }
    let mut third = join("2", "bob");
    for events in [&mut two, &mut third] {
        assert_eq!(told(events), is("join", "bob", 2));
    }
}
