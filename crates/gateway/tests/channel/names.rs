//! A channel for each name that fits the path of a route.

use std::io::Read;
use std::net::TcpStream;
use std::time::Instant;

use superpoll_rt::BackendKind;
use superpoll_test_support::until;
use tungstenite::WebSocket;
use tungstenite::client::IntoClientRequest;

use crate::clients::{address, field, messages, next};
use crate::stage::{Answer, BACKENDS, Client, PATIENCE, Stage};

fn text(options: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [timeouts]\npark = \"40ms\"\n\
         [[hosts]]\n[[hosts.routes]]\npath = \"/rooms/{{room}}\"\nchannel = {{ {options} }}\n\
         [[hosts.routes]]\npath = \"/rooms/lobby\"\nchannel = {{ history = 1 }}\n\
         [[hosts.routes]]\npath = \"/topics/{{*topic}}\"\nchannel = {{}}\n"
    )
}

fn stage(backend: BackendKind, workers: usize, options: &str) -> Stage {
    Stage::new(backend, workers, &text(options))
}

fn post(client: &mut Client, path: &str, data: &str) -> Answer {
    let length = data.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
    client.send(head + data);
    client.answer()
}

/// The status of an answer without a body.
fn head(stage: &Stage, path: &str) -> u16 {
    let mut client = stage.connect();
    client.send(format!("HEAD {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"));
    let mut head = String::new();
    client.0.read_to_string(&mut head).unwrap();
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

fn socket(stage: &Stage, path: &str) -> WebSocket<TcpStream> {
    let request = format!("ws://{}{path}", address(stage)).into_client_request().unwrap();
    let stream = TcpStream::connect(address(stage)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    tungstenite::client::client(request, stream).unwrap().0
}

#[test]
fn each_name_is_a_channel_of_its_own() {
    for backend in BACKENDS {
        let stage = stage(backend, 2, "");
        let mut client = stage.connect();
        // Subscribers make channels, and so do publishers.
        let (mut one, mut other) = (socket(&stage, "/rooms/1"), socket(&stage, "/rooms/2"));
        for (path, data) in [("/rooms/2", "b"), ("/rooms/1", "a"), ("/rooms/3", "c")] {
            let answer = post(&mut client, path, data);
            assert_eq!((answer.status, field(&answer, "channel-next")), (201, "1"), "{path}");
        }
        assert_eq!((next(&mut one), next(&mut other)), ("a".to_owned(), "b".to_owned()));
        // The spelling of a name does not matter.
        let kept = messages(&client.get("/rooms/%33?after=0"));
        assert_eq!(kept, [(1, "c".to_owned())]);
        assert_eq!(post(&mut client, "/rooms/%31", "again").status, 201);
        assert_eq!(next(&mut one), "again");
        // A route with the whole path counts more.
        assert_eq!(post(&mut client, "/rooms/lobby", "1").status, 201);
        assert_eq!(post(&mut client, "/rooms/lobby", "2").status, 201);
        assert_eq!(messages(&client.get("/rooms/lobby?after=0")), [(2, "2".to_owned())]);
        assert_eq!(post(&mut client, "/topics/a/b", "deep").status, 201);
        assert_eq!(messages(&client.get("/topics/a/b?after=0")), [(1, "deep".to_owned())]);
    }
}

#[test]
fn names_that_are_not_allowed_are_refused_with_the_reason() {
    let stage = stage(BACKENDS[2], 1, "");
    let mut client = stage.connect();
    for (path, expected) in [
        ("/rooms/a%2fb", "the name of the channel has a slash within a part\n"),
        ("/rooms/%00", "the name of the channel has a control character\n"),
        ("/rooms/%2e%2e", "the name of the channel has a part \".\" or \"..\"\n"),
        ("/rooms/%ff", "the name of the channel is not UTF-8\n"),
    ] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.body), (400, expected.into()), "{path}");
    }
    let long = format!("/rooms/{}", "x".repeat(4096));
    assert_eq!(client.get(&long).body, b"the name of a channel has at most 256 bytes\n");
    for path in ["/rooms", "/rooms/", "/rooms/a/b"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    // A question makes no channel.
    assert_eq!(head(&stage, "/rooms/new"), 404);
    assert_eq!(post(&mut client, "/rooms/new", "x").status, 201);
    assert_eq!(head(&stage, "/rooms/new"), 200);
}

