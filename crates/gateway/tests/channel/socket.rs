//! Subscribing and publishing by WebSocket.

use std::io::{Read, Write};
use std::time::Duration;

use superpoll_rt::BackendKind;
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::frame::{Frame, FrameHeader};
use tungstenite::{Error, Message};

use crate::clients::{
    ROOM, messages, next, publish, socket, stage, subscribe_while_publishing, until_subscribers,
};
use crate::stage::BACKENDS;

/// A client's frame as bytes.
fn frame(kind: OpCode, is_final: bool, data: &[u8]) -> Vec<u8> {
    let mask = Some([3, 1, 4, 1]);
    let header = FrameHeader { is_final, opcode: kind, mask, ..FrameHeader::default() };
    let mut bytes = Vec::new();
    Frame::from_payload(header, data.to_vec().into()).format(&mut bytes).unwrap();
    bytes
}

fn text(is_final: bool, data: &[u8]) -> Vec<u8> {
    frame(OpCode::Data(Data::Text), is_final, data)
}

#[test]
fn parked_clients_get_messages_as_frames() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        let (mut client, response) = socket(&stage, "");
        assert_eq!(response.headers()["channel-next"], "0");
        for round in 0..3 {
            stage.until(|engine| &engine.parked, 1);
            stage.until(|engine| &engine.active, 0);
            publish(&stage, format!("message {round}"));
            assert_eq!(next(&mut client), format!("message {round}"), "{backend:?}");
        }
        publish(&stage, b"\xff\xfe");
        assert_eq!(client.read().unwrap(), Message::Binary((&b"\xff\xfe"[..]).into()));
        until_subscribers(&stage, 1);
        // It gets its own messages as well, and it is parked again.
        client.send(Message::text("mine")).unwrap();
        assert_eq!(next(&mut client), "mine");
        client.send(Message::binary(&b"bytes"[..])).unwrap();
        assert_eq!(client.read().unwrap(), Message::binary(&b"bytes"[..]));
        stage.until(|engine| &engine.parked, 1);
        client.close(None).unwrap();
        assert!(matches!(client.read(), Ok(Message::Close(None))));
        assert!(matches!(client.read(), Err(Error::ConnectionClosed)));
        stage.until(|engine| &engine.parked, 0);
        until_subscribers(&stage, 0);
    }
}

#[test]
fn requests_without_a_valid_handshake_are_refused() {
    let stage = stage(BACKENDS[2], 1, "");
    let ask = |fields: &str| {
        let mut client = stage.connect();
        client.send(format!(
            "GET /c HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n{fields}\r\n"
        ));
        client.answer()
    };
    let key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let answer = ask(&format!("sec-websocket-version: 8\r\n{key}"));
    assert_eq!(answer.status, 426);
    assert!(answer.head.contains("sec-websocket-version: 13\r\n"), "{}", answer.head);
    assert_eq!(ask(key).status, 426);
    let version = "sec-websocket-version: 13\r\n";
    assert_eq!(ask(version).status, 400);
    assert_eq!(ask(&format!("{version}sec-websocket-key: c2hvcnQ=\r\n")).status, 400);
    assert_eq!(ask(&format!("{version}{key}{key}")).status, 400);
    let answer = ask(&format!("{version}{key}"));
    assert_eq!(answer.status, 101);
    let accept = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    assert!(answer.head.contains(accept), "{}", answer.head);
    // Without the upgrade it is a long-poll, whose answer names the mistake.
    let mut client = stage.connect();
    assert_eq!(client.get("/c?wait=x").status, 400);
}

