//! Hundreds and thousands of clients: other tests would find the numbers of their descriptors too
//! large for `select`.

use superpoll_test_support::alone;

use crate::clients::{ask, messages, next, publish, socket, stage, until_subscribers};
use crate::stage::{BACKENDS, Stage, folder};

#[test]
fn a_thousand_subscribers_of_each_kind_all_get_the_message() {
    alone(|| {
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
    });
}

#[test]
fn messages_of_more_channels_than_one_turn_serves_all_arrive_in_order() {
    alone(|| {
        superpoll::limits::raise_descriptors().unwrap();
        let text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[timeouts]\npark = \"40ms\"\n\
                [[hosts]]\n[[hosts.routes]]\npath = \"/c/{room}\"\nchannel = {}\n";
        // Each turn of an engine serves 256 subscribers.
        let stage = Stage::new(BACKENDS[3], 1, text);
        let room = |number: usize| format!("/{number}");
        let mut subscribers: Vec<_> =
            (0..400).map(|number| socket(&stage, &room(number)).0).collect();
        let mut client = stage.connect();
        for message in 0..3 {
            let mut burst = String::new();
            for number in 0..subscribers.len() {
                let data = format!("{message} {number}");
                let length = data.len();
                burst += &format!(
                    "POST /c{} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{data}",
                    room(number)
                );
            }
            client.send(burst);
        }
        for (number, subscriber) in subscribers.iter_mut().enumerate() {
            for message in 0..3 {
                assert_eq!(next(subscriber), format!("{message} {number}"));
            }
        }
    });
}

#[test]
fn hundreds_are_parked_on_two_engines_and_all_go_on() {
    alone(|| {
        superpoll::limits::raise_descriptors().unwrap();
        let folder = folder();
        let stage = Stage::of_files(BACKENDS[3], 2, folder.path());
        let mut clients: Vec<_> = (0..400).map(|_| stage.connect()).collect();
        for _ in 0..2 {
            for client in &mut clients {
                assert_eq!(client.get("/small.txt").status, 200);
            }
            stage.until(|engine| &engine.parked, 400);
        }
        stage.until(|engine| &engine.active, 0);
        drop(clients);
        stage.until(|engine| &engine.parked, 0);
        assert_eq!(stage.drained(), 0);
    });
}
