//! Events that arrive at once, before the kernel has worked any of them off: the last bytes of a
//! stream and its end, many connections, bytes and an end at a descriptor that is polled. Each test
//! is left out where there is no io_uring.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use superpoll::operation::{Gain, Operation, Ticket};
use superpoll::{BackendKind, Events, Interest, Key, Mode, Poller, Watch};

// Other tests use the rest of it.
#[allow(dead_code)]
mod sys;

/// An event that has not come after this long never comes.
const NEVER: Duration = Duration::from_secs(10);
const ROUNDS: usize = 30;

fn poller() -> Option<Poller> {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return None;
    }
    Some(Poller::builder().backend(BackendKind::Uring).build().unwrap())
}

/// How the sender ends.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Shutdown,
    Close,
    /// With unread bytes, which the other side sees as a failure.
    Reset,
}

/// How the poller waits.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Wait {
    Blocking,
    Spinning,
    /// When an outer loop says so.
    Nested,
}

trait Stream: Read + Write + AsFd + Send + Sized + 'static {
    fn pair() -> (Self, Self);
    fn end_writing(&self);
}

impl Stream for UnixStream {
    fn pair() -> (Self, Self) {
        UnixStream::pair().unwrap()
    }
    fn end_writing(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

impl Stream for TcpStream {
    fn pair() -> (Self, Self) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }
    fn end_writing(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

/// Sends this many messages and ends. Returns the socket if it must live on.
fn send<S: Stream>(mut sender: S, messages: &[Vec<u8>], end: End) -> Option<S> {
    for message in messages {
        sender.write_all(message).unwrap();
    }
    if end == End::Shutdown {
        sender.end_writing();
        return Some(sender);
    }
    drop(sender);
    None
}

fn messages(count: usize, size: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| (0..size).map(|place| (n * 31 + place) as u8).collect()).collect()
}

fn wait(poller: &mut Poller, events: &mut Events, how: Wait) {
    match how {
        Wait::Blocking => poller.wait(events, Some(NEVER)),
        Wait::Spinning => poller.wait(events, Some(Duration::ZERO)),
        Wait::Nested => {
            let outer = poller.nest().unwrap().as_raw_fd();
            let start = Instant::now();
            while !sys::is_readable(outer) {
                assert!(start.elapsed() < NEVER, "the outer loop sleeps");
            }
            poller.wait(events, Some(Duration::ZERO))
        }
    }
    .unwrap();
}

/// Waits until a receive has ended, and returns all it has brought, and whether it has failed.
fn until_the_end(poller: &mut Poller, how: Wait) -> (Vec<u8>, bool) {
    let mut events = Events::with_limit(16);
    let start = Instant::now();
    let mut got = Vec::new();
    let mut ended = None;
    while ended.is_none() {
        assert!(start.elapsed() < NEVER, "no end after {} bytes", got.len());
        wait(poller, &mut events, how);
        for progress in events.progress() {
            assert!(ended.is_none(), "after the last: {progress:?}");
            match progress.outcome {
                Ok(Gain::Bytes(bytes)) if !progress.last => got.extend_from_slice(&bytes),
                Ok(Gain::Nothing) if progress.last => ended = Some(false),
                Err(_) if progress.last => ended = Some(true),
                _ => panic!("{progress:?}"),
            }
        }
    }
    (got, ended == Some(true))
}

fn receive(poller: &mut Poller, receiver: &impl AsFd) -> (Key, Ticket) {
    let key = sys::register(poller, receiver);
    (key, poller.start(key, Operation::ReceiveMany, 1).unwrap())
}

/// The end comes together with the bytes, before or after the kernel has received the operation.
fn ends_are_reported<S: Stream>() {
    let Some(mut poller) = poller() else { return };
    let mut events = Events::with_limit(4);
    let sizes = [(1, 1), (2, 1), (1, 5_000), (3, 4_096), (33, 4_096), (40, 4_096), (40, 1)];
    for how in [Wait::Blocking, Wait::Spinning, Wait::Nested] {
        for (round, (count, size)) in (0..ROUNDS).flat_map(|n| sizes.map(|size| (n, size))) {
            for end in [End::Shutdown, End::Close, End::Reset] {
                let (mut receiver, sender) = S::pair();
                let (key, ticket) = receive(&mut poller, &receiver);
                if round % 2 == 0 {
                    poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
                    assert_eq!(events.progress().count(), 0);
                }
                if end == End::Reset {
                    receiver.write_all(b"unread").unwrap();
                }
                let sent = messages(count, size);
                let kept = send(sender, &sent, end);
                let (got, failed) = until_the_end(&mut poller, how);
                assert_eq!(failed, end == End::Reset, "{how:?} {count} of {size}, {end:?}");
                // A reset may overtake them.
                assert!(sent.concat() == got || (failed && sent.concat().starts_with(&got)));
                assert!(poller.cancel_now(ticket).unwrap().is_empty());
                poller.deregister(key).unwrap();
                poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
                assert_eq!(events.progress().count(), 0, "reported twice");
                drop(kept);
            }
        }
    }
}

#[test]
fn the_end_of_a_unix_stream_is_reported_even_with_its_last_bytes() {
    ends_are_reported::<UnixStream>();
}

#[test]
fn the_end_of_a_tcp_stream_is_reported_even_with_its_last_bytes() {
    ends_are_reported::<TcpStream>();
}

#[test]
fn ends_are_reported_during_concurrent_writes() {
    let Some(mut poller) = poller() else { return };
    const STREAMS: usize = 200;
    const AT_ONCE: usize = 8;
    let (to_writer, streams) = std::sync::mpsc::channel::<(usize, UnixStream)>();
    let sizes = |number: usize| messages(1 + number * 7 % 37, 1 + number * 977 % 5_000);
    let writer = std::thread::spawn(move || {
        for (number, stream) in streams {
            // Each by a thread of its own, in its own time.
            std::thread::spawn(move || {
                let end = if number % 2 == 0 { End::Close } else { End::Shutdown };
                send(stream, &sizes(number), end)
            });
        }
    });
    let mut under_way: Vec<(usize, Key, UnixStream, Vec<u8>)> = Vec::new();
    let mut events = Events::with_limit(16);
    let (mut begun, mut ended) = (0, 0);
    let start = Instant::now();
    while ended < STREAMS {
        while begun < STREAMS && under_way.len() < AT_ONCE {
            let (receiver, sender) = UnixStream::pair().unwrap();
            let key = sys::register(&mut poller, &receiver);
            poller.start(key, Operation::ReceiveMany, begun as u64).unwrap();
            under_way.push((begun, key, receiver, Vec::new()));
            to_writer.send((begun, sender)).unwrap();
            begun += 1;
        }
        let rest = NEVER.saturating_sub(start.elapsed());
        assert!(!rest.is_zero(), "{ended} of {STREAMS} ends");
        poller.wait(&mut events, Some(rest)).unwrap();
        for progress in events.progress() {
            let place = under_way.iter().position(|one| one.0 as u64 == progress.token).unwrap();
            match progress.outcome {
                Ok(Gain::Bytes(bytes)) => under_way[place].3.extend_from_slice(&bytes),
                Ok(Gain::Nothing) if progress.last => {
                    let (number, key, _receiver, got) = under_way.swap_remove(place);
                    assert!(got == sizes(number).concat(), "{number}: {} bytes", got.len());
                    poller.deregister(key).unwrap();
                    ended += 1;
                }
                _ => panic!("{progress:?}"),
            }
        }
    }
    drop(to_writer);
    writer.join().unwrap();
}

#[test]
fn an_end_that_comes_while_many_messages_are_received_is_reported() {
    let Some(mut poller) = poller() else { return };
    // From 128 on the kernel does not count arrivals one by one.
    const MANY: usize = 140;
    let mut events = Events::with_limit(4);
    let (to_writer, streams) = std::sync::mpsc::channel::<(UnixStream, u32)>();
    let (written, is_written) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        for (mut stream, pause) in streams {
            for _ in 0..MANY {
                stream.write_all(b"x").unwrap();
            }
            written.send(()).unwrap();
            // About as long as the other thread takes to begin and to receive.
            (0..pause).for_each(|_| std::hint::spin_loop());
        }
    });
    for round in 0..400 {
        let (receiver, sender) = UnixStream::pair().unwrap();
        let (key, _) = receive(&mut poller, &receiver);
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        to_writer.send((sender, round * 7 % 400)).unwrap();
        while is_written.try_recv().is_err() {
            std::thread::yield_now();
        }
        let (got, failed) = until_the_end(&mut poller, Wait::Blocking);
        assert_eq!((got.len(), failed), (MANY, false));
        poller.deregister(key).unwrap();
    }
    drop(to_writer);
    writer.join().unwrap();
}

