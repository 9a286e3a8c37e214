//! Relays of a server: the settings in its configuration, and changes of them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use superpoll_gateway::serve::Server;
use superpoll_gateway::{Address, Config, Event};
use superpoll_rt::{BackendKind, Runtime, time};

use super::{LIMIT, accept, backends, limit, read, rest, upstream, wait, wait_for};

/// A server on a thread of its own.
pub(super) struct Served {
    pub addresses: Vec<Address>,
    changes: Option<Sender<Config>>,
    changed: Receiver<Result<(), String>>,
    /// The events of relays and of upstreams.
    pub failures: Receiver<String>,
    thread: Option<JoinHandle<u64>>,
}

fn parse(text: &str) -> Config {
    Config::parse("test.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn serve(backend: BackendKind, text: &str) -> Served {
    let config = parse(text);
    let (told, heard) = mpsc::channel();
    let (changes, asked) = mpsc::channel();
    let (tell, changed) = mpsc::channel();
    let (fail, failures) = mpsc::channel();
    let run = move || {
        let workers = NonZeroUsize::new(2).unwrap();
        let runtime = Runtime::builder().backend(backend).workers(workers).build().unwrap();
        let report = move |event: &Event| {
            let names = ["relay-failed", "upstream-down", "upstream-up"];
            assert!(names.contains(&event.name()), "{event}");
            fail.send(event.to_string()).unwrap();
        };
        let mut server = Server::start(&runtime, &config, report).unwrap();
        told.send(server.listening().cloned().collect::<Vec<_>>()).unwrap();
        let over = async {
            loop {
                match asked.try_recv() {
                    Ok(config) => {
                        let outcome = server.change(&runtime, &config);
                        tell.send(outcome.map_err(|error| error.to_string())).unwrap();
                    }
                    Err(mpsc::TryRecvError::Empty) => time::sleep(Duration::from_millis(1)).await,
                    Err(mpsc::TryRecvError::Disconnected) => break,
                }
            }
            server.stop();
            server.drained(LIMIT).await
        };
        runtime.block_on(over)
    };
    let thread = Some(thread::spawn(run));
    let addresses = heard.recv().expect("the server has started");
    Served { addresses, changes: Some(changes), changed, failures, thread }
}

impl Served {
    pub(super) fn connect(&self) -> TcpStream {
        connect(&self.addresses[0])
    }

    pub(super) fn change(&self, text: &str) -> Result<(), String> {
        self.changes.as_ref().unwrap().send(parse(text)).unwrap();
        self.changed.recv().unwrap()
    }

    /// Ends the server; no connection is left.
    pub(super) fn end(mut self) {
        self.changes = None;
        assert_eq!(self.thread.take().unwrap().join().unwrap(), 0);
    }
}

fn connect(address: &Address) -> TcpStream {
    let stream = TcpStream::connect(address.to_string()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn relay(listen: &str, to: &Address, more: &str) -> String {
    format!("[[listeners]]\naddress = \"{listen}\"\nrelay.to = \"{to}\"\n{more}")
}

/// An upstream that answers each connection with a letter, indefinitely.
pub(super) fn says(letter: u8) -> Address {
    let (listener, address) = upstream();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that is gone needs no answer.
            let _ = stream.and_then(|mut stream| stream.write_all(&[letter]));
        }
    });
    address
}

#[test]
fn a_redirected_relay_keeps_its_connections_and_refuses_no_client() {
    for backend in backends() {
        let (first, to) = upstream();
        let server = serve(backend, &relay("127.0.0.1:0", &to, ""));
        let listen = server.addresses[0].to_string();
        let (mut old, mut old_server) = (server.connect(), accept(&first));
        old.write_all(b"before").unwrap();
        assert_eq!(read(&mut old_server, 6), b"before", "{backend:?}");

        let others = [says(b'a'), says(b'b')];
        server.change(&relay(&listen, &others[0], "")).unwrap();
        for round in 0..10 {
            // A client that comes during the change gets to one of the two, and none is turned
            // away.
            thread::scope(|scope| {
                let address = &server.addresses[0];
                let comers = scope.spawn(|| {
                    (0..20).map(|_| rest(&mut connect(address))).collect::<Vec<Vec<u8>>>()
                });
                server.change(&relay(&listen, &others[round % 2], "")).unwrap();
                for answer in comers.join().unwrap() {
                    assert!(answer == b"a" || answer == b"b", "{backend:?}: {answer:?}");
                }
            });
            let letter = [b'a', b'b'][round % 2];
            assert_eq!(rest(&mut server.connect()), [letter], "{backend:?}");
        }
        // A change that fails leaves all as it is.
        let broken = format!(
            "{}[[listeners]]\naddress = \"{}\"\nrelay.to = \":1\"\n",
            relay(&listen, &others[0], ""),
            others[0],
        );
        let error = server.change(&broken).unwrap_err();
        assert!(error.contains("in use"), "{error}");
        assert_eq!(rest(&mut server.connect()), b"b", "{backend:?}");

        old_server.write_all(b"still here").unwrap();
        assert_eq!(read(&mut old, 10), b"still here", "{backend:?}");
        drop((old, old_server));
        assert!(server.failures.try_recv().is_err());
        server.end();
    }
}

