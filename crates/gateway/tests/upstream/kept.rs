//! The connections to servers that are kept between requests.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::gateway::{Gateway, MOST, config};
use crate::origin::{Client, Origin};

/// As many clients as a busy server has, each with one request at a time: by default, hardly any
/// of their requests after the first costs a new connection.
#[test]
fn clients_of_a_busy_server_make_no_new_connections() {
    const CLIENTS: usize = 128;
    const ROUNDS: usize = 3;
    for backend in MOST {
        // A round is answered when all of its requests are there, so all have connections.
        let together = Arc::new(Barrier::new(CLIENTS));
        let origin = Origin::start(move |line| {
            for _ in 0..ROUNDS {
                line.request()?;
                together.wait();
                line.answer("a")?;
            }
            Ok(())
        });
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let rounds = Arc::new(Barrier::new(CLIENTS));
        let clients = (0..CLIENTS).map(|_| {
            let (mut client, rounds) = (Client::connect(&gateway.address), rounds.clone());
            thread::spawn(move || {
                for _ in 0..ROUNDS {
                    rounds.wait();
                    assert_eq!(client.get("/").text(), "a");
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.join().unwrap();
        }
        // A client may ask again before the connection of its last request is kept.
        let opened = origin.connections();
        assert!((CLIENTS..CLIENTS * 3 / 2).contains(&opened), "{backend:?}: {opened}");
    }
}

/// A connection that its server is about to close is no place for a request.
#[test]
fn connections_end_before_their_server_ends_them() {
    for backend in MOST {
        let closing = Arc::new(Barrier::new(2));
        let closes = closing.clone();
        let origin = Origin::start(move |line| {
            loop {
                let is_last = line.request()?.line().contains("/last");
                line.answer("a")?;
                if is_last {
                    closes.wait();
                    line.stream.end_writing();
                    closes.wait();
                    return Ok(());
                }
            }
        });
        let gateway = Gateway::start(backend, &config(&[&origin.address], "", ""));
        let mut client = Client::connect(&gateway.address);
        let mut is_reused_later = || {
            assert_eq!(client.get("/").text(), "a");
            let opened = origin.connections();
            gateway.elapse(Duration::from_secs(40));
            assert_eq!(client.get("/").text(), "a");
            origin.connections() == opened
        };
        assert!(is_reused_later());
        // Two connections have to agree; on a slow machine it may be others.
        let mut others = Client::connect(&gateway.address);
        let is_learned = (0..20).any(|_| {
            assert_eq!(others.get("/last").text(), "a");
            gateway.elapse(Duration::from_secs(6));
            closing.wait();
            closing.wait();
            gateway.elapse(Duration::from_secs(6));
            !is_reused_later()
        });
        assert!(is_learned, "{backend:?}");
    }
}
