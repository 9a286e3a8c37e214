//! Descriptors whose error or hang-up lasts, because no task does or can do anything about it: they
//! cost an engine nothing, and their tasks learn of each arrival.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use superpoll_rt::time::{sleep, timeout};
use superpoll_rt::{AsyncFd, Direction, Runtime, next_turn, spawn};

use super::{each, sys, would_block};

/// Events that must come have come by then.
const LONG: Duration = Duration::from_secs(30);

/// Waits of an idle engine for as long as it is looked at.
const FEW: u64 = 20;

fn bind() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// The address of a port at which no socket listens.
fn closed_port() -> SocketAddr {
    bind().local_addr().unwrap()
}

/// Fails if an engine with nothing to do waits again and again.
async fn expect_idle(runtime: &Runtime, when: &str) {
    // The first reports of a state that lasts.
    sleep(Duration::from_millis(20)).await;
    let waits = || runtime.stats()[0].poller.waits;
    let before = waits();
    sleep(Duration::from_millis(50)).await;
    let waits = waits() - before;
    assert!(waits <= FEW, "{when}: {waits} waits");
}

/// A socket that can be watched, and a task that receives all datagrams.
fn receive(socket: UdpSocket) -> (Rc<AsyncFd<UdpSocket>>, Rc<std::cell::Cell<usize>>) {
    let socket = Rc::new(AsyncFd::new(socket).unwrap());
    let received = Rc::new(std::cell::Cell::new(0));
    let (own, count) = (socket.clone(), received.clone());
    spawn(async move {
        loop {
            let outcome = own.perform(Direction::Read, |socket| socket.recv(&mut [0; 8])).await;
            // An error of the queue is also returned once.
            count.set(count.get() + usize::from(outcome.is_ok()));
        }
    })
    .detach();
    (socket, received)
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let fulfilled = async {
        while !condition() {
            sleep(Duration::from_micros(100)).await;
        }
    };
    timeout(LONG, fulfilled).await.unwrap_or_else(|_| panic!("{what}"));
}

#[test]
fn an_error_that_is_not_taken_costs_an_engine_nothing() {
    each(async |runtime| {
        let (socket, sender) = (bind(), bind());
        sys::set_option(&socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1);
        let address = socket.local_addr().unwrap();
        let (socket, received) = receive(socket);
        // Busy at first, as one of several, so that an adaptive back-end has it in its array.
        let others: Vec<_> = (0..20).map(|_| bind()).collect();
        let addresses: Vec<_> = others.iter().map(|other| other.local_addr().unwrap()).collect();
        let _others: Vec<_> = others.into_iter().map(receive).collect();
        for _ in 0..200 {
            for address in addresses.iter().chain([&address]) {
                sender.send_to(b"x", address).unwrap();
            }
            next_turn().await;
            next_turn().await;
        }
        for round in 0..3 {
            socket.send_to(b"x", closed_port()).unwrap();
            expect_idle(runtime, &format!("error {round}")).await;
            let before = received.get();
            sender.send_to(b"x", address).unwrap();
            until("a datagram after an error", || received.get() > before).await;
            expect_idle(runtime, "a datagram after an error").await;
        }
        let spinning = &runtime.stats()[0].spinning;
        match runtime.backend() {
            "select" | "poll" => assert_eq!(*spinning, [socket.as_raw_fd()]),
            // The measured costs of calls decide which set has it, and a busy machine changes them.
            "adaptive" => assert!(spinning.iter().all(|fd| *fd == socket.as_raw_fd())),
            // The rest report an edge, and only once.
            _ => assert!(spinning.is_empty(), "{spinning:?}"),
        }
        // Another task takes the errors at last, and later ones come to it.
        for _ in 0..5 {
            while sys::take_error(&*socket).is_ok() {}
            socket.send_to(b"x", closed_port()).unwrap();
            let error = socket.perform(Direction::Read, |socket| sys::take_error(socket));
            timeout(LONG, error).await.expect("an error comes").unwrap();
        }
    });
}

