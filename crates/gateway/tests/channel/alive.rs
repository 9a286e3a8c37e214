//! WebSockets of slow clients, and of clients that have stopped.

use std::fmt::Debug;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use superpoll_gateway::channel::Hub;
use superpoll_rt::BackendKind;
use tungstenite::{Error, Message, WebSocket};

use crate::clients::{socket, stage, until_subscribers};
use crate::gaps::{Gaps, until_undisturbed};
use crate::stage::{BACKENDS, PATIENCE, Stage, on_each_backend};

/// The channel's `poll`. The server pings after half of it.
const POLL: Duration = Duration::from_secs(2);

/// A client that pauses for less than this is not ended. The server learns of a read later, when
/// the client's kernel has much room again.
const GAP: Duration = Duration::from_millis(500);

/// For how long a slow client reads: several pings.
const READS_FOR: Duration = Duration::from_millis(4500);

/// A subscriber whose kernel takes little that the client has not read.
fn narrow(stage: &crate::stage::Stage) -> WebSocket<TcpStream> {
    let (socket, _) = socket(stage, "");
    let _ = socket2::SockRef::from(&socket.get_ref().as_fd()).set_recv_buffer_size(32 << 10);
    socket
}

/// Reads some bytes; `None` if the connection was ended.
fn read_some(stream: &mut TcpStream, room: &mut [u8], gaps: &mut Gaps) -> Option<usize> {
    loop {
        gaps.turn();
        return match stream.read(room) {
            Ok(0) => None,
            Ok(count) => Some(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no byte comes: {error}"),
            // A process that was stopped finds its call interrupted.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => None,
        };
    }
}

/// Reads `total` bytes at a constant rate; the last byte comes after [`READS_FOR`]. `None` if the
/// connection was ended.
fn read_slowly(stream: &mut TcpStream, total: usize, gaps: &mut Gaps) -> Option<()> {
    const STEP: Duration = Duration::from_millis(20);
    let (begun, mut room, mut count) = (Instant::now(), vec![0; 64 << 10], 0);
    while count < total {
        let share = begun.elapsed().as_secs_f64() / READS_FOR.as_secs_f64();
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
        #[expect(clippy::cast_sign_loss)]
        let due = total.min((total as f64 * share) as usize);
        while count < due {
            let most = room.len().min(due - count);
            count += read_some(stream, &mut room[..most], gaps)?;
        }
        thread::sleep(STEP);
    }
    Some(())
}

/// Reads until the bytes end like this. `None` if the connection was ended.
fn read_up_to(stream: &mut TcpStream, end: &[u8], gaps: &mut Gaps) -> Option<()> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        let mut byte = [0];
        read_some(stream, &mut byte, gaps)?;
        bytes.push(byte[0]);
    }
    Some(())
}

/// Whether the client was not ended. If it was, that must be due to a gap in what it read.
fn is_alive(hub: &Hub, read: Option<()>, gaps: &Gaps, backend: impl Debug) -> bool {
    let (is_read, subscribers) = (read.is_some(), hub.subscribers());
    let is_alive = is_read && subscribers == 1;
    if !is_alive {
        let ended = "a client that reads was ended";
        let how = format_args!("all was read: {is_read}, subscribers: {subscribers}");
        gaps.assert_reached(GAP, format_args!("{backend:?}: {ended} ({how})"));
    }
    is_alive
}

/// Publishes messages, so many of such a length, to one client that does not read yet.
fn published<C>(
    backend: BackendKind,
    (count, length): (usize, usize),
    connect: impl FnOnce(&Stage) -> C,
) -> (Stage, C, Arc<Hub>, Gaps) {
    let options = format!("history = 1, backlog_bytes = \"64MiB\", poll = \"{}s\"", POLL.as_secs());
    let stage = stage(backend, 1, &options);
    let client = connect(&stage);
    stage.until(|engine| &engine.parked, 1);
    let hub = stage.channel.clone().unwrap();
    let mut gaps = Gaps::new();
    for _ in 0..count {
        gaps.turn();
        hub.publish("x".repeat(length));
    }
    (stage, client, hub, gaps)
}

/// Publishes `count` messages to one client, which reads them slowly and then answers pings.
/// Returns false if the client was ended because this process was kept from running.
fn slow_client(backend: BackendKind, count: usize, length: usize) -> bool {
    let (stage, mut client, hub, mut gaps) = published(backend, (count, length), narrow);
    // A header of 10 bytes each. Pings come in between, so that the last bytes are left for the
    // protocol.
    let stream = client.get_mut();
    let read = read_slowly(stream, count * (length + 10) - 100, &mut gaps);
    hub.publish("end");
    let read = read.and_then(|()| read_up_to(stream, b"\x81\x03end", &mut gaps));
    // Pings among these bytes were not answered each.
    let read = read.and_then(|()| client.send(Message::Pong("".into())).ok());
    if !is_alive(&hub, read, &gaps, backend) {
        return false;
    }
    // From here on it is as alive as any other client, and answers.
    assert_eq!(client.read().unwrap(), Message::Ping("".into()), "{backend:?}");
    client.flush().unwrap();
    stage.until(|engine| &engine.active, 0);
    true
}

#[test]
fn a_client_that_reads_slowly_is_not_ended_for_a_pong_that_comes_late() {
    thread::scope(|scope| {
        for backend in BACKENDS {
            // More than a server's kernel takes: the task has some of it, and does not read.
            scope.spawn(move || until_undisturbed(|| slow_client(backend, 24, 1 << 20)));
        }
    });
}

