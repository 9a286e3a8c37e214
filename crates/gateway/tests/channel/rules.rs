//! The rules of routes with channels, for subscribers that are parked and others.

use std::net::TcpStream;
use std::time::Duration;

use tungstenite::client::IntoClientRequest;

use crate::clients::{address, field, post, read_until, until_subscribers};
use crate::stage::{Answer, BACKENDS, Client, PATIENCE, Stage, on_each_backend};

/// The hash of `secret`.
const HASH: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
const JOE: &str = "Authorization: Basic am9lOnNlY3JldA==\r\n";

/// A configuration with the channels `/c` and `/d`, with rules.
fn text(c: &str, d: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [timeouts]\npark = \"40ms\"\nidle = \"1h\"\n\
         [[hosts]]\nheaders.set.x-host = \"h\"\n\
         [[hosts.routes]]\npath = \"/c\"\n{c}\nchannel = {{}}\n\
         [[hosts.routes]]\npath = \"/d\"\n{d}\nchannel = {{}}\n"
    )
}

fn ask(client: &mut Client, path: &str, fields: &str) -> Answer {
    client.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n{fields}\r\n"));
    client.answer()
}

#[test]
fn parked_subscribers_get_the_fields_of_their_route() {
    let rules = "headers = { set = { x-route = \"r\", x-accel-buffering = \"no\" } }";
    on_each_backend(|backend| {
        let stage = Stage::new(backend, 1, &text(rules, ""));
        let check = |head: &str| {
            for line in ["x-host: h", "x-route: r", "x-accel-buffering: no"] {
                let count = head.to_lowercase().lines().filter(|known| *known == line).count();
                assert_eq!(count, 1, "{line}: {head}");
            }
        };
        let mut publisher = stage.connect();
        assert_eq!(post(&mut publisher, "first"), 1);
        // At once, with a message while it is parked, and without one.
        let mut client = stage.connect();
        check(&ask(&mut client, "/c?after=0", "").head);
        client.send("GET /c?after=1 HTTP/1.1\r\nhost: a\r\n\r\n");
        until_subscribers(&stage, 1);
        // The publisher may be parked as well by now.
        stage.until(|engine| &engine.active, 0);
        assert_eq!(post(&mut publisher, "second"), 2);
        check(&client.answer().head);
        client.send("GET /c?after=2&wait=50 HTTP/1.1\r\nhost: a\r\n\r\n");
        until_subscribers(&stage, 1);
        stage.elapse(Duration::from_secs(60));
        let answer = client.answer();
        assert_eq!(answer.status, 204);
        check(&answer.head);
        // A stream that leaves its task, and one that does not.
        let stream = |version: &str| {
            let mut client = stage.connect();
            client.send(format!(
                "GET /c HTTP/{version}\r\nhost: a\r\naccept: text/event-stream\r\n\r\n"
            ));
            let head = client.head_only().head;
            check(&head);
            assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
            client
        };
        let (mut events, _old) = (stream("1.1"), stream("1.0"));
        assert_eq!(post(&mut publisher, "third"), 3);
        read_until(&mut events, "data: third\n");
        let (_socket, response) = crate::clients::socket(&stage, "");
        assert_eq!(
            (&response.headers()["x-host"], &response.headers()["x-route"]),
            (&"h".parse().unwrap(), &"r".parse().unwrap())
        );
        // The fields of a parked request are those of the configuration in which it is answered.
        client.send("GET /c?after=3 HTTP/1.1\r\nhost: a\r\n\r\n");
        stage.change(&text("headers.set.x-route = \"new\"", ""));
        let end = std::time::Instant::now() + PATIENCE;
        let mut other = stage.connect();
        while field(&ask(&mut other, "/c?after=0", ""), "x-route") != "new" {
            assert!(std::time::Instant::now() < end);
        }
        assert_eq!(post(&mut publisher, "fourth"), 4);
        assert_eq!(field(&client.answer(), "x-route"), "new");
    });
}