#[test]
fn frames_may_be_cut_anywhere() {
    let ping =
        frame(OpCode::Control(tungstenite::protocol::frame::coding::Control::Ping), true, b"?");
    let stream = [text(false, b"fr"), ping, text_end(b"agments"), text(true, b"whole")].concat();
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        let (mut client, _) = socket(&stage, "");
        // Cut once, at each byte, with the first part alone for as long as it takes to be read.
        for cut in 1..stream.len() {
            stage.until(|engine| &engine.active, 0);
            client.get_mut().write_all(&stream[..cut]).unwrap();
            if cut % 4 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            client.get_mut().write_all(&stream[cut..]).unwrap();
            let mut said = Vec::new();
            while said.len() < 3 {
                said.push(client.read().unwrap());
            }
            said.sort_by_key(|message| message.is_text());
            let expected =
                [Message::Pong("?".into()), Message::text("fragments"), Message::text("whole")];
            assert_eq!(said, expected, "{backend:?} {cut}");
        }
        // And byte by byte.
        for byte in &stream {
            client.get_mut().write_all(&[*byte]).unwrap();
        }
        let mut texts = Vec::new();
        while texts.len() < 2 {
            match client.read().unwrap() {
                Message::Text(text) => texts.push(text.to_string()),
                other => assert_eq!(other, Message::Pong("?".into())),
            }
        }
        assert_eq!(texts, ["fragments", "whole"]);
        stage.until(|engine| &engine.parked, 1);
    }
}

fn text_end(data: &[u8]) -> Vec<u8> {
    frame(OpCode::Data(Data::Continue), true, data)
}

#[test]
fn a_client_in_the_middle_of_a_message_still_receives() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        let (mut client, _) = socket(&stage, "");
        stage.until(|engine| &engine.parked, 1);
        client.get_mut().write_all(&text(false, b"begin")).unwrap();
        stage.until(|engine| &engine.parked, 0);
        publish(&stage, "meanwhile");
        assert_eq!(next(&mut client), "meanwhile");
        client.get_mut().write_all(&text_end(b"ning")).unwrap();
        assert_eq!(next(&mut client), "beginning", "{backend:?}");
        stage.until(|engine| &engine.active, 0);
    }
}

#[test]
fn bytes_right_behind_the_handshake_are_read() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        let mut client = stage.connect();
        let head = "GET /c HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
                    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        client.send([head.as_bytes(), &text(true, b"hi")].concat());
        assert_eq!(client.answer().status, 101);
        let mut frame = [0; 4];
        client.0.read_exact(&mut frame).unwrap();
        assert_eq!(&frame, b"\x81\x02hi", "{backend:?}");
    }
}

#[test]
fn missed_messages_are_replayed() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "history = 3");
        for id in 1..=5 {
            publish(&stage, id.to_string());
        }
        let (mut client, response) = socket(&stage, "?after=3");
        assert_eq!(response.headers()["channel-next"], "3");
        assert!(!response.headers().contains_key("channel-missed"));
        let (mut late, response) = socket(&stage, "?after=1");
        assert_eq!(response.headers()["channel-next"], "2");
        assert_eq!(response.headers()["channel-missed"], "true");
        publish(&stage, "6");
        assert_eq!([(); 3].map(|()| next(&mut client)), ["4", "5", "6"]);
        assert_eq!([(); 4].map(|()| next(&mut late)), ["3", "4", "5", "6"]);
    }
}

#[test]
fn nothing_is_lost_or_doubled_between_replay_and_live() {
    for backend in BACKENDS {
        let stage = stage(backend, 2, ROOM);
        let (mut clients, last) = subscribe_while_publishing(&stage, |after| {
            (socket(&stage, &format!("?after={after}")).0, after)
        });
        for (client, after) in &mut clients {
            for id in *after + 1..=last {
                assert_eq!(next(client), id.to_string(), "{backend:?}");
            }
        }
        stage.channel.as_ref().unwrap().publish("end");
        for (client, _) in &mut clients {
            assert_eq!(next(client), "end");
        }
    }
}

