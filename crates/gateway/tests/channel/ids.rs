//! Ids of requests in the answers of channels, those of parked connections too.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::Duration;

use crate::clients::{post, read_until, socket, until_subscribers};
use crate::stage::{Answer, BACKENDS, Client, Stage, on_each_backend};

fn text(channel: &str, rest: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[timeouts]\npark = \"40ms\"\nidle = \"1h\"\n\
         [tracing]\nrequest_id = true\ntrace = true\n\
         [[hosts]]\n[[hosts.routes]]\npath = \"/c\"\nchannel = {{ {channel} }}\n{rest}"
    )
}

fn ask(client: &mut Client, query: &str) {
    client.send(format!("GET /c{query} HTTP/1.1\r\nhost: a\r\nX-Request-Id: mine\r\n\r\n"));
}

/// The one id in a head, which must be a new one.
#[track_caller]
fn id(head: &str) -> String {
    let ids = head.lines().filter_map(|line| line.strip_prefix("x-request-id: "));
    let ids: Vec<&str> = ids.collect();
    let [id] = ids[..] else { panic!("{head}") };
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{head}");
    id.to_owned()
}

#[test]
fn every_answer_of_a_channel_has_an_id_of_its_own() {
    on_each_backend(|backend| {
        let stage = Stage::new(backend, 1, &text("", ""));
        let mut ids = BTreeSet::new();
        let mut check = |answer: &Answer| assert!(ids.insert(id(&answer.head)), "{answer:?}");
        let mut publisher = stage.connect();
        assert_eq!(post(&mut publisher, "first"), 1);
        // At once, with a message while it is parked, and without one; on one connection.
        let mut client = stage.connect();
        ask(&mut client, "?after=0");
        check(&client.answer());
        ask(&mut client, "?after=1");
        until_subscribers(&stage, 1);
        // The publisher may be parked as well by now.
        stage.until(|engine| &engine.active, 0);
        assert_eq!(post(&mut publisher, "second"), 2);
        check(&client.answer());
        ask(&mut client, "?after=2&wait=50");
        until_subscribers(&stage, 1);
        stage.elapse(Duration::from_secs(60));
        let answer = client.answer();
        assert_eq!(answer.status, 204);
        check(&answer);
        // A stream that leaves its task, and one that does not.
        let mut stream = |version: &str| {
            let mut client = stage.connect();
            client.send(format!(
                "GET /c HTTP/{version}\r\nhost: a\r\naccept: text/event-stream\r\n\r\n"
            ));
            check(&client.head_only());
            client
        };
        let (mut events, _old) = (stream("1.1"), stream("1.0"));
        assert_eq!(post(&mut publisher, "third"), 3);
        read_until(&mut events, "data: third\n");
        let (_socket, response) = socket(&stage, "");
        assert!(ids.insert(response.headers()["x-request-id"].to_str().unwrap().to_owned()));
        // A connection has no id of an earlier request where a change has switched them off.
        let off = text("", "").replace("request_id = true\n", "");
        stage.change(&off);
        let end = std::time::Instant::now() + crate::stage::PATIENCE;
        loop {
            ask(&mut client, "?after=0");
            if !client.answer().head.contains("x-request-id") {
                break;
            }
            assert!(std::time::Instant::now() < end, "the change does not come");
        }
    });
}

/// The servers that decide about clients get the id of the request that they decide about.
#[test]
fn the_application_that_decides_gets_the_id() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let application = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let (mut reader, mut head) = (BufReader::new(stream.try_clone().unwrap()), String::new());
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0);
        }
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        head
    });
    let channel = "subscribe = \"authorize\", authorize = { upstream = \"app\" }";
    let servers = format!("[upstreams.app]\nservers = [{{ address = \"{at}\" }}]\n");
    let stage = Stage::new(BACKENDS[2], 1, &text(channel, &servers));
    let mut client = stage.connect();
    ask(&mut client, "?after=0&wait=50");
    until_subscribers(&stage, 1);
    stage.elapse(Duration::from_secs(60));
    let answer = client.answer();
    assert_eq!(answer.status, 204);
    let head = application.join().unwrap();
    assert_eq!(id(&head), id(&answer.head));
    assert_eq!(head.matches("\r\ntraceparent: 00-").count(), 1, "{head}");
}
