//! Limits of time and number.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use superpoll_gateway::relay::Options;
use superpoll_rt::BackendKind;

use super::*;

#[test]
fn idle_pairs_end_in_time_and_no_more_come_in_than_may() {
    let (listener, to) = upstream();
    let options = Options {
        idle_timeout: Some(Duration::from_secs(60)),
        max_connections: Some(1),
        ..Options::default()
    };
    let relay = start(BackendKind::Adaptive, "127.0.0.1:0", &to, options);
    let clients = [relay.connect(), relay.connect()];
    for mut client in clients {
        let mut server = accept(&listener);
        relay.elapse(Duration::from_secs(65));
        assert_eq!(rest(&mut client), b"");
        assert_eq!(rest(&mut server), b"");
    }
    let counters = relay.counters();
    assert_eq!((counters.accepted, counters.timed_out), (2, 2));
}

#[test]
fn occasional_traffic_keeps_a_pair_alive() {
    const LIMIT: Duration = Duration::from_secs(600);
    for backend in backends() {
        let (listener, to) = upstream();
        let options = Options { idle_timeout: Some(LIMIT), ..Options::default() };
        let relay = start(backend, "127.0.0.1:0", &to, options);
        let (mut client, mut server) = (relay.connect(), accept(&listener));
        for _ in 0..3 {
            server.write_all(b"tick").unwrap();
            assert_eq!(read(&mut client, 4), b"tick", "{backend:?}");
            relay.elapse(LIMIT / 10 * 9);
        }
        client.write_all(b"last").unwrap();
        assert_eq!(read(&mut server, 4), b"last", "{backend:?}");
        drop((client, server));
        assert_eq!(relay.counters().timed_out, 0, "{backend:?}");
    }
}

#[test]
fn a_slow_reader_is_waited_for_and_the_other_direction_goes_on() {
    for backend in backends() {
        let (listener, to) = upstream();
        let relay = start(backend, "127.0.0.1:0", &to, Options::default());
        let (mut client, server) = (relay.connect(), accept(&listener));
        server.set_nonblocking(true).unwrap();
        let bytes = pattern(64 << 10, 7);
        let mut sent = 0_u64;
        // Until no byte moves any more, although the relay takes as many as it can for some time.
        let mut still = 0;
        while still < 20 {
            assert!(sent < 1 << 30, "{backend:?}: the relay takes all bytes");
            match (&server).write(&bytes[sent as usize % bytes.len()..]) {
                Ok(count) => (sent, still) = (sent + count as u64, 0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    still += 1;
                    thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        }
        // The reader is stuck, and is heard all the same.
        client.write_all(b"wait").unwrap();
        server.set_nonblocking(false).unwrap();
        assert_eq!(read(&mut &server, 4), b"wait", "{backend:?}");
        server.shutdown(Shutdown::Write).unwrap();
        let got = rest(&mut client);
        assert_eq!(got.len() as u64, sent, "{backend:?}");
        assert!(got.chunks(bytes.len()).all(|chunk| *chunk == bytes[..chunk.len()]), "{backend:?}");
        drop((client, server));
        relay.counters();
    }
}

#[test]
fn a_stopped_relay_accepts_no_client_and_finishes_all() {
    for backend in backends() {
        let (listener, to) = upstream();
        let relay = start(backend, "127.0.0.1:0", &to, Options::default());
        let (mut client, mut server) = (relay.connect(), accept(&listener));
        relay.orders.send(Order::End).unwrap();
        wait(|| TcpStream::connect(relay.address.to_string()).is_err());
        client.write_all(b"still here").unwrap();
        assert_eq!(read(&mut server, 10), b"still here", "{backend:?}");
        // The client that got in meanwhile is still in the listener's queue.
        drop((client, server, listener));
        assert_eq!(relay.thread.join().unwrap().active, 0, "{backend:?}");
    }
}