#[test]
fn a_busy_stream_does_not_delay_the_end_of_another_stream() {
    let Some(mut poller) = poller() else { return };
    let (busy, mut other) = UnixStream::pair().unwrap();
    receive(&mut poller, &busy);
    let (ending, sender) = UnixStream::pair().unwrap();
    let key = sys::register(&mut poller, &ending);
    poller.start(key, Operation::ReceiveMany, 2).unwrap();
    send(sender, &messages(40, 4_096), End::Close);
    let mut events = Events::with_limit(16);
    // There is something to report each time.
    for _ in 0..1_000 {
        other.write_all(b"x").unwrap();
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        if events.progress().any(|progress| progress.token == 2 && progress.last) {
            return;
        }
    }
    panic!("no end");
}

#[test]
fn connections_that_come_at_once_are_all_accepted() {
    let Some(mut poller) = poller() else { return };
    let path = std::env::temp_dir().join(format!("superpoll-ends-{}", std::process::id()));
    // Of a run that was killed, whose number this process has got.
    let _ = std::fs::remove_file(&path);
    let mut events = Events::with_limit(4);
    for (told, count) in
        [false, true].into_iter().flat_map(|told| [1, 2, 33, 100].map(|n| (told, n)))
    {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let unix = UnixListener::bind(&path).unwrap();
        let listeners = [tcp.as_fd(), unix.as_fd()].map(|fd| {
            let key = sys::register(&mut poller, fd);
            poller.start(key, Operation::AcceptMany, 1).unwrap();
            key
        });
        if told {
            poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        }
        let address = tcp.local_addr().unwrap();
        let mut clients: Vec<_> =
            (0..count).map(|_| TcpStream::connect(address).unwrap()).collect();
        let more: Vec<_> = (0..count).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let start = Instant::now();
        let mut accepted = Vec::new();
        while accepted.len() < 2 * count {
            assert!(start.elapsed() < NEVER, "{} of {}", accepted.len(), 2 * count);
            poller.wait(&mut events, Some(NEVER)).unwrap();
            accepted.extend(events.progress().map(|progress| progress.outcome.unwrap()));
        }
        std::fs::remove_file(&path).unwrap();
        for key in listeners {
            poller.deregister(key).unwrap();
        }
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        clients.clear();
        drop(more);
    }
}

#[test]
fn a_persistent_poll_reports_bytes_and_an_end_that_come_at_once() {
    let Some(mut poller) = poller() else { return };
    let mut events = Events::with_limit(4);
    for (round, mode) in (0..100).flat_map(|n| [Mode::Edge, Mode::Auto].map(|mode| (n, mode))) {
        let (receiver, sender) = UnixStream::pair().unwrap();
        let watch = Watch::new(Interest::READABLE | Interest::READ_CLOSED).mode(mode);
        let key = poller.register(&receiver, watch).unwrap();
        if round % 2 == 0 {
            poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
            assert!(events.is_empty());
        }
        let kept =
            send(sender, &messages(2, 10), if round % 4 < 2 { End::Close } else { End::Shutdown });
        poller.wait(&mut events, Some(NEVER)).unwrap();
        let event = events.find(key).unwrap();
        assert!(event.is_readable() && event.is_read_closed(), "{event:?}");
        poller.deregister(key).unwrap();
        drop(kept);
    }
}
