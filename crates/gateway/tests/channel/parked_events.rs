//! Streams of events over plain HTTP/1.1, which are parked while nothing happens.

use std::io::{BufRead, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use superpoll_rt::BackendKind;
use superpoll_test_support::find;

use crate::clients::{
    Events, ROOM, field, post, publish, read_until, stage, subscribe_while_publishing, text,
    until_subscribers,
};
use crate::stage::{BACKENDS, PATIENCE, Stage};

const REQUEST: &str = "GET /c HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n";

#[test]
fn an_idle_stream_has_no_task_and_is_written_to_where_it_is_parked() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        let (mut events, _) = Events::new(&stage, "", "");
        stage.until(|engine| &engine.parked, 1);
        stage.until(|engine| &engine.active, 0);
        assert_eq!(stage.count(|engine| &engine.running), 0);
        assert_eq!(stage.count(|engine| &engine.responses[1]), 1);
        let hub = stage.channel.as_ref().unwrap();
        for id in 1..=100 {
            hub.publish(format!("message {id}"));
            assert_eq!(events.message(), (id, format!("message {id}")), "{backend:?}");
        }
        // It has not been given back since, not even for a moment.
        assert_eq!(stage.count(|engine| &engine.parkings), 1, "{backend:?}");
        assert_eq!(stage.count(|engine| &engine.parked), 1);
        drop(events);
        stage.until(|engine| &engine.parked, 0);
        until_subscribers(&stage, 0);
        assert_eq!(stage.count(|engine| &engine.responses[1]), 1);
        assert_eq!(stage.drained(), 0);
    }
}

#[test]
fn a_comment_neither_ends_nor_repeats_anything() {
    let stage = stage(BACKENDS[3], 1, "poll = \"20m\"");
    let hub = stage.channel.as_ref().unwrap();
    let (mut events, _) = Events::new(&stage, "", "");
    for id in 1..=3 {
        stage.elapse(Duration::from_secs(12 * 60));
        let comment = events.next().unwrap();
        assert!(comment.is_comment, "{comment:?}");
        hub.publish(id.to_string());
        // Another comment may have been on its way.
        let event = (0..3).find_map(|_| events.next().filter(|event| !event.is_comment));
        assert_eq!(event.expect("the message comes").data, id.to_string());
    }
    assert!(stage.count(|engine| &engine.parkings) > 3);
}

#[test]
fn a_client_that_ends_its_side_ends_the_stream() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        let (mut events, _) = Events::new(&stage, "", "");
        stage.until(|engine| &engine.parked, 1);
        events.client.0.get_mut().shutdown(Shutdown::Write).unwrap();
        until_subscribers(&stage, 0);
        stage.until(|engine| &engine.parked, 0);
        assert!(events.is_closed(), "{backend:?}");
    }
}

#[test]
fn bytes_of_the_client_change_nothing() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        // A request that comes with the first one, and bytes that come later.
        let mut client = stage.connect();
        client.send(format!("{REQUEST}GET /c?after=0 HTTP/1.1\r\nhost: a\r\n\r\n"));
        let (mut events, _) = Events::answered(client);
        stage.until(|engine| &engine.parked, 1);
        for id in 1..=3 {
            events.client.send("GET /c?after=0 HTTP/1.1\r\nhost: a\r\n\r\n");
            publish(&stage, "message");
            assert_eq!(events.message(), (id, "message".to_owned()), "{backend:?}");
        }
        until_subscribers(&stage, 1);
        stage.drain();
        assert_eq!(events.next(), None);
        assert!(events.is_closed());
    }
}

#[test]
fn no_event_is_lost_or_doubled_between_replay_and_live() {
    for backend in BACKENDS {
        let stage = stage(backend, 2, ROOM);
        let (mut clients, last) = subscribe_while_publishing(&stage, |after| {
            let (events, begin) = Events::new(&stage, &format!("?after={after}"), "");
            assert!(begin.starts_with(&format!("{after}-")), "{begin} is not {after}");
            (events, after)
        });
        for (events, after) in &mut clients {
            for id in *after + 1..=last {
                assert_eq!(events.message(), (id, id.to_string()), "{backend:?}");
            }
        }
        stage.channel.as_ref().unwrap().publish("end");
        for (events, _) in &mut clients {
            assert_eq!(events.message(), (last + 1, "end".to_owned()));
        }
    }
}