#[test]
fn a_question_tells_how_many_subscribers_a_channel_has() {
    let text = text("") + "[metrics]\n";
    let stage = Stage::new(BACKENDS[3], 2, &text);
    let mut client = stage.connect();
    let subscribers: Vec<_> = (0..3).map(|_| socket(&stage, "/rooms/1")).collect();
    let mut other = socket(&stage, "/rooms/2");
    let info = |client: &mut Client, path: &str| -> serde_json::Value {
        let answer = client.get(path);
        assert_eq!(answer.status, 200, "{answer:?}");
        serde_json::from_slice(&answer.body).unwrap()
    };
    let end = Instant::now() + PATIENCE;
    // A message that came before the subscriber would be one of the history.
    while info(&mut client, "/rooms/2?info=1")["subscribers"] != 1 {
        assert!(Instant::now() < end);
    }
    assert_eq!(post(&mut client, "/rooms/2", "x").status, 201);
    assert_eq!(next(&mut other), "x");
    while info(&mut client, "/rooms/1?info=1")["subscribers"] != 3 {
        assert!(Instant::now() < end);
    }
    let of_other = info(&mut client, "/rooms/2?info=1");
    assert_eq!((&of_other["channel"], &of_other["last"]), (&"/rooms/2".into(), &1.into()));
    assert_eq!(client.get("/rooms/unknown?info=1").status, 404);
    client.send("HEAD /rooms/1 HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(field(&client.answer(), "channel-subscribers"), "3");
    let mut client = stage.connect();
    client.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let metrics = String::from_utf8(client.answer().body).unwrap();
    for line in [
        "superpoll_channels{host=\"\",route=\"/rooms/{room}\"} 2\n",
        "superpoll_channel_subscribers{host=\"\",route=\"/rooms/{room}\"} 4\n",
        "superpoll_channel_messages_published_total{host=\"\",route=\"/rooms/{room}\"} 1\n",
        "superpoll_channel_messages_delivered_total{host=\"\",route=\"/rooms/{room}\"} 1\n",
        "superpoll_channel_messages_dropped_total{host=\"\",route=\"/rooms/{room}\"} 0\n",
        "superpoll_channel_subscribers_disconnected_total{host=\"\",route=\"/rooms/{room}\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    drop(subscribers);
    while info(&mut client, "/rooms/1?info=1")["subscribers"] != 0 {
        assert!(Instant::now() < end);
    }
}

#[test]
fn a_flood_of_names_is_refused_and_harms_no_known_channel() {
    let stage = stage(BACKENDS[3], 1, "max_channels = 10");
    let mut client = stage.connect();
    for name in 0..10 {
        assert_eq!(post(&mut client, &format!("/rooms/{name}"), "x").status, 201);
    }
    for name in 10..300 {
        let answer = post(&mut client, &format!("/rooms/{name}"), "x");
        assert_eq!((answer.status, field(&answer, "retry-after")), (503, "10"));
        let text = "there are 10 channels here, and no more may be; \
                    try again when some have been idle\n";
        assert_eq!(answer.body, text.as_bytes());
        assert_eq!(client.get(&format!("/rooms/{name}?wait=0")).status, 503);
    }
    for name in 0..10 {
        assert_eq!(post(&mut client, &format!("/rooms/{name}"), "y").status, 201);
    }
    assert_eq!(post(&mut client, "/topics/other", "x").status, 201);
}

#[test]
fn the_channels_of_a_route_share_a_bound_on_their_bytes() {
    let stage = stage(BACKENDS[3], 1, "max_bytes = \"4KiB\"");
    let mut client = stage.connect();
    assert_eq!(post(&mut client, "/rooms/full", &"x".repeat(3000)).status, 201);
    let answer = post(&mut client, "/rooms/other", &"x".repeat(2000));
    assert_eq!((answer.status, field(&answer, "retry-after")), (503, "10"));
    assert!(answer.body.starts_with(b"the channels of this route keep as many bytes as they may"));
    // Messages of its own are dropped for new ones; their readers learn of it.
    assert_eq!(post(&mut client, "/rooms/full", &"y".repeat(3000)).status, 201);
    let answer = client.get("/rooms/full?after=0");
    assert!(crate::clients::is_missed(&answer));
    assert_eq!(messages(&answer), [(2, "y".repeat(3000))]);
    // A WebSocket whose message has no room is told so.
    let mut socket = socket(&stage, "/rooms/third");
    socket.send("z".repeat(2000).into()).unwrap();
    let closed = loop {
        match socket.read() {
            Ok(tungstenite::Message::Close(frame)) => break frame.unwrap(),
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(u16::from(closed.code), 1013);
}

#[test]
fn a_channel_without_use_is_dropped_and_one_with_a_subscriber_stays() {
    let stage = stage(BACKENDS[2], 2, "idle = \"1s\"");
    let mut client = stage.connect();
    let mut subscriber = socket(&stage, "/rooms/held");
    assert_eq!(post(&mut client, "/rooms/held", "1").status, 201);
    assert_eq!(post(&mut client, "/rooms/idle", "1").status, 201);
    until("the idle channel is gone", || head(&stage, "/rooms/idle") == 404);
    // It is longer ago that this one was used.
    assert_eq!(post(&mut client, "/rooms/held", "2").status, 201);
    assert_eq!((next(&mut subscriber), next(&mut subscriber)), ("1".to_owned(), "2".to_owned()));
    // The new channel of the name is another one, which its readers learn by the epoch.
    let before = "1-1";
    let answer = client.get(&format!("/rooms/idle?after={before}&wait=0"));
    assert!(crate::clients::is_missed(&answer));
}

#[test]
fn a_changed_configuration_keeps_named_channels_and_their_subscribers() {
    let stage = stage(BACKENDS[4], 2, "");
    let mut client = stage.connect();
    let mut subscriber = socket(&stage, "/rooms/1");
    assert_eq!(post(&mut client, "/rooms/1", "before").status, 201);
    stage.change(&text("max_channels = 1"));
    // The change has arrived when a new name is refused.
    let end = Instant::now() + PATIENCE;
    let mut names = 2..;
    while post(&mut client, &format!("/rooms/{}", names.next().unwrap()), "x").status != 503 {
        assert!(Instant::now() < end, "the change does not arrive");
    }
    let answer = post(&mut client, "/rooms/1", "after");
    assert_eq!((answer.status, field(&answer, "channel-next")), (201, "2"));
    assert_eq!(next(&mut subscriber), "before");
    assert_eq!(next(&mut subscriber), "after");
}
