//! Thousands of subscribers, in a process of their own: other tests would find its descriptors'
//! numbers too large for select.

#[path = "../channel/clients.rs"]
#[expect(dead_code, reason = "shared with the other tests of channels")]
mod clients;
#[path = "../serve/stage.rs"]
#[expect(dead_code, reason = "shared with the tests of the web server")]
mod stage;

use crate::clients::{ask, messages, next, publish, socket, stage, until_subscribers};
use crate::stage::BACKENDS;

#[test]
fn a_thousand_subscribers_of_each_kind_all_get_the_message() {
    let limit = superpoll::limits::raise_descriptors().unwrap();
    if limit < 5000 {
        println!("skipped: {limit} descriptors are too few");
        return;
    }
    for backend in BACKENDS {
        // select has room for fewer, of both ends in one process.
        let each = if backend == BACKENDS[0] { 200 } else { 1000 };
        let stage = stage(backend, 2, "");
        let mut sockets: Vec<_> = (0..each).map(|_| socket(&stage, "").0).collect();
        let mut polls: Vec<_> = (0..each).map(|_| stage.connect()).collect();
        for poll in &mut polls {
            ask(poll, "");
        }
        until_subscribers(&stage, 2 * each);
        stage.until(|engine| &engine.active, 0);
        stage.until(|engine| &engine.parked, 2 * each as u64);
        publish(&stage, "to all");
        for socket in &mut sockets {
            assert_eq!(next(socket), "to all", "{backend:?}");
        }
        for poll in &mut polls {
            assert_eq!(messages(&poll.answer()), [(1, "to all".to_owned())], "{backend:?}");
            ask(poll, "?after=1");
        }
        publish(&stage, "again");
        for socket in &mut sockets {
            assert_eq!(next(socket), "again", "{backend:?}");
        }
        for poll in &mut polls {
            assert_eq!(messages(&poll.answer()), [(2, "again".to_owned())], "{backend:?}");
        }
        drop((sockets, polls));
        stage.until(|engine| &engine.parked, 0);
        until_subscribers(&stage, 0);
    }
}
