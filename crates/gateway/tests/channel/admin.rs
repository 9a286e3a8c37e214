//! Channels and connections, as an operator sees them, and connections that an operator closes.

use std::time::Instant;

use serde_json::Value;
use superpoll_rt::BackendKind;
use superpoll_test_support::tokens::{SECRET, rule, with_claims};
use tungstenite::Message;

use crate::clients::{Events, address, ask, publish, socket, text, until_subscribers};
use crate::stage::{BACKENDS, Client, PATIENCE, Stage};

fn stage(backend: BackendKind, workers: usize) -> Stage {
    let options = "publish = \"anyone\", history = 2";
    Stage::new(backend, workers, &format!("{}[admin]\naddress = \"127.0.0.1:0\"\n", text(options)))
}

fn operate(stage: &Stage, method: &str, path: &str) -> Value {
    let address = stage.addresses[1].to_string();
    let stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client(std::io::BufReader::new(stream));
    client
        .send(format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"));
    let answer = client.answer();
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    serde_json::from_slice(&answer.body).unwrap()
}

/// Returns the connections to the server that are listed, without those to the admin listener.
fn listed(stage: &Stage) -> Vec<Value> {
    let list = operate(stage, "GET", "/api/connections?limit=1000");
    let own = stage.addresses[0].to_string();
    let all = list["connections"].as_array().unwrap().iter();
    all.filter(|one| one["local"] == *own).cloned().collect()
}

/// Waits until these many connections are listed, by their protocols and whether they are parked.
fn until_listed(stage: &Stage, expected: &[(&str, bool, usize)]) {
    let end = Instant::now() + PATIENCE;
    loop {
        let found = listed(stage);
        let count = |protocol: &str, parked: bool| {
            let fits = |one: &&Value| one["protocol"] == protocol && one["parked"] == parked;
            found.iter().filter(fits).count()
        };
        let sum: usize = expected.iter().map(|(.., sum)| sum).sum();
        if found.len() == sum && expected.iter().all(|(name, is, sum)| count(name, *is) == *sum) {
            return;
        }
        assert!(Instant::now() < end, "{expected:?} are not {found:?}");
    }
}

#[test]
fn each_connection_is_listed_once_in_its_state_and_closed_with_its_client() {
    for backend in BACKENDS {
        let stage = stage(backend, 2);
        let mut idle: Vec<Client> = (0..3).map(|_| stage.connect()).collect();
        for client in &mut idle {
            assert_eq!(client.get("/c?after=x").status, 400);
        }
        let mut sockets: Vec<_> = (0..3).map(|_| socket(&stage, "").0).collect();
        let (mut events, _) = Events::new(&stage, "", "");
        until_subscribers(&stage, 4);
        // A request of which only a part has come keeps its task.
        let mut partial = stage.connect();
        partial.send("POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nab");
        until_listed(
            &stage,
            &[("http/1.1", true, 3), ("channel", true, 4), ("http/1.1", false, 1)],
        );
        for one in listed(&stage) {
            assert!(one["age_seconds"].as_u64().unwrap() < 60 && one["tls"] == false, "{one}");
            assert_eq!(one["process"], std::process::id());
        }
        // One connection by its port; the others go on.
        let port = idle[0].0.get_ref().local_addr().unwrap();
        let closed = operate(&stage, "DELETE", &format!("/api/connections?client={port}"));
        assert_eq!(closed["closed"], 1, "{backend:?}");
        assert!(idle[0].is_closed());
        let port = partial.0.get_ref().local_addr().unwrap();
        let closed = operate(&stage, "DELETE", &format!("/api/connections?client={port}"));
        assert_eq!(closed["closed"], 1, "{backend:?}");
        assert!(partial.is_closed());
        let port = sockets[0].get_ref().local_addr().unwrap();
        let closed = operate(&stage, "DELETE", &format!("/api/connections?client={port}"));
        assert_eq!(closed["closed"], 1, "{backend:?}");
        assert!(matches!(sockets[0].read(), Ok(Message::Close(Some(_)))), "{backend:?}");
        // The server waits for the client's end.
        drop(sockets.remove(0));
        until_subscribers(&stage, 3);
        publish(&stage, "still here");
        for socket in &mut sockets {
            assert_eq!(socket.read().unwrap().to_text().unwrap(), "still here");
        }
        assert_eq!(events.message().1, "still here");
        assert_eq!(idle[1].get("/c?after=x").status, 400);
        let none = operate(&stage, "DELETE", "/api/connections?client=192.0.2.1");
        assert_eq!(none["closed"], 0);
        // All others, and the one that asks.
        let stream = std::net::TcpStream::connect(stage.addresses[1].to_string()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client(std::io::BufReader::new(stream));
        client.send("DELETE /api/connections?client=127.0.0.1 HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert!(client.is_closed());
        assert!(idle[1].is_closed() && idle[2].is_closed());
        // The stream comes to its end before.
        assert!(events.next().is_none() && events.is_closed());
        for mut socket in sockets {
            assert!(matches!(socket.read(), Ok(Message::Close(Some(_)))), "{backend:?}");
        }
        until_subscribers(&stage, 0);
        until_listed(&stage, &[]);
        assert_eq!(stage.drained(), 0);
    }
}

#[test]
fn a_long_list_is_cut_at_its_limit_and_says_how_many_there_are() {
    let stage = stage(BackendKind::Epoll, 2);
    let held: Vec<Client> = (0..100).map(|_| stage.connect()).collect();
    let end = Instant::now() + PATIENCE;
    while listed(&stage).len() != 100 {
        assert!(Instant::now() < end);
    }
    let list = operate(&stage, "GET", "/api/connections?limit=7");
    assert_eq!(list["connections"].as_array().unwrap().len(), 7);
    assert!(list["total"].as_u64().unwrap() >= 100, "{list}");
    let port = held[9].0.get_ref().local_addr().unwrap();
    let one = operate(&stage, "GET", &format!("/api/connections?client={port}"));
    assert_eq!((&one["total"], one["connections"].as_array().unwrap().len()), (&1.into(), 1));
}

#[test]
fn channels_are_listed_with_their_subscribers_and_messages_in_pages() {
    let text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
                path = \"/rooms/{room}\"\nchannel = { publish = \"anyone\", history = 2 }\n\
                [admin]\naddress = \"127.0.0.1:0\"\n";
    let stage = Stage::new(BackendKind::Epoll, 2, text);
    let mut client = stage.connect();
    for room in 0..25 {
        for message in ["one", "two", "three"] {
            let length = message.len();
            client.send(format!(
                "POST /rooms/{room:02} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{message}"
            ));
            assert_eq!(client.answer().status, 201);
        }
    }
    let mut poll = stage.connect();
    ask(&mut poll, "");
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = operate(&stage, "GET", &format!("/api/channels?limit=10&after={after}"));
        let channels = page["channels"].as_array().unwrap();
        assert!(channels.len() <= 10);
        for channel in channels {
            assert_eq!(
                (&channel["last_id"], &channel["messages"], &channel["route"]),
                (&3.into(), &2.into(), &"/rooms/{room}".into())
            );
            assert!(channel["bytes"].as_u64().unwrap() >= 8, "{channel}");
            found.push(channel["key"].as_str().unwrap().to_owned());
        }
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    let expected: Vec<String> = (0..25).map(|room| format!("/rooms/{room:02}")).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_user_is_sent_away_from_all_channels_or_from_one_and_comes_again() {
    let route = |path: &str| {
        format!(
            "[[hosts.routes]]\npath = \"{path}\"\n[hosts.routes.channel]\npresence = true\n\
             subscribe = \"token\"\n{}\n",
            rule("")
        )
    };
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[timeouts]\npark = \"40ms\"\n[[hosts]]\n{}{}\
         [admin]\naddress = \"127.0.0.1:0\"\n",
        route("/c"),
        route("/d/{name}")
    );
    let stage = Stage::new(BACKENDS[3], 2, &text);
    let enter = |path: &str, name: &str| {
        let claims = serde_json::json!({ "sub": name, "superpoll": { "subscribe": ["*"] } });
        let token = with_claims(&claims, SECRET);
        let stream = std::net::TcpStream::connect(address(&stage)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let url = format!("ws://{}{path}?token={token}", address(&stage));
        tungstenite::client::client(url, stream).unwrap().0
    };
    let close = |socket: &mut tungstenite::WebSocket<std::net::TcpStream>| loop {
        match socket.read().unwrap() {
            Message::Close(close) => return u16::from(close.unwrap().code),
            Message::Text(_) | Message::Ping(_) => {}
            other => panic!("{other:?}"),
        }
    };
    let ended = |method: &str, path: &str| operate(&stage, method, path)["closed"].clone();
    let mut ada = ["/c", "/c", "/d/1", "/d/2"].map(|path| enter(path, "ada"));
    let mut bob = enter("/c", "bob");
    // Some are parked, and all of them are found.
    stage.until(|engine| &engine.parked, 5);
    assert_eq!(ended("DELETE", "/api/users/ada?channel=/d/1"), 1);
    assert_eq!(close(&mut ada[2]), 1008);
    assert_eq!(ended("POST", "/api/users/ada/refresh?channel=/c"), 2);
    assert_eq!([close(&mut ada[0]), close(&mut ada[1])], [1012, 1012]);
    ada[0] = enter("/c", "ada");
    assert_eq!(ended("DELETE", "/api/users/ada"), 2);
    assert_eq!([close(&mut ada[0]), close(&mut ada[3])], [1008, 1008]);
    assert_eq!(ended("DELETE", "/api/users/nobody"), 0);
    // Others are not touched.
    bob.send(Message::Ping(Default::default())).unwrap();
    while !matches!(bob.read().unwrap(), Message::Pong(_)) {}
}
