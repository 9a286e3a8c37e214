//! `superpoll drain`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use super::{Stage, begin, command, refusal, refused, status};
use crate::stage::{Running, accept, get, kill, lines, signal, stop, until};
use crate::superpoll;

/// Connections with half a request may stay.
const PATIENT: &str = "[timeouts]\nheader = \"10m\"\ndrain = \"10m\"\n";

fn drain(stage: &Stage) -> (Child, impl Iterator<Item = String>) {
    let mut draining = begin(stage.command("drain", &[]));
    let lines = lines(draining.stdout.take().unwrap());
    (draining, lines)
}

#[test]
fn it_waits_for_a_busy_connection_says_so_and_ends_with_the_process() {
    for processes in [1, 2] {
        let stage = Stage::new();
        let server = stage.start_with(processes, PATIENT);
        let number = server.child().id();
        // Its head is not complete.
        let mut busy = server.connect();
        busy.write_all(b"GET /small HTTP/1.1\r\nHost: localhost\r\n").unwrap();
        let mut idle = server.connect();
        assert!(get(&mut idle, "/small").ends_with("0123456789"));
        until("it is counted", || status(&stage.stats)["connections"] == 2);
        let (mut draining, mut lines) = drain(&stage);
        until("one connection is left", || {
            let line = lines.next().unwrap();
            assert!(line.starts_with(&format!("process {number}: ")), "{line}");
            line.ends_with(": 1 connection, 0 requests under way")
        });
        assert_eq!(status(&stage.stats)["state"], "draining");
        assert!(TcpStream::connect(("127.0.0.1", stage.port)).is_err() || processes > 1);
        for name in ["reload", "upgrade"] {
            let line = refused(&mut stage.command(name, &[]));
            assert!(line.contains("the server is draining"), "{line}");
        }
        // One that gives up does not keep the server from ending, nor does it end it at once.
        until("one that gives up says what is left", || {
            let output = stage.command("drain", &["--timeout", "0.3"]).output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{error}");
            assert!(error.contains("is not done within 0.3 s"), "{error}");
            // The first report of the workers may come later than that.
            error.contains("is not done within 0.3 s (1 connection, 0 requests under way)")
        });
        let (mut second, mut rest) = drain(&stage);
        assert!(rest.any(|line| line.ends_with(": 1 connection, 0 requests under way")));
        assert!(draining.try_wait().unwrap().is_none());
        busy.write_all(b"\r\n").unwrap();
        let mut answer = String::new();
        busy.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("0123456789"), "{answer}");
        assert_eq!(lines.last().unwrap(), format!("process {number} has ended"));
        assert_eq!(rest.last().unwrap(), format!("process {number} has ended"));
        assert!(draining.wait().unwrap().success() && second.wait().unwrap().success());
        let (status, errors) = server.ended();
        assert!(status.success(), "{errors}");
    }
}

#[test]
fn a_proxy_is_drained_and_has_nothing_to_reload() {
    let stage = Stage::new();
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = upstream.local_addr().unwrap().to_string();
    let mut proxy = superpoll();
    proxy.args(["proxy", "--listen", "127.0.0.1:0", "--to", &to, "--stats"]).arg(&stage.stats);
    let mut proxy = Running(proxy.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(proxy.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split(' ').nth(3).unwrap().to_owned();
    let client = TcpStream::connect(&address).unwrap();
    let pair = accept(&upstream);
    until("it is counted", || status(&stage.stats)["connections"] == 1);
    assert_eq!(status(&stage.stats)["listeners"][0], format!("{address}, relayed to {to}"));
    for name in ["reload", "upgrade"] {
        let line = refused(&mut stage.command(name, &[]));
        assert!(line.contains("a proxy has no configuration"), "{line}");
    }
    let (mut draining, mut lines) = drain(&stage);
    assert!(lines.next().unwrap().ends_with(": 1 connection"));
    assert_eq!(status(&stage.stats)["state"], "draining");
    drop((client, pair));
    assert!(lines.last().unwrap().ends_with(" has ended"));
    assert!(draining.wait().unwrap().success() && proxy.0.wait().unwrap().success());
}

#[test]
fn a_server_that_is_killed_while_it_drains_has_ended() {
    let stage = Stage::new();
    let server = stage.start_with(1, PATIENT);
    let mut busy = server.connect();
    busy.write_all(b"GET /small HTTP/1.1\r\n").unwrap();
    until("it is counted", || status(&stage.stats)["connections"] == 1);
    let (mut draining, mut lines) = drain(&stage);
    assert!(lines.next().unwrap().ends_with(": 1 connection, 0 requests under way"));
    signal(server.child(), "KILL");
    // It is a zombie, which is no server.
    assert!(lines.last().unwrap().ends_with(" has ended"));
    assert!(draining.wait().unwrap().success());
    server.ended();
    let line = refused(&mut command("drain", &stage.stats, &[]));
    assert!(line.contains("refused"), "{line}");
}

/// The connections of a worker that is stopped are unknown.
#[test]
fn a_worker_that_does_not_answer_is_named() {
    let stage = Stage::new();
    let server = stage.start(2);
    let stopped = server.workers(2)[0];
    stop(stopped);
    let (mut draining, mut lines) = drain(&stage);
    let silence = format!(", without those of process {stopped}, which does not answer");
    assert!(lines.any(|line| line.ends_with(&silence)));
    kill(stopped, "CONT");
    assert!(lines.last().unwrap().ends_with(" has ended"));
    assert!(draining.wait().unwrap().success() && server.ended().0.success());
}

#[test]
fn commands_that_wait_are_refused_by_a_server_that_is_asked_to_end() {
    let stage = Stage::new();
    let server = stage.start(2);
    let stopped = server.workers(2)[0];
    stop(stopped);
    stage.configure("processes = 2", "[metrics]\npath = \"/metrics\"");
    let waiting = begin(stage.command("reload", &[]));
    // The worker that is not stopped has it.
    until("the reload is under way", || {
        get(&mut server.connect(), "/metrics").starts_with("HTTP/1.1 200")
    });
    let (mut draining, lines) = drain(&stage);
    let line = refusal(&waiting.wait_with_output().unwrap());
    assert!(line.contains("the server is draining"), "{line}");
    kill(stopped, "CONT");
    assert!(lines.last().unwrap().ends_with(" has ended"));
    assert!(draining.wait().unwrap().success() && server.ended().0.success());
}
