//! SIGTERM: active connections end well, idle ones are closed, and a second signal ends the server
//! at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::process::Child;

use crate::stage::{Server, Site, backends, connect, get, kill, stop, until};

/// Returns how many sockets a process has.
fn sockets(process: &Child) -> usize {
    let all = std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap();
    let names = all.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    names.filter(|name| name.as_os_str().as_bytes().starts_with(b"socket:")).count()
}

/// Begins a download and reads its first bytes only.
fn begin(stream: &mut TcpStream) -> Vec<u8> {
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut first = vec![0; 1000];
    stream.read_exact(&mut first).unwrap();
    first
}

#[test]
fn a_slow_download_finishes_and_idle_connections_are_closed() {
    let site = Site::new();
    let bytes = site.large();
    for backend in backends() {
        let server = Server::folder(&site.www(), &["--workers", "2", "--backend", backend.name()]);
        let address = server.at(0);
        let before = sockets(server.child());
        let mut silent = server.connect();
        // One that the server has not accepted by its end is reset.
        until("a connection is accepted", || sockets(server.child()) > before);
        let mut idle = server.connect();
        assert!(get(&mut idle, "/small").ends_with("0123456789"));
        let mut slow = server.connect();
        let mut received = begin(&mut slow);
        server.signal("TERM");
        for stream in [&mut silent, &mut idle] {
            assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0, "{backend:?}: it answers");
        }
        while TcpStream::connect(address).is_ok() {
            std::thread::yield_now();
        }
        slow.read_to_end(&mut received).unwrap();
        let head = received.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        assert!(received[head + 4..] == bytes, "{backend:?}: the file is another one");
        let (status, errors) = server.ended_aloud();
        // The silent one may be about to be counted.
        let said = |connections| {
            format!(
                "superpoll: draining: {connections} connections, 1 request under way\n\
                 superpoll: ended\n"
            )
        };
        assert!(status.success() && [said(2), said(3)].contains(&errors), "{backend:?}: {errors}");
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let site = Site::new();
    site.large();
    for (first, second) in [("TERM", "TERM"), ("INT", "INT"), ("INT", "TERM")] {
        let server = Server::folder(&site.www(), &[]);
        let mut slow = server.connect();
        begin(&mut slow);
        server.signal(first);
        // Equal signals that come at once are merged into one.
        server.says("draining: ");
        server.signal(second);
        let (status, errors) = server.ended_aloud();
        assert!(status.success(), "{first}, {second}: {status}");
        let expected = "superpoll: draining: 1 connection, 1 request under way\n\
                        superpoll: closing 1 connection that did not end in time\n";
        assert_eq!(errors, expected);
        let _ = slow.read_to_end(&mut Vec::new());
    }
}

/// Several processes are one server, with one line about all of them.
#[test]
fn several_processes_say_once_what_they_have() {
    let site = Site::new();
    let bytes = site.large();
    let text = "
        [server]
        processes = 3
        workers = 1
        [[listeners]]
        address = \"127.0.0.1:0\"
        [[hosts]]
        [[hosts.routes]]
        files = { root = \"www\" }";
    for interrupts in [false, true] {
        let server = Server::configured(&site.write("several.toml", text), 1);
        server.workers(3);
        let mut idle: Vec<TcpStream> = (0..7).map(|_| server.connect()).collect();
        for stream in &mut idle {
            assert!(get(stream, "/small").ends_with("0123456789"));
        }
        let mut slow: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
        let mut received: Vec<Vec<u8>> = slow.iter_mut().map(begin).collect();
        server.signal("TERM");
        let said = "superpoll: draining: 9 connections, 2 requests under way\n";
        server.says(said);
        if interrupts {
            server.signal("TERM");
            let (status, errors) = server.ended_aloud();
            assert!(status.success(), "{errors}");
            // One worker may have both.
            assert!(errors.contains(" that did not end in time\n"), "{errors}");
            assert!(errors.starts_with(said) && errors.ends_with("superpoll: ended\n"), "{errors}");
            continue;
        }
        for (stream, received) in slow.iter_mut().zip(&mut received) {
            stream.read_to_end(received).unwrap();
            assert!(received.ends_with(&bytes));
        }
        let (status, errors) = server.ended_aloud();
        assert_eq!((status.success(), errors), (true, format!("{said}superpoll: ended\n")));
    }
}

/// A worker that is stopped cannot report its connections, and the line says so.
#[test]
fn a_worker_that_does_not_answer_is_left_out_of_the_line_and_counted() {
    let site = Site::new();
    let server = Server::folder(&site.www(), &["--processes", "2", "--workers", "1"]);
    let workers = server.workers(2);
    let mut idle: Vec<TcpStream> = Vec::new();
    // The other one gets all connections.
    stop(workers[0]);
    for _ in 0..3 {
        let mut stream = server.connect();
        assert!(get(&mut stream, "/small").ends_with("0123456789"));
        idle.push(stream);
    }
    server.signal("TERM");
    server.says("draining: 3 connections, 0 requests under way; 1 worker has not answered\n");
    kill(workers[0], "CONT");
    let (status, errors) = server.ended_aloud();
    assert!(status.success() && errors.ends_with("superpoll: ended\n"), "{errors}");
}

#[test]
fn connections_that_outlast_the_drain_timeout_are_closed() {
    let site = Site::new();
    site.large();
    let text = "
        [[listeners]]
        address = \"127.0.0.1:0\"
        [[hosts]]
        [[hosts.routes]]
        files = { root = \"www\" }
        [timeouts]
        drain = \"200ms\"";
    let server = Server::configured(&site.write("short.toml", text), 1);
    let mut slow = connect(server.at(0));
    begin(&mut slow);
    server.signal("TERM");
    let (status, errors) = server.ended();
    assert!(status.success());
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("closing 1 connection"), "{errors}");
}
