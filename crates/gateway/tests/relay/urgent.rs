//! Urgent bytes of a client or an upstream, at which reads end: they are not passed on, and hold up
//! nothing behind them.

use std::io::Write;
use std::net::TcpStream;
use std::thread;

use socket2::SockRef;
use superpoll_gateway::relay::Options;

use super::{accept, backends, pattern, read, start, upstream};

/// Sends bytes with an urgent one in the middle.
fn send(mut from: &TcpStream, bytes: &[u8]) {
    let (one, other) = bytes.split_at(bytes.len() / 2);
    from.write_all(one).unwrap();
    SockRef::from(from).send_out_of_band(b"!").unwrap();
    from.write_all(other).unwrap();
}

#[test]
fn bytes_behind_an_urgent_byte_are_passed_on_at_once() {
    for backend in backends() {
        let (listener, to) = upstream();
        let relay = start(backend, "127.0.0.1:0", &to, Options::default());
        let (mut client, mut server) = (relay.connect(), accept(&listener));
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
        }
        // Short ones, then transfers that are spliced, and short ones again.
        for length in [6, 6, 6, 200_000, 3_000_000, 6] {
            let bytes = pattern(length, length as u64);
            client.write_all(b"w").unwrap();
            assert_eq!(read(&mut server, 1), b"w", "{backend:?}");
            server.write_all(b"r").unwrap();
            assert_eq!(read(&mut client, 1), b"r", "{backend:?}");
            for (from, to) in [(&client, &server), (&server, &client)] {
                let mut to = to;
                let got = thread::scope(|scope| {
                    scope.spawn(|| send(from, &bytes));
                    read(&mut to, length)
                });
                assert!(got == bytes, "{backend:?}: {length} bytes");
            }
        }
        drop((client, server));
        relay.counters();
    }
}