/// Opens a WebSocket with some fields; the status if it is refused.
fn open(stage: &Stage, target: &str, fields: &[(&'static str, &str)]) -> u16 {
    let mut request = format!("ws://{}{target}", address(stage)).into_client_request().unwrap();
    for (name, value) in fields {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(address(stage)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    match tungstenite::client::client(request, stream) {
        Ok((_, response)) => response.status().as_u16(),
        Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(response))) => {
            response.status().as_u16()
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn channels_are_for_users_with_a_password() {
    let users = format!("basic_auth.users = {{ joe = \"{HASH}\" }}");
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text(&users, ""));
        let joe = ("authorization", "Basic am9lOnNlY3JldA==");
        for _ in 0..2 {
            let mut client = stage.connect();
            for fields in ["", "accept: text/event-stream\r\n", "Authorization: Basic am9lOng=\r\n"]
            {
                let answer = ask(&mut client, "/c?after=0", fields);
                assert_eq!((answer.status, field(&answer, "x-host")), (401, "h"), "{answer:?}");
            }
            client.send("POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx");
            assert_eq!(client.answer().status, 401);
            client.send(format!("POST /c HTTP/1.1\r\nhost: a\r\n{JOE}content-length: 1\r\n\r\nx"));
            assert_eq!(client.answer().status, 201);
            assert_eq!(ask(&mut client, "/c?after=0", JOE).status, 200);
            assert_eq!((open(&stage, "/c", &[]), open(&stage, "/c", &[joe])), (401, 101));
        }
        // A long-poll is parked behind the verification as well, on a server without the WebSockets
        // from before, which may still be parked.
        let stage = Stage::new(backend, 1, &text(&users, ""));
        let mut client = stage.connect();
        client.send(format!("GET /c HTTP/1.1\r\nhost: a\r\n{JOE}\r\n"));
        until_subscribers(&stage, 1);
        stage.until(|engine| &engine.parked, 1);
        let mut publisher = stage.connect();
        publisher.send(format!("POST /c HTTP/1.1\r\nhost: a\r\n{JOE}content-length: 1\r\n\r\ny"));
        assert_eq!((publisher.answer().status, client.answer().status), (201, 200));
    }
}

/// A user that is no more, or has another password, is no subscriber of a channel any more.
#[test]
fn subscribers_come_again_when_a_password_is_not_right_any_more() {
    let users = |all: &[(&str, &str)]| {
        let all: Vec<_> = all.iter().map(|(user, hash)| format!("{user} = \"{hash}\"")).collect();
        format!("basic_auth.users = {{ {} }}", all.join(", "))
    };
    let other = "$5$saltsalt$kmJUCIm73946uXVnGZjCdBUolDZJ3cOBx5hc3E.xjEC";
    let (joe, ann) = (("joe", HASH), ("ann", HASH));
    let of_ann = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    for backend in BACKENDS {
        for (before, then, stays) in [
            (users(&[joe]), users(&[ann, joe]), true),
            (users(&[joe]), "deny = [\"10.0.0.0/8\"]".to_owned(), true),
            (users(&[joe, ann]), users(&[ann]), false),
            (users(&[joe]), users(&[("joe", other), ann]), false),
            (String::new(), users(&[ann]), false),
        ] {
            let stage = Stage::new(backend, 1, &text(&before, ""));
            let mut client = stage.connect();
            client.send(format!("GET /c HTTP/1.1\r\nhost: a\r\n{JOE}\r\n"));
            stage.until(|engine| &engine.parked, 1);
            let mut events = stage.connect();
            let fields = format!("{JOE}accept: text/event-stream\r\n");
            events.send(format!("GET /c HTTP/1.1\r\nhost: a\r\n{fields}\r\n"));
            assert_eq!(events.head_only().status, 200, "{backend:?} {before}");
            stage.until(|engine| &engine.parked, 2);
            stage.change(&text(&then, "headers.set.x-now = \"then\""));
            let mut publisher = stage.connect();
            let end = std::time::Instant::now() + PATIENCE;
            while !ask(&mut publisher, "/d?after=0&wait=0", "").head.contains("x-now: then") {
                assert!(std::time::Instant::now() < end);
            }
            publisher.send(format!(
                "POST /c HTTP/1.1\r\nhost: a\r\n{of_ann}content-length: 6\r\n\r\nsecret"
            ));
            assert_eq!(publisher.answer().status, 201, "{backend:?} {then}");
            let status = client.answer().status;
            assert_eq!(status, if stays { 200 } else { 204 }, "{backend:?} {before} {then}");
            let mut bytes = Vec::new();
            let is_there = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("data: secret\n");
            while !is_there(&bytes) && events.chunk(&mut bytes) {}
            assert_eq!(is_there(&bytes), stays, "{backend:?} {before} {then}");
        }
    }
}

/// A request that is admitted to one channel names another one, whose rules would refuse it.
#[test]
fn further_channels_are_joined_within_their_rules_alone() {
    let users = format!("basic_auth.users = {{ joe = \"{HASH}\" }}");
    let others = format!("basic_auth.users = {{ ann = \"{HASH}\" }}");
    for backend in BACKENDS {
        for (c, d, status) in [
            ("", "", 200),
            ("", "deny = [\"127.0.0.0/8\"]", 400),
            ("", "allow = [\"10.0.0.0/8\"]", 400),
            ("", "allow = [\"127.0.0.1\"]", 200),
            ("", &*users, 400),
            (&*users, "", 200),
            (&*users, &*users, 200),
            (&*users, &*others, 400),
            (&*users, "deny = [\"127.0.0.1\"]", 400),
        ] {
            let stage = Stage::new(backend, 1, &text(c, d));
            let mut client = stage.connect();
            let fields = format!("{JOE}accept: text/event-stream\r\n");
            client.send(format!("GET /c?also=/d HTTP/1.1\r\nhost: a\r\n{fields}\r\n"));
            let found = client.head_only().status;
            assert_eq!(found, status, "{backend:?} {c} {d}");
        }
    }
}

/// A request for channels of several routes counts at the rate of each, and once at that of the
/// host.
#[test]
fn further_channels_are_joined_within_the_rates_of_their_routes() {
    for backend in BACKENDS {
        let rate = |burst: u32| format!("rate = \"1/m burst {burst}\"");
        let text = text("", &rate(3)).replace(
            "headers.set.x-host = \"h\"",
            "headers.set.x-host = \"h\"\nrate = \"1/m burst 8\"",
        );
        let stage = Stage::new(backend, 1, &text);
        let status = |path: &str| {
            let mut client = stage.connect();
            client.send(format!(
                "GET {path} HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n"
            ));
            client.head_only().status
        };
        // By themselves and with others.
        assert_eq!(status("/c?also=/d"), 200);
        assert_eq!(status("/d?also=/c"), 200);
        assert_eq!(open_json(&stage, "/c?also=/d"), 101);
        let mut client = stage.connect();
        let refused = ask(&mut client, "/c?also=/d", "accept: text/event-stream\r\n");
        assert_eq!(refused.status, 429, "{refused:?}");
        assert!(field(&refused, "retry-after").parse::<u64>().is_ok_and(|seconds| seconds > 0));
        assert_eq!((status("/d"), open_json(&stage, "/c?also=/d")), (429, 429));
        // What was refused has cost nothing at the rate of the host, where five are left.
        let left: Vec<u16> = (0..6).map(|_| status("/c")).collect();
        assert_eq!(left, [200, 200, 200, 200, 200, 429]);
    }
}

/// Opens a WebSocket of the subprotocol that has several channels.
fn open_json(stage: &Stage, target: &str) -> u16 {
    open(stage, target, &[("sec-websocket-protocol", "superpoll.v1")])
}