#[test]
fn a_listener_that_relays_may_serve_and_relay_again() {
    let folder = tempfile::tempdir().unwrap();
    let files = format!("[[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n", folder.path());
    for backend in backends() {
        let (first, to) = upstream();
        let server = serve(backend, &relay("127.0.0.1:0", &to, ""));
        let listen = server.addresses[0].to_string();
        let (mut old, mut old_server) = (server.connect(), accept(&first));
        old.write_all(b"GET").unwrap();
        assert_eq!(read(&mut old_server, 3), b"GET", "{backend:?}");
        server.change(&format!("[[listeners]]\naddress = \"{listen}\"\n{files}")).unwrap();
        // For a moment both accept clients.
        wait(|| {
            let mut client = server.connect();
            client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            first.set_nonblocking(true).unwrap();
            client.set_nonblocking(true).unwrap();
            let mut answer = [0; 7];
            let (relayed, served) = wait_for(|| {
                let found = (first.accept().is_ok(), client.peek(&mut answer).is_ok());
                (found.0 || found.1).then_some(found)
            });
            let is_over = served && !relayed;
            assert!(!is_over || &answer == b"HTTP/1.", "{backend:?}: {answer:?}");
            is_over
        });
        let back = says(b'c');
        server.change(&relay(&listen, &back, "")).unwrap();
        wait(|| {
            let mut client = server.connect();
            client.shutdown(Shutdown::Write).unwrap();
            client.set_nonblocking(true).unwrap();
            // The first relay may still take a client, whom nobody answers.
            let is_answered = wait_for(|| match client.peek(&mut [0]) {
                Ok(_) => Some(true),
                Err(_) => first.accept().is_ok().then_some(false),
            });
            client.set_nonblocking(false).unwrap();
            is_answered && rest(&mut client) == b"c"
        });
        old_server.write_all(b"still here").unwrap();
        assert_eq!(read(&mut old, 10), b"still here", "{backend:?}");
        drop((old, old_server));
        server.end();
    }
}

/// Whether it was closed without a byte.
pub(super) fn is_turned_away(mut client: TcpStream) -> bool {
    !client.read(&mut [0]).is_ok_and(|count| count > 0)
}

#[test]
fn the_limits_of_connections_hold_for_those_that_are_relayed() {
    for backend in backends() {
        for (limit, later) in [("connections", 2), ("connections_per_client", 1)] {
            let (listener, to) = upstream();
            let text = |most| format!("[limits]\n{limit} = {most}\n");
            let server = serve(backend, &relay("127.0.0.1:0", &to, &text(1)));
            let listen = server.addresses[0].to_string();
            let (mut client, mut inside) = (server.connect(), accept(&listener));
            assert!(is_turned_away(server.connect()), "{backend:?} {limit}");
            client.write_all(b"inside").unwrap();
            assert_eq!(read(&mut inside, 6), b"inside", "{backend:?}");
            if later > 1 {
                // Another limit holds at once.
                server.change(&relay(&listen, &to, &text(later))).unwrap();
                let second = (server.connect(), accept(&listener));
                assert!(is_turned_away(server.connect()), "{backend:?} {limit}");
                drop(second);
            }
            // A client that leaves makes room.
            drop((client, inside));
            listener.set_nonblocking(true).unwrap();
            let mut clients = Vec::new();
            wait(|| {
                clients.push(server.connect());
                listener.accept().is_ok()
            });
            drop((clients, listener));
            server.end();
        }
    }
}

