//! The messages that subscribers get when the server ends.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, WebSocket};

use crate::clients::{Events, ask, field, publish, socket, stage, until_subscribers};
use crate::stage::BACKENDS;

fn goes_away(client: &mut WebSocket<TcpStream>) {
    match client.read() {
        Ok(Message::Close(Some(close))) => assert_eq!(close.code, CloseCode::Away),
        other => panic!("{other:?}"),
    }
    while client.read().is_ok() {}
}

#[test]
fn all_subscribers_learn_that_the_server_ends() {
    for backend in BACKENDS {
        for workers in [1, 2] {
            let stage = stage(backend, workers, "");
            publish(&stage, "old");
            let (mut parked, _) = socket(&stage, "");
            let mut poll = stage.connect();
            ask(&mut poll, "");
            let (mut events, _) = Events::new(&stage, "", "");
            stage.until(|engine| &engine.parked, 3);
            let (mut old, _) = Events::by("1.0", &stage, "", "");
            stage.drain();
            goes_away(&mut parked);
            let answer = poll.answer();
            assert_eq!((answer.status, field(&answer, "channel-next")), (204, "1"));
            assert_eq!(field(&answer, "connection"), "close");
            assert!(poll.is_closed());
            assert_eq!((events.next(), old.next()), (None, None));
            assert!(events.is_closed() && old.is_closed());
            until_subscribers(&stage, 0);
            drop(parked);
            assert_eq!(stage.drained(), 0, "{backend:?}");
        }
    }
}

#[test]
fn unresponsive_clients_do_not_delay_the_end() {
    let stage = stage(BACKENDS[3], 1, "");
    let (mut client, _) = socket(&stage, "");
    stage.until(|engine| &engine.parked, 1);
    // The beginning of a frame; the server's last words become a part of it.
    client.get_mut().write_all(b"\x81").unwrap();
    stage.until(|engine| &engine.parked, 0);
    stage.drain();
    stage.elapse(Duration::from_secs(5));
    goes_away(&mut client);
    assert_eq!(stage.drained(), 0);
}
