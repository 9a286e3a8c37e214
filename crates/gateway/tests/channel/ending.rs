//! What subscribers are told when the server ends.

use tungstenite::Message;
use tungstenite::protocol::frame::coding::CloseCode;

use crate::clients::{Events, ask, field, publish, socket, stage, until_subscribers};
use crate::stage::BACKENDS;

#[test]
fn all_are_told_that_it_ends() {
    for backend in BACKENDS {
        for workers in [1, 2] {
            let stage = stage(backend, workers, "");
            publish(&stage, "old");
            let (mut parked, _) = socket(&stage, "");
            let (mut within, _) = socket(&stage, "");
            let mut poll = stage.connect();
            ask(&mut poll, "");
            stage.until(|engine| &engine.parked, 3);
            std::io::Write::write_all(within.get_mut(), b"\x81").unwrap();
            stage.until(|engine| &engine.parked, 2);
            let (mut events, _) = Events::new(&stage, "", "");
            stage.drain();
            for client in [&mut parked, &mut within] {
                match client.read() {
                    Ok(Message::Close(Some(close))) => assert_eq!(close.code, CloseCode::Away),
                    other => panic!("{backend:?}: {other:?}"),
                }
                while client.read().is_ok() {}
            }
            let answer = poll.answer();
            assert_eq!((answer.status, field(&answer, "channel-next")), (204, "1"));
            assert_eq!(field(&answer, "connection"), "close");
            assert!(poll.is_closed());
            assert_eq!(events.next(), None);
            assert!(events.is_closed());
            until_subscribers(&stage, 0);
            drop((parked, within));
            assert_eq!(stage.drained(), 0, "{backend:?}");
        }
    }
}
