//! tungstenite as a client of `ws_echo`, on a blocking socket and on this runtime.

use std::io::{Read, Write};
use std::rc::Rc;

use async_tungstenite::client_async;
use futures_lite::StreamExt;
use superpoll_rt::{BackendKind, Runtime, spawn};
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Error, Message};

use super::example::{Example, noise};

#[test]
fn text_and_binary_come_back_and_pings_are_answered() {
    for kind in BackendKind::available() {
        let server = Example::start("ws_echo", kind);
        let (mut socket, _) = tungstenite::client("ws://localhost/", server.connect()).unwrap();
        for message in [
            Message::text(""),
            Message::text("grüße, 世界"),
            Message::binary(Vec::new()),
            Message::binary(noise(7, 125)),
            Message::binary(noise(8, 70_000)),
            Message::text("x".repeat(1 << 20)),
        ] {
            socket.send(message.clone()).unwrap();
            assert!(socket.read().unwrap() == message, "{kind}");
        }
        socket.send(Message::Ping("are you there?".into())).unwrap();
        assert_eq!(socket.read().unwrap(), Message::Pong("are you there?".into()), "{kind}");
        // An unsolicited pong is not answered: the text comes next.
        socket.send(Message::Pong("I am here".into())).unwrap();
        socket.send(Message::text("next")).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text("next"), "{kind}");

        let goodbye = CloseFrame { code: CloseCode::Away, reason: "enough".into() };
        socket.close(Some(goodbye.clone())).unwrap();
        assert_eq!(socket.read().unwrap(), Message::Close(Some(goodbye)), "{kind}");
        assert!(matches!(socket.read(), Err(Error::ConnectionClosed)), "{kind}");
    }
}

#[test]
fn many_clients_at_a_time_on_this_runtime() {
    for kind in BackendKind::available() {
        let server = Rc::new(Example::start("ws_echo", kind));
        let clients = async {
            let clients = (0..32).map(|number| {
                let server = server.clone();
                spawn(async move {
                    let stream = server.connect_async().await;
                    let (mut socket, _) = client_async("ws://localhost/", stream).await.unwrap();
                    for round in 0..20 {
                        let message = match round % 2 {
                            0 => Message::text(format!("round {round} of {number}")),
                            _ => Message::binary(noise(number, round * 500)),
                        };
                        socket.send(message.clone()).await.unwrap();
                        let answer = socket.next().await.unwrap().unwrap();
                        assert!(answer == message, "{kind}: round {round} of {number}");
                    }
                    socket.close(None).await.unwrap();
                    while socket.next().await.is_some_and(|message| message.is_ok()) {}
                })
            });
            for client in clients.collect::<Vec<_>>() {
                client.await.unwrap();
            }
        };
        Runtime::builder().backend(kind).build().unwrap().block_on(clients);
    }
}

#[test]
fn a_client_that_breaks_the_protocol_loses_its_connection_only() {
    let mut server = Example::start("ws_echo", BackendKind::Adaptive);
    let (mut good, _) = tungstenite::client("ws://localhost/", server.connect()).unwrap();
    let (bad, _) = tungstenite::client("ws://localhost/", server.connect()).unwrap();
    let mut bad = bad.into_inner();
    // A text frame that is not masked, which RFC 6455 demands of clients.
    bad.write_all(b"\x81\x02hi").unwrap();
    let mut rest = Vec::new();
    // The end of the stream, or a reset because the server did not read all.
    let _ = bad.read_to_end(&mut rest);
    assert!(!rest.windows(2).any(|two| two == b"hi"), "it is not echoed: {rest:?}");

    let mut plain = server.connect();
    plain.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = plain.read_to_string(&mut answer);
    assert!(!answer.contains("101"), "no upgrade was asked for: {answer:?}");

    good.send(Message::text("still here")).unwrap();
    assert_eq!(good.read().unwrap(), Message::text("still here"));
    server.assert_alive();
}
