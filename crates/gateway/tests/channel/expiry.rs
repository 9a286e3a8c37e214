//! Subscriptions that end with their token.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, WebSocket};

use crate::clients::{address, publish, stage, until_subscribers};
use crate::stage::{BACKENDS, PATIENCE, Stage, on_each_backend};
use superpoll_test_support::tokens::{rule, token};

/// The seconds after which tokens expire: long enough for a busy machine.
pub(crate) const SOON: i64 = 4;

/// A subscriber whose token expires after some seconds.
fn socket(stage: &Stage, seconds: i64) -> WebSocket<TcpStream> {
    let token = token(&["/c"], &["/c"], seconds);
    let url = format!("ws://{}/c?token={token}", address(stage));
    let stream = TcpStream::connect(address(stage)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    tungstenite::client::client(url.into_client_request().unwrap(), stream).unwrap().0
}

fn expects_the_end(socket: &mut WebSocket<TcpStream>) {
    match socket.read() {
        Ok(Message::Close(Some(close))) => {
            assert_eq!(close.code, CloseCode::Policy);
            assert_eq!(close.reason.as_str(), "the token has expired");
        }
        other => panic!("{other:?}"),
    }
}

fn options() -> String {
    format!("subscribe = \"token\", publish = \"anyone\", poll = \"10m\", {}", rule(""))
}

#[test]
fn a_parked_websocket_ends_with_its_token() {
    on_each_backend(|backend| {
        let stage = stage(backend, 1, &options());
        let (mut soon, mut later) = (socket(&stage, SOON), socket(&stage, 600));
        stage.until(|engine| &engine.parked, 2);
        publish(&stage, "in time");
        assert_eq!(soon.read().unwrap(), Message::text("in time"), "{backend:?}");
        expects_the_end(&mut soon);
        until_subscribers(&stage, 1);
        publish(&stage, "too late");
        for text in ["in time", "too late"] {
            assert_eq!(later.read().unwrap(), Message::text(text), "{backend:?}");
        }
        assert!(soon.read().is_err());
    });
}

#[test]
fn a_websocket_with_a_task_ends_with_its_token() {
    on_each_backend(|backend| {
        let stage = stage(backend, 1, &options());
        let mut client = socket(&stage, SOON);
        // The beginning of a frame, whose rest the task waits for.
        client.get_mut().write_all(&[0x81, 0x85, 1]).unwrap();
        stage.until(|engine| &engine.active, 1);
        expects_the_end(&mut client);
        until_subscribers(&stage, 0);
    });
}

#[test]
fn a_message_is_neither_sent_nor_accepted_after_the_token() {
    let stage = stage(BACKENDS[2], 1, &options());
    let mut parked = socket(&stage, SOON);
    let mut client = socket(&stage, SOON);
    let expired = Instant::now() + Duration::from_secs(SOON.unsigned_abs() + 1);
    // The beginning of a frame, whose rest comes too late.
    let (start, rest) = ([0x81, 0x82, 0, 0], [0, 0, b'n', b'o']);
    client.get_mut().write_all(&start).unwrap();
    stage.until(|engine| &engine.active, 1);
    while Instant::now() < expired {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Whether or not the server has noticed the end: it has by a second later.
    let _ = client.get_mut().write_all(&rest);
    let _ = parked.send(Message::text("late"));
    assert_eq!(publish(&stage, "news"), 1);
    expects_the_end(&mut parked);
    expects_the_end(&mut client);
    until_subscribers(&stage, 0);
    assert_eq!(stage.channel.as_ref().unwrap().last(), 1);
}

#[test]
fn a_long_poll_is_answered_when_its_token_expires() {
    on_each_backend(|backend| {
        let stage = stage(backend, 1, &options());
        let mut client = stage.connect();
        let token = token(&["/c"], &[], SOON);
        let ask = format!("GET /c?token={token} HTTP/1.1\r\nhost: a\r\n\r\n");
        client.send(&ask);
        stage.until(|engine| &engine.parked, 1);
        assert_eq!(client.answer().status, 204, "{backend:?}");
        client.send(&ask);
        assert_eq!(client.answer().status, 401, "{backend:?}");
        until_subscribers(&stage, 0);
    });
}

#[test]
fn a_long_poll_with_a_task_is_answered_when_its_token_expires() {
    // The answer to a page of another site is not parked.
    let options = options() + ", origins = [\"https://app.example\"]";
    let stage = stage(BACKENDS[3], 1, &options);
    let mut client = stage.connect();
    let token = token(&["/c"], &[], SOON);
    client.send(format!(
        "GET /c?token={token} HTTP/1.1\r\nhost: a\r\norigin: https://app.example\r\n\r\n"
    ));
    until_subscribers(&stage, 1);
    assert_eq!(client.answer().status, 204);
    until_subscribers(&stage, 0);
}

#[test]
fn a_stream_of_events_ends_with_its_token() {
    on_each_backend(|backend| {
        let stage = stage(backend, 1, &options());
        // A stream that is parked, and one that has a task.
        let mut clients = ["1.1", "1.0"].map(|version| {
            let mut client = stage.connect();
            let token = token(&["/c"], &[], SOON);
            client.send(format!(
                "GET /c?token={token} HTTP/{version}\r\nhost: a\r\naccept: text/event-stream\r\n\r\n"
            ));
            client
        });
        until_subscribers(&stage, 2);
        stage.until(|engine| &engine.parked, 1);
        publish(&stage, "in time");
        for (client, end) in clients.iter_mut().zip(["\n\n\r\n0\r\n\r\n", "\n\n"]) {
            let mut all = String::new();
            client.0.read_to_string(&mut all).unwrap();
            assert!(all.contains(" 200 OK\r\n"), "{all}");
            assert!(all.ends_with(&format!("data: in time{end}")), "{backend:?}: {all}");
        }
        until_subscribers(&stage, 0);
    });
}

#[test]
fn a_stream_whose_client_reads_nothing_ends_with_its_token() {
    let stage = stage(BACKENDS[3], 1, &(options() + ", backlog_bytes = \"64MiB\""));
    let mut client = stage.connect();
    let token = token(&["/c"], &[], SOON);
    client.send(format!(
        "GET /c?token={token} HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n"
    ));
    stage.until(|engine| &engine.parked, 1);
    // Until its socket has no room, and it has a task.
    let message = vec![b'x'; 60_000];
    while stage.count(|engine| &engine.active) == 0 {
        publish(&stage, &message);
    }
    until_subscribers(&stage, 0);
}