#[test]
fn a_socket_that_is_not_connected_costs_an_engine_nothing() {
    each(async |runtime| {
        for direction in [Direction::Read, Direction::Write] {
            let socket = TcpStream::from(sys::tcp_socket());
            let socket = Rc::new(AsyncFd::new(socket).unwrap());
            let same = socket.clone();
            let waiting = spawn(async move { same.perform(direction, would_block).await });
            expect_idle(runtime, &format!("{direction:?}")).await;
            assert!(!waiting.is_finished());
            if matches!(runtime.backend(), "select" | "poll") {
                assert!(runtime.stats()[0].spinning.contains(&socket.as_raw_fd()));
            }
        }
    });
}

/// A socket whose sent packets come back as entries of the queue of errors, and the other end.
enum Notices {
    /// When each datagram was sent (`SO_TIMESTAMPING`).
    Stamps(UdpSocket),
    /// That the bytes of a stream are no longer needed (`MSG_ZEROCOPY`).
    Copies(TcpStream),
}

impl Notices {
    fn stamps() -> (UdpSocket, Notices) {
        let (one, other) = (bind(), bind());
        one.connect(other.local_addr().unwrap()).unwrap();
        other.connect(one.local_addr().unwrap()).unwrap();
        let flags = libc::SOF_TIMESTAMPING_TX_SOFTWARE
            | libc::SOF_TIMESTAMPING_SOFTWARE
            | libc::SOF_TIMESTAMPING_OPT_TSONLY;
        sys::set_option(&one, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags as i32);
        (one, Notices::Stamps(other))
    }

    fn copies() -> (TcpStream, Notices) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        sys::set_option(&one, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1);
        (one, Notices::Copies(listener.accept().unwrap().0))
    }

    /// Sends a byte from the other end.
    fn answer(&mut self) {
        match self {
            Notices::Stamps(socket) => assert_eq!(socket.send(b"x").unwrap(), 1),
            Notices::Copies(stream) => stream.write_all(b"x").unwrap(),
        }
    }

    /// Receives a byte at the other end. The entry of a stream comes after that.
    fn receive(&mut self) {
        match self {
            Notices::Stamps(socket) => assert_eq!(socket.recv(&mut [0]).unwrap(), 1),
            Notices::Copies(stream) => stream.read_exact(&mut [0]).unwrap(),
        }
    }
}

async fn notices_cost_nothing<S: std::os::fd::AsFd + 'static>(
    runtime: &Runtime,
    (socket, mut other): (S, Notices),
    send: fn(&S),
    read: fn(&S) -> io::Result<usize>,
) {
    let socket = Rc::new(AsyncFd::new(socket).unwrap());
    // A task takes each of them.
    for _ in 0..50 {
        send(&socket);
        other.receive();
        let notice = socket.perform(Direction::Read, |socket| sys::take_error(socket));
        timeout(LONG, notice).await.expect("a notice comes").unwrap();
    }
    assert!(runtime.stats()[0].spinning.is_empty(), "a task makes use of each report");
    // No task does, and bytes arrive all the same.
    for round in 0..3 {
        let same = socket.clone();
        let reading = spawn(async move { same.perform(Direction::Read, read).await });
        next_turn().await;
        send(&socket);
        other.receive();
        expect_idle(runtime, &format!("notice {round}")).await;
        assert!(!reading.is_finished());
        other.answer();
        let got = timeout(LONG, reading).await.expect("a byte arrives after a notice").unwrap();
        assert_eq!(got.unwrap(), 1);
    }
    while sys::take_error(&**socket).is_ok() {}
    let error = read(&socket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn time_stamps_that_are_not_read_cost_an_engine_nothing() {
    each(async |runtime| {
        let send = |socket: &UdpSocket| assert_eq!(socket.send(b"x").unwrap(), 1);
        let read = |socket: &UdpSocket| socket.recv(&mut [0]);
        notices_cost_nothing(runtime, Notices::stamps(), send, read).await;
    });
}

#[test]
fn completions_of_writes_without_copies_that_are_not_read_cost_an_engine_nothing() {
    each(async |runtime| {
        let send = |socket: &TcpStream| sys::send_without_copy(socket);
        let read = |mut socket: &TcpStream| socket.read(&mut [0]);
        notices_cost_nothing(runtime, Notices::copies(), send, read).await;
    });
}
