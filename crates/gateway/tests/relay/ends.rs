//! Ends that come right behind the last bytes, or with them.

use std::io::Write;
use std::net::Shutdown;
use std::thread;

use socket2::SockRef;
use superpoll_gateway::relay::Options;

use super::*;

/// Relays through a relay that tries first, and through one that waits for everything.
fn each(mut done: impl FnMut(&Running, &TcpListener, &str)) {
    for backend in backends() {
        for speculative in [true, false] {
            let (listener, to) = upstream();
            let options = Options { speculative, ..Options::default() };
            let relay = start(backend, "127.0.0.1:0", &to, options);
            done(&relay, &listener, &format!("{backend:?} {speculative}"));
            drop(listener);
            let counters = relay.counters();
            assert_eq!((counters.active, counters.broken), (0, 0), "{backend:?} {speculative}");
        }
    }
}

#[test]
fn bytes_in_many_small_pieces_right_before_the_end_are_all_there() {
    each(|relay, listener, which| {
        for round in 0..20 {
            let bytes = pattern(997 + 61 * round, round as u64);
            let (mut client, mut server) = (relay.connect(), accept(listener));
            server.set_nodelay(true).unwrap();
            client.write_all(b"question").unwrap();
            assert_eq!(read(&mut server, 8), b"question");
            let got = thread::scope(|scope| {
                let got = scope.spawn(|| rest(&mut client));
                for (number, piece) in bytes.chunks(1 + round % 13).enumerate() {
                    server.write_all(piece).unwrap();
                    if number % 16 == round % 16 {
                        thread::yield_now();
                    }
                }
                // Half of it, or all.
                match round % 2 {
                    0 => server.shutdown(Shutdown::Write).unwrap(),
                    _ => drop(std::mem::replace(&mut server, accept_own())),
                }
                got.join().unwrap()
            });
            assert!(got == bytes, "{which} {round}: {} of {}", got.len(), bytes.len());
            if round % 2 == 0 {
                // The other direction is still open.
                client.write_all(b"thanks").unwrap();
                assert_eq!(read(&mut server, 6), b"thanks", "{which}");
            }
        }
    });
}

/// A placeholder stream.
fn accept_own() -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    TcpStream::connect(listener.local_addr().unwrap()).unwrap()
}

#[test]
fn an_end_behind_more_than_a_buffer_loses_nothing_of_it() {
    each(|relay, listener, which| {
        // Around one and two buffers of the relay's, and many.
        for length in [16_383, 16_384, 16_385, 32_768, 32_769, 100_000] {
            let bytes = pattern(length, 8);
            let (mut client, mut server) = (relay.connect(), accept(listener));
            client.write_all(b"question").unwrap();
            assert_eq!(read(&mut server, 8), b"question");
            // All of it is there, and the end, before the relay can have read much.
            server.write_all(&bytes).unwrap();
            drop(server);
            let got = rest(&mut client);
            assert!(got == bytes, "{which}: {} of {length}", got.len());
        }
    });
}

#[test]
fn bytes_behind_an_urgent_byte_are_not_mistaken_for_the_end() {
    each(|relay, listener, which| {
        for round in 0..10 {
            let (mut client, mut server) = (relay.connect(), accept(listener));
            client.write_all(b"question").unwrap();
            assert_eq!(read(&mut server, 8), b"question");
            server.write_all(b"before").unwrap();
            SockRef::from(&server).send_out_of_band(b"!").unwrap();
            server.write_all(b"behind").unwrap();
            match round % 2 {
                0 => server.shutdown(Shutdown::Write).unwrap(),
                _ => drop(server),
            }
            // The urgent byte is not part of the stream, and is not passed on.
            assert_eq!(rest(&mut client), b"beforebehind", "{which}");
        }
    });
}

#[test]
fn a_reset_behind_the_last_bytes_is_no_end() {
    for backend in backends() {
        for speculative in [true, false] {
            let (listener, to) = upstream();
            let options = Options { speculative, ..Options::default() };
            let relay = start(backend, "127.0.0.1:0", &to, options);
            for _ in 0..10 {
                let (mut client, mut server) = (relay.connect(), accept(&listener));
                client.write_all(b"question").unwrap();
                assert_eq!(read(&mut server, 8), b"question");
                SockRef::from(&server).set_linger(Some(Duration::ZERO)).unwrap();
                server.write_all(b"part of an answer").unwrap();
                drop(server);
                let mut got = Vec::new();
                let error = client.read_to_end(&mut got).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{backend:?}");
                assert!(b"part of an answer".starts_with(&got), "{backend:?}");
            }
            assert_eq!(relay.counters().broken, 10, "{backend:?} {speculative}");
        }
    }
}