/// A client whose kernel takes little, though more than the loopback sends at a time.
fn narrow(stage: &Stage) -> Events {
    let client = stage.connect();
    let _ = socket2::SockRef::from(&client.0.get_ref().as_fd()).set_recv_buffer_size(128 << 10);
    let mut client = client;
    client.send(REQUEST);
    Events::answered(client).0
}

/// Messages of many lengths come at once, so that sockets have room for parts of them, over and
/// over: while a stream is parked, while its task writes, and when it is parked again.
#[test]
fn messages_that_are_written_in_parts_come_whole_and_once() {
    const COUNT: u64 = 200;
    for backend in BACKENDS {
        let options = "history = 1000, backlog_bytes = \"64MiB\", queue_bytes = \"64MiB\"";
        let stage = stage(backend, 1, options);
        let hub = stage.channel.clone().unwrap();
        let data = |id: u64| {
            let length = [10, 200_000, 0, 700, 9_000][usize::try_from(id % 5).unwrap()];
            format!("{id} {}", "x".repeat(length))
        };
        let texts: Vec<String> = (1..=COUNT).map(data).collect();
        let mut clients: Vec<Events> = (0..3).map(|_| narrow(&stage)).collect();
        stage.until(|engine| &engine.parked, 3);
        let before = stage.count(|engine| &engine.parkings);
        for round in 0..2 {
            for text in &texts {
                hub.publish(text.clone());
            }
            // Nothing fits any more.
            stage.until(|engine| &engine.active, 3);
            for client in &mut clients {
                for (id, expected) in (1..).zip(&texts) {
                    let (number, text) = client.message();
                    assert_eq!(number, round * COUNT + id, "{backend:?}");
                    assert!(text == *expected, "{backend:?}: message {number}");
                }
            }
            stage.until(|engine| &engine.parked, 3);
            stage.until(|engine| &engine.active, 0);
        }
        assert!(stage.count(|engine| &engine.parkings) >= before + 6, "{backend:?}");
        assert_eq!(hub.counters().left_out.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn the_stream_for_a_named_site_is_parked_too() {
    const ELSEWHERE: &str = "https://elsewhere.example";
    let stage = stage(BACKENDS[3], 1, &format!("origins = [\"{ELSEWHERE}\"]"));
    let mut client = stage.connect();
    let request = REQUEST.replace("\r\n\r\n", &format!("\r\norigin: {ELSEWHERE}\r\n\r\n"));
    client.send(&request);
    // The head alone; what follows is read as chunks.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.0.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    for (name, value) in [
        ("access-control-allow-origin", ELSEWHERE),
        (
            "access-control-expose-headers",
            "channel-next, channel-epoch, channel-subscribers, last-event-id, link, retry-after, \
             www-authenticate",
        ),
        ("vary", "origin"),
        ("cache-control", "no-store"),
    ] {
        assert!(head.contains(&format!("\r\n{name}: {value}\r\n")), "{head}");
    }
    stage.until(|engine| &engine.parked, 1);
    stage.until(|engine| &engine.active, 0);
    publish(&stage, "news");
    let mut body = Vec::new();
    while !String::from_utf8_lossy(&body).contains("data: news\n\n") {
        assert!(client.chunk(&mut body));
    }
    client = stage.connect();
    client.send(request.replace(ELSEWHERE, "https://third.example"));
    let answer = client.answer();
    assert_eq!((answer.status, field(&answer, "content-length").is_empty()), (403, false));
}

/// Lines of the access log, as soon as there are this many.
fn lines(log: &std::path::Path, count: usize) -> Vec<String> {
    find(&format!("there are {count} lines"), || {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines = text.lines().map(|line| line.split("] ").nth(1).unwrap().to_owned());
        Some(lines.collect::<Vec<_>>()).filter(|lines| lines.len() >= count)
    })
}

#[test]
fn the_log_has_the_stream_when_it_ends() {
    for backend in [BackendKind::Epoll, BackendKind::Adaptive] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let text = format!("{}[access_log]\npath = {log:?}\n", text(""));
        let stage = Stage::new(backend, 1, &text);
        let (mut events, begin) = Events::new(&stage, "?x=1", "user-agent: reader\r\n");
        stage.until(|engine| &engine.parked, 1);
        stage.channel.as_ref().unwrap().publish("message");
        events.message();
        // A request that ends meanwhile is the first in the log.
        assert_eq!(stage.connect().get("/c?wait=0").status, 204);
        let expected = ["\"GET /c?wait=0 HTTP/1.1\" 204 0 \"-\" \"-\""];
        assert_eq!(lines(&log, 1), expected);
        drop(events);
        stage.until(|engine| &engine.parked, 0);
        let epoch = begin.split('-').nth(1).unwrap();
        let chunk = |text: String| format!("{:x}\r\n{text}\r\n", text.len()).len();
        let bytes = chunk(format!("retry: 2000\nid: {begin}\n"))
            + chunk(format!("id: 1-{epoch}\ndata: message\n\n"));
        let found = lines(&log, 2);
        let expected = format!("\"GET /c?x=1 HTTP/1.1\" 200 {bytes} \"-\" \"reader\"");
        assert_eq!(found[1], expected, "{backend:?}");
        assert_eq!(stage.count(|engine| &engine.body_bytes), bytes as u64);
        assert_eq!(stage.drained(), 0);
        assert_eq!(lines(&log, 2).len(), 2);
    }
}

#[test]
fn a_stream_whose_socket_is_full_does_not_delay_the_end() {
    let stage = stage(BACKENDS[3], 1, "backlog_bytes = \"64MiB\", queue_bytes = \"64MiB\"");
    let full = narrow(&stage);
    let (mut quick, _) = Events::new(&stage, "", "");
    stage.until(|engine| &engine.parked, 2);
    for _ in 0..200 {
        stage.channel.as_ref().unwrap().publish(vec![b'x'; 60_000]);
    }
    stage.until(|engine| &engine.active, 2);
    for id in 1..=200 {
        assert_eq!(quick.message().0, id);
    }
    stage.drain();
    assert_eq!(quick.next(), None);
    assert!(quick.is_closed());
    stage.elapse(Duration::from_secs(5));
    assert_eq!(stage.drained(), 0);
    drop(full);
}

#[test]
fn what_a_stream_needs_is_taken_from_any_spelling_of_the_request() {
    let stage = stage(BACKENDS[2], 1, "history = 10");
    publish(&stage, "one");
    for request in [
        "GET /c?after=0 HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n",
        "GET /c?after=0 HTTP/1.1\r\nhost: a\r\naccept: text/html, Text/Event-Stream;q=0.2\r\n\
         content-length: 0\r\n\r\n",
    ] {
        let mut client = stage.connect();
        // A byte at a time.
        for byte in request.bytes() {
            client.send([byte]);
        }
        let (mut events, _) = Events::answered(client);
        assert_eq!(events.message(), (1, "one".to_owned()));
        stage.until(|engine| &engine.parked, 1);
        drop(events);
        stage.until(|engine| &engine.parked, 0);
    }
    // HEAD tells the place and nothing else.
    let mut client = stage.connect();
    client.send(REQUEST.replace("GET", "HEAD"));
    let answer = client.answer();
    assert_eq!((answer.status, field(&answer, "channel-next")), (200, "1"));
}

#[test]
fn streams_of_the_unix_domain_are_parked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let text = format!("[[listeners]]\naddress = \"unix:{}\"\n{}", path.display(), text(""))
        .replace("[[listeners]]\naddress = \"127.0.0.1:0\"\n", "");
    let stage = Stage::new(BACKENDS[3], 1, &text);
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(REQUEST.as_bytes()).unwrap();
    stage.until(|engine| &engine.parked, 1);
    stage.until(|engine| &engine.active, 0);
    stage.channel.as_ref().unwrap().publish("message");
    let mut all = Vec::new();
    while !String::from_utf8_lossy(&all).contains("data: message\n\n\r\n") {
        let mut room = [0; 1024];
        let count = client.read(&mut room).unwrap();
        assert_ne!(count, 0);
        all.extend_from_slice(&room[..count]);
    }
    drop(client);
    stage.until(|engine| &engine.parked, 0);
}

