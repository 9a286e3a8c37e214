//! The relay as a library: real sockets on both sides, on every back-end.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use superpoll_gateway::Address;
use superpoll_gateway::relay::{Counters, Options, Relay};
use superpoll_rt::{BackendKind, Runtime, time};

const BACKENDS: [BackendKind; 4] =
    [BackendKind::Select, BackendKind::Poll, BackendKind::Epoll, BackendKind::Adaptive];

/// What hangs fails.
const LIMIT: Duration = Duration::from_secs(30);

/// A relay on a thread of its own.
struct Running {
    address: Address,
    end: mpsc::Sender<()>,
    thread: JoinHandle<Counters>,
}

fn start(backend: BackendKind, listen: &str, to: &Address, options: Options) -> Running {
    let (end, ended) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let (listen, to) = (listen.parse().unwrap(), to.clone());
    let thread = thread::spawn(move || {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let relay = Relay::start(&runtime, &listen, &to, options, |_| {}).unwrap();
        tell.send(relay.listening().clone()).unwrap();
        let over = async {
            while ended.try_recv().is_err() {
                time::sleep(Duration::from_millis(1)).await;
            }
            relay.stop();
            assert_eq!(relay.drained(LIMIT).await, 0);
        };
        runtime.block_on(over).unwrap();
        relay.counters()
    });
    Running { address: told.recv().unwrap(), end, thread }
}

impl Running {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address.to_string()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// Lets all pairs end.
    fn counters(self) -> Counters {
        self.end.send(()).unwrap();
        self.thread.join().unwrap()
    }
}

fn upstream() -> (TcpListener, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    (listener, address)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn read(stream: &mut impl Read, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn rest(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn either_side_may_speak_and_end_first() {
    for backend in BACKENDS {
        let (listener, to) = upstream();
        let relay = start(backend, "127.0.0.1:0", &to, Options::default());
        let (mut client, mut server) = (relay.connect(), accept(&listener));
        client.write_all(b"question").unwrap();
        assert_eq!(read(&mut server, 8), b"question");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut server), b"");
        // Its own direction is still open.
        server.write_all(b"answer").unwrap();
        drop(server);
        assert_eq!(rest(&mut client), b"answer");

        let (mut client, mut server) = (relay.connect(), accept(&listener));
        server.write_all(b"welcome").unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut client), b"welcome");
        client.write_all(b"thanks").unwrap();
        drop(client);
        assert_eq!(rest(&mut server), b"thanks");

        // A client that ends before anything is known of the upstream.
        let client = relay.connect();
        client.shutdown(Shutdown::Write).unwrap();
        let mut server = accept(&listener);
        assert_eq!(rest(&mut server), b"");
        server.write_all(b"so be it").unwrap();
        drop(server);
        assert_eq!(rest(&mut &client), b"so be it");
        drop(client);

        let counters = relay.counters();
        assert_eq!((counters.accepted, counters.active, counters.broken), (3, 0, 0), "{backend:?}");
        assert_eq!((counters.bytes_up, counters.bytes_down), (14, 21), "{backend:?}");
    }
}

/// Bytes that no two places of a transfer have in the same order.
fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn much_both_ways_at_once_arrives_whole_and_is_spliced() {
    const LENGTH: usize = 10 << 20;
    let (one, other) = (pattern(LENGTH, 1), pattern(LENGTH, 2));
    for backend in BACKENDS {
        let (listener, to) = upstream();
        let relay = start(backend, "127.0.0.1:0", &to, Options::default());
        let (client, server) = (relay.connect(), accept(&listener));
        let (got_here, got_there) = thread::scope(|scope| {
            for (mut stream, bytes) in [(&client, &one), (&server, &other)] {
                scope.spawn(move || {
                    stream.write_all(bytes).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                });
            }
            let here = scope.spawn(|| rest(&mut &client));
            let there = scope.spawn(|| rest(&mut &server));
            (here.join().unwrap(), there.join().unwrap())
        });
        assert!(got_here == other && got_there == one, "{backend:?}");
        drop((client, server));
        let counters = relay.counters();
        let all = LENGTH as u64;
        assert_eq!((counters.bytes_up, counters.bytes_down), (all, all));
        assert!(counters.bytes_spliced > all, "{backend:?}: {counters:?}");
    }
}

#[test]
fn what_breaks_on_one_side_is_reset_on_the_other() {
    for backend in BACKENDS {
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
fn who_cannot_be_reached_costs_the_client_and_nothing_else() {
    for backend in BACKENDS {
        let (listener, to) = upstream();
        drop(listener);
        let relay = start(backend, "127.0.0.1:0", &to, Options::default());
        for speaks in [true, false] {
            let mut client = relay.connect();
            if speaks {
                // It may be gone already.
                let _ = client.write_all(b"question");
            }
            // With bytes that nobody has read it is a reset.
            assert!(!client.read(&mut [0]).is_ok_and(|count| count > 0));
        }
        let counters = relay.counters();
        assert_eq!((counters.accepted, counters.connect_failures), (2, 2), "{backend:?}");
    }
}

#[test]
fn unix_sockets_on_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let (front, back) = (folder.path().join("front"), folder.path().join("back"));
    let listener = UnixListener::bind(&back).unwrap();
    for backend in BACKENDS {
        let listen = format!("unix:{}", front.display());
        let relay = start(backend, &listen, &Address::Unix(back.clone()), Options::default());
        let mut client = UnixStream::connect(&front).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let bytes = pattern(1 << 20, 3);
        let got = thread::scope(|scope| {
            let got = scope.spawn(|| rest(&mut server));
            client.write_all(&bytes).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            got.join().unwrap()
        });
        assert!(got == bytes, "{backend:?}");
        server.write_all(b"answer").unwrap();
        drop(server);
        assert_eq!(rest(&mut client), b"answer");
        assert_eq!(relay.counters().active, 0);
        assert!(!front.exists());
    }
}

#[test]
fn idle_pairs_end_in_time_and_no_more_come_in_than_may() {
    let (listener, to) = upstream();
    let options = Options {
        idle_timeout: Some(Duration::from_millis(50)),
        max_connections: Some(1),
        ..Options::default()
    };
    let relay = start(BackendKind::Adaptive, "127.0.0.1:0", &to, options);
    let clients = [relay.connect(), relay.connect()];
    for mut client in clients {
        let mut server = accept(&listener);
        assert_eq!(rest(&mut client), b"");
        assert_eq!(rest(&mut server), b"");
    }
    let counters = relay.counters();
    assert_eq!((counters.accepted, counters.timed_out), (2, 2));
}
