//! Mishaps around a server's succession: nothing is lost.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write, pipe};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use crate::keep::crowd::{END, Subscriber, publish};
use crate::keep::refusals::refused;
use crate::keep::succession::{AT_REST_SOON, Nursery};
use crate::stage::{PATIENCE, Server, connect, get, signal, until};

#[test]
fn a_successor_that_cannot_open_its_files_or_listeners_changes_nothing() {
    let nursery = Nursery::new("");
    let server = nursery.server(&[]);
    let mut client = connect(nursery.at());
    get(&mut client, "/small");
    assert!(publish(nursery.at(), "before"));
    let mut subscriber = Subscriber::new(nursery.at());
    nursery.until_held(2);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    for (options, about) in [
        (format!("[[listeners]]\naddress = \"{taken}\""), "in use"),
        ("[access_log]\npath = \"no/such/folder/log\"".to_owned(), "no/such/folder/log"),
        ("[[listeners]]\naddress = \"unix:no/such/folder/socket\"".to_owned(), "no/such/folder"),
    ] {
        nursery.configure(&options);
        let said = refused(&mut nursery.command(&["--upgrade"]));
        assert!(said.contains(about), "{said}");
        assert!(get(&mut client, "/small").ends_with("0123456789"));
        assert!(publish(nursery.at(), about));
    }
    assert!(publish(nursery.at(), END));
    assert_eq!(subscriber.messages(), ["in use", "no/such/folder/log", "no/such/folder"]);
    let said = server.errors();
    assert!(!said.contains("takes over"), "{said}");
    nursery.configure("[timeouts]\npark = \"50ms\"");
    let second = nursery.server(&["--upgrade"]);
    second.says("took over 2 connections");
    assert!(server.ended().0.success());
    let known = get(&mut client, "/news?after=0");
    assert!(known.contains("before"), "{known}");
    second.signal("TERM");
    assert!(second.ended().0.success());
}

fn ask(path: &Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_socket_file_goes_from_server_to_server() {
    let nursery = Nursery::new("");
    let path = nursery.site.path("socket");
    let options = format!("[[listeners]]\naddress = \"unix:{}\"\n", path.display());
    nursery.configure(&options);
    let server = |arguments: &[&str]| Server::of(nursery.command(arguments), 2);
    let first = server(&[]);
    assert!(ask(&path).unwrap().ends_with("0123456789"));
    let second = server(&["--upgrade"]);
    assert!(first.ended().0.success());
    assert!(ask(&path).unwrap().ends_with("0123456789"));
    second.signal("KILL");
    drop(second.ended());
    // A client that connects now waits for the next server.
    let waiting = {
        let path = path.clone();
        thread::spawn(move || ask(&path))
    };
    let third = server(&[]);
    assert!(waiting.join().unwrap().unwrap().ends_with("0123456789"));
    assert!(ask(&path).unwrap().ends_with("0123456789"));
    third.signal("TERM");
    assert!(third.ended().0.success());
    assert!(!path.exists());
}

/// A port that the kernel has chosen stays that of the listener.
#[test]
fn chosen_ports_go_from_server_to_server() {
    let nursery = Nursery::new("");
    // A second listener of the same kind, and that of operators.
    let options = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[listeners]]\naddress = \"127.0.0.1:0\"\n\
                   [admin]\naddress = \"127.0.0.1:0\"\n";
    nursery.configure(options);
    let server = |arguments: &[&str]| Server::of(nursery.command(arguments), 4);
    let first = server(&[]);
    let fronts = first.fronts.clone();
    assert_eq!(fronts.iter().collect::<BTreeSet<_>>().len(), 4, "{fronts:?}");
    let second = server(&["--upgrade"]);
    assert!(first.ended().0.success());
    assert_eq!(second.fronts, fronts);
    // A reload takes no listener's port away.
    second.signal("HUP");
    second.says("reloaded the configuration ");
    for at in 0..3 {
        assert!(get(&mut connect(second.at(at)), "/small").ends_with("0123456789"), "{at}");
    }
    second.signal("KILL");
    drop(second.ended());
    let third = server(&[]);
    assert_eq!(third.fronts, fronts);
    assert!(get(&mut third.connect(), "/small").ends_with("0123456789"));
    // The number of the port may take the place of 0.
    let number = format!("127.0.0.1:{}", third.at(1).port());
    nursery.configure(&options.replacen("127.0.0.1:0", &number, 1));
    let fourth = server(&["--upgrade"]);
    assert!(third.ended().0.success());
    assert_eq!(fourth.fronts, fronts);
    fourth.signal("TERM");
    assert!(fourth.ended().0.success());
}