#[test]
fn a_client_whose_ping_is_queued_in_the_kernel_is_not_ended() {
    thread::scope(|scope| {
        for backend in BACKENDS {
            scope.spawn(move || until_undisturbed(|| slow_client(backend, 1, 600_000)));
        }
    });
}

/// Reads the next message of a client whose reads return soon, and which answers pings with them.
/// Returns nothing if it was ended because this process was kept from answering for a time, which
/// is `gap` at least.
pub(crate) fn answering(
    socket: &mut WebSocket<TcpStream>,
    gaps: &mut Gaps,
    gap: Duration,
) -> Option<Message> {
    let end = Instant::now() + PATIENCE;
    loop {
        gaps.turn();
        match socket.read() {
            Ok(message) => return Some(message),
            // A process that was stopped finds its call interrupted.
            Err(Error::Io(error))
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                assert!(Instant::now() < end, "no message comes");
            }
            Err(error) => {
                gaps.assert_reached(gap, format_args!("a client that answers is ended ({error})"));
                return None;
            }
        }
    }
}

/// Publishes messages, and further ones until the subscriber has gone: bytes that are written to it
/// are no sign that it reads.
fn publish_until_gone(hub: &Hub, count: usize, length: usize) {
    for _ in 0..count {
        hub.publish("x".repeat(length));
    }
    let end = Instant::now() + PATIENCE;
    while hub.subscribers() > 0 {
        hub.publish("more");
        assert!(Instant::now() < end, "{count} messages of {length} bytes");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a connection was parked. It may have gone since if this process was kept from
/// running.
fn until_it_was_parked(stage: &Stage) {
    let end = Instant::now() + PATIENCE;
    while stage.count(|engine| &engine.parkings) == 0 {
        assert!(Instant::now() < end, "no connection is parked");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_unresponsive_client_is_ended_even_while_messages_are_published() {
    thread::scope(|scope| {
        for backend in BACKENDS {
            for (count, length) in [(0, 0), (1, 600_000), (24, 1 << 20)] {
                scope.spawn(move || {
                    let options = "history = 1, backlog_bytes = \"64MiB\", poll = \"500ms\"";
                    let stage = stage(backend, 1, options);
                    let client = narrow(&stage);
                    until_it_was_parked(&stage);
                    let hub = stage.channel.clone().unwrap();
                    publish_until_gone(&hub, count, length);
                    until_subscribers(&stage, 0);
                    drop(client);
                });
            }
        }
    });
}

/// A stream of events whose kernel takes little that the client has not read.
fn narrow_events(stage: &crate::stage::Stage) -> TcpStream {
    let mut client = stage.connect();
    let _ = socket2::SockRef::from(&client.0.get_ref().as_fd()).set_recv_buffer_size(32 << 10);
    client.send("GET /c HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n");
    let mut last = Vec::new();
    // The head, and the chunk with the place at which it begins.
    while !last.ends_with(b"\n\r\n") || last.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.0.read_exact(&mut byte).unwrap();
        last.push(byte[0]);
    }
    assert!(client.0.buffer().is_empty());
    client.0.into_inner()
}

#[test]
fn a_stream_whose_client_does_not_read_is_ended_even_while_messages_are_published() {
    thread::scope(|scope| {
        for backend in BACKENDS {
            // The messages fit into the server's kernel, or they do not.
            for (count, length) in [(1, 600_000), (24, 1 << 20)] {
                scope.spawn(move || {
                    let options = "history = 1, backlog_bytes = \"64MiB\", poll = \"500ms\"";
                    let stage = stage(backend, 1, options);
                    let client = narrow_events(&stage);
                    until_it_was_parked(&stage);
                    let hub = stage.channel.clone().unwrap();
                    publish_until_gone(&hub, count, length);
                    drop(client);
                });
            }
        }
    });
}

/// As [`slow_client`], with a stream of events.
fn slow_stream(backend: BackendKind, count: usize, length: usize) -> bool {
    let (stage, mut client, hub, mut gaps) = published(backend, (count, length), narrow_events);
    let read = read_slowly(&mut client, count * length, &mut gaps);
    hub.publish("end");
    let end = b"data: end\n\n\r\n";
    let read = read.and_then(|()| read_up_to(&mut client, end, &mut gaps));
    if !is_alive(&hub, read, &gaps, backend) {
        return false;
    }
    stage.until(|engine| &engine.parked, 1);
    true
}

#[test]
fn a_stream_whose_client_reads_slowly_is_not_ended() {
    thread::scope(|scope| {
        for backend in BACKENDS {
            for (count, length) in [(1, 600_000), (24, 1 << 20)] {
                scope.spawn(move || until_undisturbed(|| slow_stream(backend, count, length)));
            }
        }
    });
}

/// Its kernel answers for it, so a client with an empty queue is there.
#[test]
fn a_stream_in_silence_stays() {
    on_each_backend(|backend| {
        let stage = stage(backend, 1, "poll = \"20ms\"");
        let client = narrow_events(&stage);
        // Several comments, none of which is read.
        let end = Instant::now() + PATIENCE;
        while stage.count(|engine| &engine.parkings) < 4 {
            assert!(Instant::now() < end, "{backend:?}");
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(stage.channel.as_ref().unwrap().subscribers(), 1, "{backend:?}");
        drop(client);
        until_subscribers(&stage, 0);
    });
}