#[test]
fn protocol_violations_are_answered_with_their_close_code() {
    let stage = stage(BACKENDS[3], 1, "message_bytes = \"100\"");
    let large = [text(false, &[b'x'; 60]), text_end(&[b'x'; 60])].concat();
    for (bytes, code) in [
        (text(true, &[b'x'; 101]), CloseCode::Size),
        (large, CloseCode::Size),
        (text(true, b"\xff"), CloseCode::Invalid),
        (text_end(b""), CloseCode::Protocol),
        (b"\x81\x01x".to_vec(), CloseCode::Protocol),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), CloseCode::Protocol),
    ] {
        let (mut client, _) = socket(&stage, "");
        client.get_mut().write_all(&bytes).unwrap();
        match client.read() {
            Ok(Message::Close(Some(CloseFrame { code: found, .. }))) => assert_eq!(found, code),
            other => panic!("{code} expected: {other:?}"),
        }
        while client.read().is_ok() {}
    }
    let channel = stage.channel.clone().unwrap();
    assert_eq!(channel.last(), 0);
    stage.until(|engine| &engine.parked, 0);
    until_subscribers(&stage, 0);
    // The other clients are unharmed.
    let (mut client, _) = socket(&stage, "");
    client.get_mut().write_all(&text(true, &[b'x'; 100])).unwrap();
    assert_eq!(next(&mut client).len(), 100);
}

#[test]
fn a_hang_up_is_noticed() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        let clients: Vec<_> = (0..5).map(|_| socket(&stage, "").0).collect();
        stage.until(|engine| &engine.parked, 5);
        drop(clients);
        stage.until(|engine| &engine.parked, 0);
        until_subscribers(&stage, 0);
        // Also in the middle of a frame.
        let (mut client, _) = socket(&stage, "");
        client.get_mut().write_all(b"\x81").unwrap();
        stage.until(|engine| &engine.parked, 0);
        drop(client);
        stage.until(|engine| &engine.active, 0);
        assert_eq!(stage.drained(), 0, "{backend:?}");
    }
}

#[test]
fn silent_clients_are_pinged() {
    // A ping after ten minutes, and the end after as many.
    let stage = stage(BackendKind::Poll, 1, "poll = \"20m\"");
    let (mut alive, _) = socket(&stage, "");
    let (mut dead, _) = socket(&stage, "");
    let mut within = socket(&stage, "").0;
    within.get_mut().write_all(b"\x81").unwrap();
    until_subscribers(&stage, 3);
    stage.elapse(Duration::from_secs(8 * 60));
    publish(&stage, "first");
    assert_eq!(alive.read().unwrap(), Message::text("first"));
    // The one within a frame got its ping ten minutes after the message, and ends last.
    for (minutes, left) in [(7, Some(3)), (12, None), (12, Some(1))] {
        stage.elapse(Duration::from_secs(60 * minutes));
        assert_eq!(alive.read().unwrap(), Message::Ping("".into()));
        alive.flush().unwrap();
        if let Some(left) = left {
            until_subscribers(&stage, left);
        }
    }
    let mut rest = Vec::new();
    dead.get_mut().read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"\x81\x05first\x89\x00");
    rest.clear();
    within.get_mut().read_to_end(&mut rest).unwrap();
    assert!(rest.starts_with(b"\x81\x05first\x89\x00"), "{rest:?}");
    publish(&stage, "still there");
    assert_eq!(next(&mut alive), "still there");
    until_subscribers(&stage, 1);
}

#[test]
fn long_polls_distinguish_text_from_bytes() {
    let stage = stage(BACKENDS[2], 1, "");
    let (mut client, _) = socket(&stage, "");
    client.send(Message::text("a")).unwrap();
    next(&mut client);
    let mut poll = stage.connect();
    assert_eq!(messages(&poll.get("/c?after=0")), [(1, "a".to_owned())]);
    client.send(Message::binary(&b"b"[..])).unwrap();
    client.read().unwrap();
    let answer = poll.get("/c?after=1");
    let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(json["messages"], serde_json::json!([{ "id": 2, "base64": "Yg==" }]));
}
