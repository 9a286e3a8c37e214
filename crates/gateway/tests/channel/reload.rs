//! Channels whose configuration changes.

use tungstenite::Message;
use tungstenite::protocol::frame::coding::CloseCode;

use crate::clients::{Events, ask, messages, next, publish, socket, stage, text, until_options};
use crate::stage::BACKENDS;

#[test]
fn a_channel_that_stays_keeps_its_messages_and_subscribers() {
    for backend in BACKENDS {
        let stage = stage(backend, 2, "");
        publish(&stage, "before");
        let (mut client, _) = socket(&stage, "");
        let mut poll = stage.connect();
        ask(&mut poll, "");
        stage.until(|engine| &engine.parked, 2);
        stage.change(&text("message_bytes = \"5\""));
        until_options(&stage, |channel| channel.message_bytes == 5);
        let mut other = stage.connect();
        other.send("POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\nlonger");
        assert_eq!(other.answer().status, 413, "{backend:?}");
        let id = publish(&stage, "after");
        assert_eq!(next(&mut client), "after", "{backend:?}");
        let answer = stage.connect().get("/c?after=0");
        let all = messages(&answer);
        assert_eq!(all.first().unwrap(), &(1, "before".to_owned()), "{backend:?}");
        assert_eq!(all.last().unwrap(), &(id, "after".to_owned()));
        assert!(messages(&poll.answer())[0].0 > 1);
    }
}

#[test]
fn the_subscribers_of_a_removed_channel_are_disconnected() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        let (mut client, _) = socket(&stage, "");
        let mut poll = stage.connect();
        ask(&mut poll, "");
        let (mut events, _) = Events::new(&stage, "", "");
        let (mut old, _) = Events::by("1.0", &stage, "", "");
        stage.until(|engine| &engine.parked, 3);
        stage.change(&text("").replace("/c", "/other"));
        match client.read() {
            Ok(Message::Close(Some(close))) => assert_eq!(close.code, CloseCode::Away),
            other => panic!("{backend:?}: {other:?}"),
        }
        assert_eq!(poll.answer().status, 204);
        assert_eq!((events.next(), old.next()), (None, None));
        assert!(events.is_closed());
        assert_eq!(stage.connect().get("/c?wait=0").status, 404);
        assert_eq!(stage.connect().get("/other?wait=0").status, 204);
    }
}