#[test]
fn a_keeper_outlives_its_terminal() {
    let nursery = Nursery::new("");
    let server = nursery.server(&[]);
    let mut client = connect(nursery.at());
    get(&mut client, "/small");
    nursery.until_held(1);
    for _ in 0..3 {
        signal(nursery.keeper(), "HUP");
    }
    // A keeper that had ended would be gone by the time that the next server asks for its
    // connections.
    server.signal("KILL");
    drop(server.ended());
    let next = nursery.server(&[]);
    next.says("took over 1 connections");
    assert!(get(&mut client, "/small").ends_with("0123456789"));
    let said = next.errors();
    assert!(!said.contains("keeper") && !said.contains("babysitter"), "{said}");
    next.signal("TERM");
    assert!(next.ended().0.success());
}

/// A pipe that has no room for a single byte.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = pipe().unwrap();
    // Another open file of the same pipe, so that the writer itself still blocks.
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let mut other =
        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
    let outcome = io::copy(&mut io::repeat(b'x'), &mut other);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::WouldBlock);
    (reader, writer)
}

#[test]
fn a_keeper_serves_while_its_standard_error_is_full_and_not_read() {
    let (reader, writer) = full_pipe();
    let mut nursery = Nursery::writing_to(writer.into(), 1000, AT_REST_SOON);
    let server = nursery.server(&[]);
    let mut client = connect(nursery.at());
    get(&mut client, "/small");
    nursery.until_held(1);
    server.signal("KILL");
    drop(server.ended());
    let next = nursery.server(&[]);
    next.says("took over 1 connections");
    assert!(get(&mut client, "/small").ends_with("0123456789"));
    next.signal("TERM");
    assert!(next.ended().0.success());
    // Its last lines do not keep it either.
    signal(nursery.keeper(), "TERM");
    until("the keeper ends", || nursery.has_ended());
    drop(reader);
}

#[test]
fn a_keeper_writes_its_last_lines_before_it_ends() {
    let (mut reader, writer) = pipe().unwrap();
    let mut nursery = Nursery::writing_to(writer.into(), 1000, AT_REST_SOON);
    let server = nursery.server(&[]);
    server.signal("TERM");
    assert!(server.ended().0.success());
    signal(nursery.keeper(), "TERM");
    until("the keeper ends", || nursery.has_ended());
    let mut lines = String::new();
    reader.read_to_string(&mut lines).unwrap();
    assert!(lines.starts_with("superpoll: works for process "), "{lines}");
}

#[test]
fn a_server_that_hands_over_reports_how_many_connections_go_on_and_how_many_end() {
    let nursery = Nursery::new("header = \"10m\"\ndrain = \"10m\"\n");
    let first = nursery.server(&[]);
    let mut idle: Vec<_> = (0..3).map(|_| connect(nursery.at())).collect();
    for client in &mut idle {
        get(client, "/small");
    }
    nursery.until_held(3);
    // In the middle of a request.
    let mut busy = connect(nursery.at());
    get(&mut busy, "/small");
    busy.write_all(b"GET /small HTTP/1.1\r\n").unwrap();
    let second = nursery.server(&["--upgrade"]);
    second.says("took over 3 connections");
    first.says("3 connections go on there, 1 ends here");
    drop(busy);
    let (status, said) = first.ended();
    assert!(status.success(), "{said}");
    second.signal("TERM");
    assert!(second.ended().0.success());
}

#[test]
fn a_keeper_that_was_stopped_for_a_while_has_missed_nothing() {
    // The kernel takes all messages for the subscriber, so that it stays parked.
    let channel = "publish = \"anyone\", poll = \"10m\", unsent_bytes = \"1GiB\"";
    let nursery = Nursery::with_channel(channel, AT_REST_SOON);
    let first = nursery.server(&[]);
    let mut client = connect(nursery.at());
    get(&mut client, "/small");
    let mut subscriber = Subscriber::new(nursery.at());
    nursery.until_held(2);
    signal(nursery.keeper(), "STOP");
    // More messages than there is room for on the line to it.
    let messages: Vec<String> = (0..8).map(|n| format!("{n}{}", "x".repeat(40_000))).collect();
    for message in &messages {
        assert!(publish(nursery.at(), message));
    }
    signal(nursery.keeper(), "CONT");
    assert!(publish(nursery.at(), "on"));
    let second = nursery.server(&["--upgrade"]);
    let (status, said) = first.ended();
    assert!(status.success() && !said.contains("keeper is lost"), "{said}");
    second.says("took over 2 connections");
    // The first has handed over all of them.
    let mut poll = connect(nursery.at());
    let known = get(&mut poll, "/news?after=0");
    assert!(messages.iter().all(|message| known.contains(message)), "{}", known.len());
    assert!(publish(nursery.at(), END));
    assert_eq!(subscriber.messages(), [&messages[..], &["on".to_owned()]].concat());
    assert!(get(&mut client, "/small").ends_with("0123456789"));
    second.signal("TERM");
    assert!(second.ended().0.success());
    until("nothing is held", || nursery.held() == 0);
}