#[test]
fn idle_pairs_end_and_silent_upstreams_are_given_up() {
    let (_listener, deaf, _inside) = super::failures::deaf();
    for backend in backends() {
        let (listener, to) = upstream();
        let server = serve(backend, &relay("127.0.0.1:0", &to, "relay.idle = \"50ms\"\n"));
        let (mut client, mut inside) = (server.connect(), accept(&listener));
        assert_eq!((rest(&mut client), rest(&mut inside)), (vec![], vec![]), "{backend:?}");
        let listen = server.addresses[0].to_string();
        server.change(&relay(&listen, &deaf, "[timeouts]\nconnect = \"50ms\"\n")).unwrap();
        assert!(is_turned_away(server.connect()), "{backend:?}");
        let failure = server.failures.recv_timeout(LIMIT).unwrap();
        assert_eq!(failure, format!("connecting to {deaf}: no answer within 0.05 s"));
        server.end();
    }
}

#[test]
fn a_header_of_the_proxy_protocol_is_taken_and_another_one_sent() {
    const HEADER: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 1111 2222\r\n";
    for backend in backends() {
        let (listener, to) = upstream();
        // Both by themselves, and together.
        let server = serve(backend, &relay("127.0.0.1:0", &to, "proxy_protocol = true\n"));
        let listen = server.addresses[0].to_string();
        let mut client = server.connect();
        for part in [&HEADER[..10], &HEADER[10..], b"hello"] {
            client.write_all(part).unwrap();
        }
        assert_eq!(read(&mut accept(&listener), 5), b"hello", "{backend:?}");
        drop(client);
        let mut stranger = server.connect();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(is_turned_away(stranger), "{backend:?}");

        server.change(&relay(&listen, &to, "relay.proxy_protocol = true\n")).unwrap();
        // The upstream speaks first: it gets the header all the same.
        let client = server.connect();
        let mut inside = accept(&listener);
        let from = client.local_addr().unwrap().port();
        let port = listen.rsplit_once(':').unwrap().1;
        let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {from} {port}\r\n");
        assert_eq!(read(&mut inside, expected.len()), expected.as_bytes(), "{backend:?}");
        inside.write_all(b"welcome").unwrap();
        assert_eq!(read(&mut &client, 7), b"welcome");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut inside), b"");
        drop((client, inside));

        let both = "proxy_protocol = true\nrelay.proxy_protocol = \"v1\"\n\
                    [limits]\nconnections_per_client = 1\n";
        server.change(&relay(&listen, &to, both)).unwrap();
        let begin = |header: &[u8]| {
            let mut client = server.connect();
            client.write_all(header).unwrap();
            client.write_all(b"hello").unwrap();
            client
        };
        let client = begin(HEADER);
        let mut inside = accept(&listener);
        assert_eq!(read(&mut inside, HEADER.len() + 5), [HEADER, b"hello"].concat());
        // The header names the client that counts.
        assert!(is_turned_away(begin(HEADER)), "{backend:?}");
        let other = begin(b"PROXY TCP4 192.0.2.3 192.0.2.2 1111 2222\r\n");
        drop((client, other, inside, accept(&listener)));
        server.end();
    }
}

#[test]
fn a_socket_file_has_the_permissions_that_are_asked_for_and_is_kept_by_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("front");
    let back = folder.path().join("back");
    let listen = format!("unix:{}", path.display());
    for backend in backends() {
        let text = |to: &Address| relay(&listen, to, "mode = \"0620\"\n");
        let server = serve(backend, &text(&says(b'a')));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o620);
        assert_eq!(rest(&mut UnixStream::connect(&path).unwrap()), b"a", "{backend:?}");
        // To a Unix socket, which gets the header first.
        let upstream = std::os::unix::net::UnixListener::bind(&back).unwrap();
        limit(&upstream);
        let more = format!("{}relay.proxy_protocol = \"v1\"\n", text(&Address::Unix(back.clone())));
        server.change(&more).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        let mut inside = upstream.accept().unwrap().0;
        client.write_all(b"hello").unwrap();
        assert_eq!(read(&mut inside, 20), b"PROXY UNKNOWN\r\nhello", "{backend:?}");
        drop((client, inside));
        server.end();
        assert!(!path.exists());
        std::fs::remove_file(&back).unwrap();
    }
}

#[test]
fn removed_addresses_are_no_longer_listened_on() {
    let to = says(b'a');
    for backend in backends() {
        let server = serve(backend, &relay("127.0.0.1:0", &to, ""));
        let folder = tempfile::tempdir().unwrap();
        let other = format!("unix:{}/other", folder.path().display());
        server.change(&relay(&other, &to, "")).unwrap();
        wait(|| TcpStream::connect(server.addresses[0].to_string()).is_err());
        // Another listener can have the address, if no other program has it meanwhile.
        wait(|| TcpListener::bind(server.addresses[0].to_string()).is_ok());
        server.end();
    }
}
