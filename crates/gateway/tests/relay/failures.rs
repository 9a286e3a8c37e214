//! Connections that break, and upstreams that cannot be reached.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use superpoll_gateway::Address;
use superpoll_gateway::relay::{Options, Relay};
use superpoll_rt::{BackendKind, Runtime};

use super::groups::refuses;
use super::*;

#[test]
fn a_break_on_one_side_resets_the_other() {
    for backend in backends() {
        let (listener, to) = upstream();
        let relay = start(backend, "127.0.0.1:0", &to, Options::default());
        for client_breaks in [true, false] {
            let (mut client, mut server) = (relay.connect(), accept(&listener));
            client.write_all(b"question").unwrap();
            assert_eq!(read(&mut server, 8), b"question");
            server.write_all(b"answer").unwrap();
            let (breaks, mut stays, unread) =
                if client_breaks { (client, server, 0) } else { (server, client, 6) };
            if client_breaks {
                // Closing with unread bytes resets.
                breaks.peek(&mut [0]).unwrap();
            } else {
                read(&mut stays, unread);
                stays.write_all(b"more").unwrap();
                breaks.peek(&mut [0]).unwrap();
            }
            drop(breaks);
            let error = stays.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{backend:?} {client_breaks}");
        }
        assert_eq!(relay.counters().broken, 2, "{backend:?}");
    }
}

#[test]
fn an_unreachable_upstream_costs_only_that_client() {
    for backend in backends() {
        let (_socket, to) = refuses();
        let relay = start(backend, "127.0.0.1:0", &to, Options::default());
        for speaks in [true, false] {
            let mut client = relay.connect();
            if speaks {
                // It may be gone already.
                let _ = client.write_all(b"question");
            }
            // With unread bytes it is a reset.
            assert!(!client.read(&mut [0]).is_ok_and(|count| count > 0));
        }
        let counters = relay.counters();
        assert_eq!((counters.accepted, counters.connect_failures), (2, 2), "{backend:?}");
    }
}

#[test]
fn an_upstream_that_resets_was_there() {
    for backend in backends() {
        let (listener, to) = upstream();
        let relay = start(backend, "127.0.0.1:0", &to, Options::default());
        for speaks in [true, false] {
            let mut client = relay.connect();
            if speaks {
                client.write_all(b"question").unwrap();
            }
            let server = accept(&listener);
            socket2::SockRef::from(&server).set_linger(Some(Duration::ZERO)).unwrap();
            drop(server);
            let error = client.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{backend:?} {speaks}");
        }
        let counters = relay.counters();
        assert_eq!((counters.broken, counters.connect_failures), (2, 0), "{backend:?}");
    }
}

/// Two addresses with one port; the first refuses. Both ends are kept, so that the port stays ours.
fn second_address_only() -> (socket2::Socket, TcpListener, Address) {
    wait_for(|| {
        let (socket, Address::Tcp { port, .. }) = refuses() else { panic!("it is TCP") };
        // Another program may have the port at the second address.
        let listener = TcpListener::bind(("::1", port)).ok()?;
        Some((socket, listener, format!(":{port}").parse().unwrap()))
    })
}

#[test]
fn the_next_address_gets_all_that_the_client_has_sent() {
    for backend in backends() {
        for speculative in [true, false] {
            // 127.0.0.1 comes first.
            let (_socket, listener, to) = second_address_only();
            let options = Options { speculative, ..Options::default() };
            let relay = start(backend, "127.0.0.1:0", &to, options);
            for length in [0, 8, 1 << 20] {
                let bytes = pattern(length, 6);
                let mut client = relay.connect();
                let (got, client) = thread::scope(|scope| {
                    let bytes = &bytes;
                    let sent = scope.spawn(move || {
                        client.write_all(bytes).unwrap();
                        client.shutdown(Shutdown::Write).unwrap();
                        client
                    });
                    let mut server = accept(&listener);
                    let got = rest(&mut server);
                    server.write_all(b"answer").unwrap();
                    (got, sent.join().unwrap())
                });
                assert!(got == bytes, "{backend:?} {length}");
                assert_eq!(rest(&mut &client), b"answer");
            }
            assert!(relay.failures.try_recv().is_err(), "the second address is no failure");
            let counters = relay.counters();
            assert_eq!((counters.accepted, counters.connect_failures), (3, 0), "{backend:?}");
        }
    }
}

/// A listener whose queue is full: the kernel drops further clients.
pub(super) fn deaf() -> (socket2::Socket, Address, Vec<TcpStream>) {
    use socket2::{Domain, Socket, Type};
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut inside = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        inside.push(stream);
    }
    (listener, address.to_string().parse().unwrap(), inside)
}

#[test]
fn an_upstream_that_does_not_answer_is_given_up_in_time() {
    let (_listener, to, _inside) = deaf();
    for backend in backends() {
        for speaks in [true, false] {
            let connect_timeout = Duration::from_millis(50);
            let options = Options { connect_timeout, ..Options::default() };
            let relay = start(backend, "127.0.0.1:0", &to, options);
            let mut client = relay.connect();
            if speaks {
                client.write_all(b"question").unwrap();
            }
            assert!(!client.read(&mut [0]).is_ok_and(|count| count > 0));
            let failure = relay.failures.recv_timeout(LIMIT).unwrap();
            assert_eq!(failure, format!("connecting to {to}: no answer within 0.05 s"));
            assert_eq!(relay.counters().connect_failures, 1, "{backend:?}");
        }
    }
}

#[test]
fn failures_of_a_kind_are_rate_limited_and_all_are_counted() {
    let (_socket, to) = refuses();
    let relay = start(BackendKind::Adaptive, "127.0.0.1:0", &to, Options::default());
    for _ in 0..50 {
        assert!(!relay.connect().read(&mut [0]).is_ok_and(|count| count > 0));
    }
    let told = relay.failures.try_iter().count();
    assert!((1..50).contains(&told), "{told} of 50 were reported");
    assert_eq!(relay.counters().connect_failures, 50);
}

#[test]
fn a_socket_file_that_was_left_behind_is_replaced_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("front");
    let listen = Address::Unix(path.clone());
    let to: Address = "127.0.0.1:1".parse().unwrap();
    let runtime = Runtime::new().unwrap();
    let begin = || Relay::start(&runtime, &listen, &to, Options::default(), |_| {});

    let used = UnixListener::bind(&path).unwrap();
    let error = begin().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains("choose another address"), "{error}");
    // Closed, it leaves its file.
    drop(used);
    let relay = begin().unwrap();
    drop(UnixStream::connect(&path).unwrap());
    relay.stop();
    assert!(!path.exists());

    std::fs::write(&path, "precious").unwrap();
    assert_eq!(begin().unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn names_without_an_address_and_ports_that_cannot_be_are_refused_at_once() {
    let runtime = Runtime::new().unwrap();
    for (listen, to, reason) in [
        ("name.invalid:80", "127.0.0.1:1", "listening on name.invalid:80"),
        ("127.0.0.1:0", "127.0.0.1:0", "port 0 cannot be connected to"),
    ] {
        let (listen, to) = (listen.parse().unwrap(), to.parse().unwrap());
        let outcome = Relay::start(&runtime, &listen, &to, Options::default(), |_| {});
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
