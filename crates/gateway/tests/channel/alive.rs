//! WebSockets of slow clients, and of clients that have stopped.

use std::io::Read;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use superpoll_gateway::channel::Hub;
use superpoll_rt::BackendKind;
use tungstenite::{Message, WebSocket};

use crate::clients::{socket, stage, until_subscribers};
use crate::stage::{BACKENDS, Stage, on_each_backend};

/// The channel's `poll`. The server pings after half of it.
const POLL: Duration = Duration::from_secs(400);

/// A slow client reads a share of its bytes each ten seconds. The server learns of a read later,
/// when the client's kernel has much room again.
const STEP: Duration = Duration::from_secs(10);

/// How often a slow client reads: for several pings.
const STEPS: usize = 90;

/// A subscriber whose kernel takes little that the client has not read.
fn narrow(stage: &crate::stage::Stage) -> WebSocket<TcpStream> {
    let (socket, _) = socket(stage, "");
    let _ = socket2::SockRef::from(&socket.get_ref().as_fd()).set_recv_buffer_size(32 << 10);
    socket
}

/// Reads `total` bytes at a constant rate, in [`STEPS`] steps.
fn read_slowly(stage: &Stage, stream: &mut TcpStream, total: usize) {
    let (mut room, mut count) = (vec![0; total.div_ceil(STEPS)], 0);
    for step in 1..=STEPS {
        let share = total * step / STEPS - count;
        stream.read_exact(&mut room[..share]).unwrap();
        count += share;
        stage.elapse(STEP);
    }
}

/// Reads until the bytes end like this.
fn read_up_to(stream: &mut TcpStream, end: &[u8]) {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
}

/// Publishes messages, so many of such a length, to one client that does not read yet.
fn published<C>(
    backend: BackendKind,
    (count, length): (usize, usize),
    connect: impl FnOnce(&Stage) -> C,
) -> (Stage, C, Arc<Hub>) {
    let options = format!("history = 1, backlog_bytes = \"64MiB\", poll = \"{}s\"", POLL.as_secs());
    let stage = stage(backend, 1, &options);
    let client = connect(&stage);
    stage.until(|engine| &engine.parked, 1);
    let hub = stage.channel.clone().unwrap();
    for _ in 0..count {
        hub.publish("x".repeat(length));
    }
    (stage, client, hub)
}

/// Publishes `count` messages to one client, which reads them slowly and then answers pings.
fn slow_client(backend: BackendKind, count: usize, length: usize) {
    let (stage, mut client, hub) = published(backend, (count, length), narrow);
    // A header of 10 bytes each. Pings come in between, so that the last bytes are left for the
    // protocol.
    let stream = client.get_mut();
    read_slowly(&stage, stream, count * (length + 10) - 100);
    hub.publish("end");
    read_up_to(stream, b"\x81\x03end");
    // Pings among these bytes were not answered each.
    client.send(Message::Pong("".into())).unwrap();
    assert_eq!(hub.subscribers(), 1, "{backend:?}");
    // From here on it is as alive as any other client, and answers.
    stage.elapse(POLL / 2 + 3 * STEP);
    assert_eq!(client.read().unwrap(), Message::Ping("".into()), "{backend:?}");
    client.flush().unwrap();
    stage.until(|engine| &engine.active, 0);
}

#[test]
fn a_client_that_reads_slowly_is_not_ended_for_a_pong_that_comes_late() {
    thread::scope(|scope| {
        for backend in BACKENDS {
            // More than a server's kernel takes: the task has some of it, and does not read.
            scope.spawn(move || slow_client(backend, 24, 1 << 20));
        }
    });
}

#[test]
fn a_client_whose_ping_is_queued_in_the_kernel_is_not_ended() {
    thread::scope(|scope| {
        for backend in BACKENDS {
            scope.spawn(move || slow_client(backend, 1, 600_000));
        }
    });
}

/// Publishes messages, and further ones until the subscriber has gone: bytes that are written to it
/// are no sign that it reads.
fn publish_until_gone(stage: &Stage, count: usize, length: usize) {
    let hub = stage.channel.as_ref().unwrap();
    for _ in 0..count {
        hub.publish("x".repeat(length));
    }
    // The kernels go on for a moment of real time, in which much virtual time passes: what the
    // client's kernel takes late still looks like a client that reads.
    // On a busy machine that moment is long.
    let passed = stage.elapse_until(STEP, 100 * POLL, || {
        let has_gone = hub.subscribers() == 0;
        if !has_gone {
            hub.publish("more");
        }
        has_gone
    });
    assert!(passed > POLL / 2, "{count} messages of {length} bytes: {passed:?}");
}

#[test]
fn an_unresponsive_client_is_ended_even_while_messages_are_published() {
    thread::scope(|scope| {
        for backend in BACKENDS {
            for (count, length) in [(0, 0), (1, 600_000), (24, 1 << 20)] {
                scope.spawn(move || {
                    let options = "history = 1, backlog_bytes = \"64MiB\", poll = \"400s\"";
                    let stage = stage(backend, 1, options);
                    let client = narrow(&stage);
                    stage.until(|engine| &engine.parked, 1);
                    publish_until_gone(&stage, count, length);
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
    assert_eq!(String::from_utf8_lossy(client.0.buffer()), "");
    client.0.into_inner()
}

#[test]
fn a_stream_whose_client_does_not_read_is_ended_even_while_messages_are_published() {
    thread::scope(|scope| {
        for backend in BACKENDS {
            // The messages fit into the server's kernel, or they do not.
            for (count, length) in [(1, 600_000), (24, 1 << 20)] {
                scope.spawn(move || {
                    let options = "history = 1, backlog_bytes = \"64MiB\", poll = \"400s\"";
                    let stage = stage(backend, 1, options);
                    let client = narrow_events(&stage);
                    stage.until(|engine| &engine.parked, 1);
                    publish_until_gone(&stage, count, length);
                    drop(client);
                });
            }
        }
    });
}

/// As [`slow_client`], with a stream of events.
fn slow_stream(backend: BackendKind, count: usize, length: usize) {
    let (stage, mut client, hub) = published(backend, (count, length), narrow_events);
    read_slowly(&stage, &mut client, count * length);
    hub.publish("end");
    read_up_to(&mut client, b"data: end\n\n\r\n");
    assert_eq!(hub.subscribers(), 1, "{backend:?}");
    stage.until(|engine| &engine.parked, 1);
}

#[test]
fn a_stream_whose_client_reads_slowly_is_not_ended() {
    thread::scope(|scope| {
        for backend in BACKENDS {
            for (count, length) in [(1, 600_000), (24, 1 << 20)] {
                scope.spawn(move || slow_stream(backend, count, length));
            }
        }
    });
}

/// Its kernel answers for it, so a client with an empty queue is there.
#[test]
fn a_stream_in_silence_stays() {
    on_each_backend(|backend| {
        let stage = stage(backend, 1, "poll = \"400s\"");
        let client = narrow_events(&stage);
        // Several comments, none of which is read.
        stage.elapse_until(POLL / 2 + 3 * STEP, 3 * POLL, || {
            stage.count(|engine| &engine.parkings) >= 4
        });
        assert_eq!(stage.channel.as_ref().unwrap().subscribers(), 1, "{backend:?}");
        drop(client);
        until_subscribers(&stage, 0);
    });
}