/// A stream that is reset while messages are written to it.
#[test]
fn a_stream_that_is_reset_is_no_subscriber_any_more() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "backlog_bytes = \"64MiB\"");
        let hub = stage.channel.clone().unwrap();
        let mut stream: TcpStream = stage.connect().0.into_inner();
        stream.write_all(REQUEST.as_bytes()).unwrap();
        until_subscribers(&stage, 1);
        for _ in 0..100 {
            hub.publish(vec![b'x'; 60_000]);
        }
        stage.until(|engine| &engine.active, 1);
        // Unread bytes make it a reset.
        drop(stream);
        until_subscribers(&stage, 0);
        stage.until(|engine| &engine.active, 0);
        assert_eq!(stage.count(|engine| &engine.parked), 0, "{backend:?}");
    }
}

/// Sends to many subscribers go into the kernel together. Whether one of them has room, or is gone,
/// makes no difference to the others.
#[test]
fn each_of_many_subscribers_gets_all_messages_whether_or_not_others_have_room() {
    const CLIENTS: usize = 24;
    const MESSAGES: u64 = 240;
    for backend in [BackendKind::Epoll, BackendKind::Uring] {
        let stage = stage(backend, 1, "history = 1000, backlog_bytes = \"64MiB\"");
        let mut clients: Vec<Events> = (0..CLIENTS)
            .map(|number| match number % 3 {
                0 => narrow(&stage),
                _ => Events::new(&stage, "", "").0,
            })
            .collect();
        stage.until(|engine| &engine.parked, CLIENTS as u64);
        let hub = stage.channel.as_ref().unwrap();
        let texts: Vec<String> = (1..=MESSAGES).map(|id| format!("{id} ").repeat(8000)).collect();
        let mut gone = 0;
        for (id, text) in (1..).zip(&texts) {
            hub.publish(text.clone());
            for (number, client) in clients.iter_mut().enumerate() {
                // The narrow ones read nothing for the time being.
                if number % 3 != 0 {
                    assert_eq!(client.message(), (id, text.clone()), "{backend:?} {number}");
                }
            }
            if id % 80 == 0 {
                // It is one that reads, or one whose socket is full.
                gone += 1;
                drop(clients.pop());
            }
        }
        until_subscribers(&stage, CLIENTS - gone);
        for (number, client) in clients.iter_mut().enumerate().filter(|(number, _)| number % 3 == 0)
        {
            for (id, text) in (1..).zip(&texts) {
                assert_eq!(client.message(), (id, text.clone()), "{backend:?} {number}");
            }
        }
        hub.publish("end");
        for client in &mut clients {
            assert_eq!(client.message(), (MESSAGES + 1, "end".to_owned()), "{backend:?}");
        }
    }
}

/// It was parked between two requests, and is parked again as another thing.
#[test]
fn a_connection_that_was_idle_becomes_a_stream_of_events() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "");
        let mut client = stage.connect();
        post(&mut client, "before");
        let second = Duration::from_secs(1);
        stage.elapse_until(second, 600 * second, || stage.count(|engine| &engine.parked) == 1);
        client.send("GET /c HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n");
        until_subscribers(&stage, 1);
        stage.until(|engine| &engine.parked, 1);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            client.0.read_line(&mut line).unwrap();
        }
        publish(&stage, "news");
        read_until(&mut client, "data: news\n\n");
        publish(&stage, "more");
        read_until(&mut client, "data: more\n\n");
    }
}
