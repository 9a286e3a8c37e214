//! The relay as a library: real sockets on both sides, on every back-end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use superpoll_gateway::Address;
use superpoll_gateway::relay::{Counters, Failure, Options, Relay};
use superpoll_rt::{BackendKind, Runtime, time};
use superpoll_test_support::{find, until};

mod ends;
mod failures;
mod groups;
mod limits;
mod logged;
mod routes;
mod sealed;
mod served;
mod tls;
mod urgent;

/// Those that this machine has.
fn backends() -> impl Iterator<Item = BackendKind> {
    let all = [
        BackendKind::Select,
        BackendKind::Poll,
        BackendKind::Epoll,
        BackendKind::Adaptive,
        BackendKind::Uring,
    ];
    all.into_iter().filter(|backend| backend.is_available())
}

/// The time after which a test that hangs fails.
const LIMIT: Duration = Duration::from_secs(30);

/// What a test has its relay do.
enum Order {
    /// Lets time pass, and answers.
    Elapse(Duration, mpsc::Sender<()>),
    End,
}

/// A relay on a thread of its own.
struct Running {
    address: Address,
    orders: mpsc::Sender<Order>,
    thread: JoinHandle<Counters>,
    failures: mpsc::Receiver<String>,
}

fn start(backend: BackendKind, listen: &str, to: &Address, options: Options) -> Running {
    let (orders, given) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let (fail, failures) = mpsc::channel();
    let (listen, to) = (listen.parse().unwrap(), to.clone());
    let thread = thread::spawn(move || {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let report = move |failure: &Failure| fail.send(failure.to_string()).unwrap();
        let relay = Relay::start(&runtime, &listen, &to, options, report).unwrap();
        tell.send(relay.listening().clone()).unwrap();
        let over = async {
            loop {
                match given.try_recv() {
                    Ok(Order::Elapse(duration, done)) => {
                        time::pause();
                        time::sleep(duration).await;
                        time::resume();
                        done.send(()).unwrap();
                    }
                    Err(mpsc::TryRecvError::Empty) => time::sleep(Duration::from_millis(1)).await,
                    Ok(Order::End) | Err(mpsc::TryRecvError::Disconnected) => break,
                }
            }
            relay.stop();
            assert_eq!(relay.drained(LIMIT).await, 0);
        };
        runtime.block_on(over);
        relay.counters()
    });
    Running { address: told.recv().unwrap(), orders, thread, failures }
}

impl Running {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address.to_string()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// Lets this much time pass for the relay: each of its timers that is due by then fires, in its
    /// turn, after everything that has arrived before.
    fn elapse(&self, duration: Duration) {
        let (done, over) = mpsc::channel();
        self.orders.send(Order::Elapse(duration, done)).unwrap();
        over.recv_timeout(LIMIT).expect("the time passes");
    }

    /// Lets all pairs end.
    fn counters(self) -> Counters {
        self.orders.send(Order::End).unwrap();
        self.thread.join().unwrap()
    }
}

fn upstream() -> (TcpListener, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    (listener, address)
}

/// Lets a listener wait for a connection no longer than [`LIMIT`].
fn limit(listener: &impl AsFd) {
    socket2::SockRef::from(listener).set_read_timeout(Some(LIMIT)).unwrap();
}

fn accept(listener: &TcpListener) -> TcpStream {
    limit(listener);
    let (stream, _) = listener.accept().expect("a connection comes in time");
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Waits until a condition holds.
#[track_caller]
fn wait(is_so: impl FnMut() -> bool) {
    until("the condition holds", is_so);
}

/// Waits until there is a value, and returns it.
#[track_caller]
fn wait_for<T>(search: impl FnMut() -> Option<T>) -> T {
    find("there is a value", search)
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
    for backend in backends() {
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
    for backend in backends() {
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
        // The share depends on the order in which the threads run.
        assert!(counters.bytes_spliced > 0, "{backend:?}: {counters:?}");
    }
}

/// A stream of whichever kind.
trait Duplex: Read + Write + Send {
    fn end(&self);
}

impl Duplex for TcpStream {
    fn end(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

impl Duplex for UnixStream {
    fn end(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

#[test]
fn tcp_and_unix_in_every_combination_with_bulk_one_way_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let (front, back) = (folder.path().join("front"), folder.path().join("back"));
    let unix = UnixListener::bind(&back).unwrap();
    limit(&unix);
    let (tcp, port) = upstream();
    let (question, answer) = (pattern(3 << 20, 3), pattern(2 << 20, 4));
    for backend in backends() {
        for [unix_front, unix_back] in [[true, true], [true, false], [false, true]] {
            let listen = match unix_front {
                true => format!("unix:{}", front.display()),
                false => "127.0.0.1:0".to_owned(),
            };
            let to = if unix_back { Address::Unix(back.clone()) } else { port.clone() };
            let relay = start(backend, &listen, &to, Options::default());
            let mut client: Box<dyn Duplex> = match unix_front {
                true => Box::new(UnixStream::connect(&front).unwrap()),
                false => Box::new(relay.connect()),
            };
            let mut server: Box<dyn Duplex> = match unix_back {
                true => Box::new(unix.accept().unwrap().0),
                false => Box::new(accept(&tcp)),
            };
            for bytes in [&question, &answer] {
                // Each way alone, the other one being open before and closed after it.
                let got = thread::scope(|scope| {
                    let got = scope.spawn(|| rest(&mut server));
                    client.write_all(bytes).unwrap();
                    client.end();
                    got.join().unwrap()
                });
                assert!(got == *bytes, "{backend:?} {unix_front} {unix_back}");
                std::mem::swap(&mut client, &mut server);
            }
            drop((client, server));
            let counters = relay.counters();
            let lengths = (question.len() as u64, answer.len() as u64);
            assert_eq!((counters.bytes_up, counters.bytes_down), lengths, "{backend:?}");
            assert_eq!((counters.active, counters.broken), (0, 0), "{backend:?}");
            assert!(!front.exists());
        }
    }
}

#[test]
fn without_speculation_it_does_the_same() {
    for backend in backends() {
        let (listener, to) = upstream();
        let options = Options { speculative: false, ..Options::default() };
        let relay = start(backend, "127.0.0.1:0", &to, options);
        let bytes = pattern(1 << 20, 5);
        for _ in 0..3 {
            let (mut client, mut server) = (relay.connect(), accept(&listener));
            client.write_all(b"question").unwrap();
            assert_eq!(read(&mut server, 8), b"question");
            let got = thread::scope(|scope| {
                let got = scope.spawn(|| rest(&mut client));
                server.write_all(&bytes).unwrap();
                drop(server);
                got.join().unwrap()
            });
            assert!(got == bytes, "{backend:?}");
        }
        assert_eq!(relay.counters().broken, 0, "{backend:?}");
    }
}
