//! Encrypted connections that outlive an upgrade or a crash of a server.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};

use crate::keep::crowd::{END, Publisher, Received, Subscriber, Wire, check, publish};
use crate::keep::succession::{Nursery, rounds};
use crate::stage::{Running, Server, Site, connect, get, noise, response, until};
use crate::superpoll;

/// Clients of one version and all of its suites.
struct Clients {
    at: SocketAddr,
    configs: Vec<Arc<ClientConfig>>,
    next: usize,
}

type Client = StreamOwned<ClientConnection, std::net::TcpStream>;

impl Clients {
    fn new(nursery: &Nursery, version: &'static SupportedProtocolVersion) -> Clients {
        let mut roots = RootCertStore::empty();
        let certificate = std::fs::read(nursery.site.path("cert.pem")).unwrap();
        roots.add(PemObject::from_pem_slice(&certificate).unwrap()).unwrap();
        let suites = ring::ALL_CIPHER_SUITES.iter().map(|suite| suite.suite());
        let is_meant = |suite: &CipherSuite| {
            let name = format!("{suite:?}");
            name.starts_with("TLS13") == (version == &TLS13) && !name.contains("RSA")
        };
        let config = |suite: CipherSuite| {
            let mut provider: CryptoProvider = ring::default_provider();
            provider.cipher_suites.retain(|one| one.suite() == suite);
            let built = ClientConfig::builder_with_provider(provider.into());
            let built = built.with_protocol_versions(&[version]).unwrap();
            Arc::new(built.with_root_certificates(roots.clone()).with_no_client_auth())
        };
        let configs: Vec<_> = suites.filter(is_meant).map(config).collect();
        assert_eq!(configs.len(), 3);
        let at = ([127, 0, 0, 1], nursery.tls.unwrap()).into();
        Clients { at, configs, next: 0 }
    }

    /// Connects with the next suite.
    fn connect(&mut self) -> Client {
        let config = self.configs[self.next % self.configs.len()].clone();
        self.next += 1;
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(config, name).unwrap(), connect(self.at))
    }

    fn subscriber(&mut self) -> Subscriber {
        let is_socket = self.next.is_multiple_of(2);
        let stream: Box<dyn Wire> = Box::new(self.connect());
        if is_socket { Subscriber::on(stream, "/news") } else { Subscriber::events_on(stream) }
    }

    /// A connection that has had an answer and waits for nothing.
    fn idle(&mut self) -> Client {
        let mut client = self.connect();
        assert!(get(&mut client, "/small").ends_with("0123456789"));
        client
    }
}

/// How many subscribers there are in the test of many rounds.
fn crowd() -> usize {
    let crowd = std::env::var("SUPERPOLL_KEEP_CROWD");
    crowd.ok().and_then(|crowd| crowd.parse().ok()).unwrap_or(24)
}

#[test]
fn encrypted_subscribers_go_on_through_many_upgrades_and_crashes() {
    let count = crowd();
    if superpoll::limits::nofile().1 < count as u64 + 1000 {
        return eprintln!("skipped: too few descriptors are allowed (ulimit -Hn)");
    }
    let nursery = Nursery::encrypted("");
    let mut server = nursery.server(&[]);
    let mut clients = Clients::new(&nursery, &TLS13);
    let mut subscribers: Vec<Subscriber> = (0..count).map(|_| clients.subscriber()).collect();
    let mut idle: Vec<Client> = (0..6).map(|_| clients.idle()).collect();
    let all = count + idle.len();
    nursery.until_held(all);
    let publisher = Publisher::start(nursery.at());
    let mut doubtful = Vec::new();
    for round in 0..2 * rounds() {
        let message = format!("round {round}");
        until("something is published", || publish(nursery.at(), &message));
        doubtful.push(message);
        nursery.until_held(all);
        let next = nursery.next(server, round % 2 == 0);
        next.says(&format!("took over {all} connections"));
        server = next;
    }
    until("something is published", || publish(nursery.at(), "after"));
    doubtful.push("after".to_owned());
    let (confirmed, more) = publisher.end();
    doubtful.extend(more);
    println!("{} messages confirmed, {count} subscribers", confirmed.len());
    check(&mut subscribers, &confirmed, &doubtful);
    for client in &mut idle {
        assert!(get(client, "/small").ends_with("0123456789"));
    }
    server.signal("TERM");
    assert!(server.ended().0.success());
}

/// Without messages: nothing is written with the keys of one server by another but the word that
/// they change, however many servers there were.
#[test]
fn idle_clients_and_long_polls_go_on_and_their_keys_change_after_a_crash() {
    let nursery = Nursery::encrypted("");
    let mut server = nursery.server(&[]);
    let mut clients = Clients::new(&nursery, &TLS13);
    let mut idle: Vec<Client> = (0..3).map(|_| clients.idle()).collect();
    let mut polls: Vec<Client> = (0..3).map(|_| clients.connect()).collect();
    for client in &mut polls {
        client.write_all(b"GET /news HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    }
    for round in 0..4 {
        nursery.until_held(6);
        server = nursery.next(server, round == 1);
        server.says("took over 6 connections");
    }
    assert!(publish(nursery.at(), "at last"));
    for client in &mut polls {
        let answer = response(client);
        assert!(answer.contains("\"data\":\"at last\""), "{answer}");
    }
    for client in idle.iter_mut().chain(&mut polls) {
        // The client may change its keys as well.
        client.conn.refresh_traffic_keys().unwrap();
        assert!(get(client, "/small").ends_with("0123456789"));
    }
    nursery.until_held(6);
    server = nursery.next(server, false);
    server.says("took over 6 connections");
    for client in idle.iter_mut().chain(&mut polls) {
        client.conn.refresh_traffic_keys().unwrap();
        client.conn.send_close_notify();
        client.flush().unwrap();
        // The server says that it ends as well.
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
    server.signal("TERM");
    assert!(server.ended().0.success());
}

/// TLS 1.2 cannot change keys, so its connections go on only if the server before has come to rest.
#[test]
fn connections_of_tls_1_2_go_on_after_an_upgrade_and_end_with_a_crash() {
    let nursery = Nursery::encrypted("");
    let server = nursery.server(&[]);
    let mut clients = Clients::new(&nursery, &TLS12);
    let mut subscribers: Vec<Subscriber> = (0..6).map(|_| clients.subscriber()).collect();
    let mut idle = clients.idle();
    nursery.until_held(7);
    let server = nursery.next(server, true);
    server.says("took over 7 connections");
    let mut hears = |message: &str| {
        assert!(publish(nursery.at(), message));
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.receive(), Some(Received::Message(message.to_owned())));
        }
    };
    hears("after an upgrade");
    hears("and again");
    assert!(get(&mut idle, "/small").ends_with("0123456789"));
    nursery.until_held(7);
    let server = nursery.next(server, false);
    server.says("took over 0 connections of another server; closed 7");
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.receive(), None);
    }
    // New ones come, and a server that has taken over after a crash can be taken over from.
    let mut subscriber = clients.subscriber();
    nursery.until_held(1);
    let server = nursery.next(server, true);
    server.says("took over 1 connections");
    assert!(publish(nursery.at(), "new"));
    assert_eq!(subscriber.receive(), Some(Received::Message("new".to_owned())));
    server.signal("TERM");
    assert!(server.ended().0.success());
}

/// Sessions are kept by clients, and each server has the secrets of those before it.
#[test]
fn sessions_are_resumed_by_the_next_server_and_after_a_reload() {
    for keeps in [true, false] {
        let nursery = Nursery::encrypted("");
        if !keeps {
            nursery.configure(crate::keep::succession::AT_REST_SOON);
        }
        let mut server = nursery.server(&[]);
        for version in [&TLS13, &TLS12] {
            let mut clients = Clients::new(&nursery, version);
            let mut how = || {
                // Each with the same suite, whose configuration has the session.
                clients.next = 0;
                let client = clients.idle();
                client.conn.handshake_kind().unwrap()
            };
            assert_eq!(how(), HandshakeKind::Full);
            assert_eq!(how(), HandshakeKind::Resumed);
            let reloads = |server: &Server| server.errors().matches("configuration").count();
            let before = reloads(&server);
            server.signal("HUP");
            until("the configuration is read again", || reloads(&server) > before);
            assert_eq!(how(), HandshakeKind::Resumed);
            for upgrades in [true, false] {
                server = nursery.next(server, upgrades);
                let expected = if keeps { HandshakeKind::Resumed } else { HandshakeKind::Full };
                assert_eq!(how(), expected, "{version:?} {upgrades}");
            }
        }
        server.signal("TERM");
        assert!(server.ended().0.success());
    }
}

/// How often a server is killed while it writes.
fn kills() -> usize {
    let kills = std::env::var("SUPERPOLL_KEEP_KILLS");
    kills.ok().and_then(|kills| kills.parse().ok()).unwrap_or(4)
}

/// The messages of one connection of a subscriber.
struct Heard {
    messages: Vec<String>,
    /// The connection ended before the last message.
    has_ended: bool,
}

/// Listens until the last message, on a further connection after each end.
fn listen(clients: &Mutex<Clients>, first: Subscriber) -> Vec<Heard> {
    let (mut all, mut subscriber) = (Vec::new(), first);
    loop {
        let mut messages = Vec::new();
        let has_ended = loop {
            match subscriber.receive() {
                Some(Received::Message(message)) if message == END => break false,
                Some(Received::Message(message)) => messages.push(message),
                Some(Received::SignOfLife) => {}
                None => break true,
            }
        };
        all.push(Heard { messages, has_ended });
        if !has_ended {
            return all;
        }
        subscriber = clients.lock().unwrap().subscriber();
    }
}

/// A server is killed at random moments of a burst of messages that are too many for the sockets of
/// its subscribers, so that it is often in the middle of a record. Every byte that a client gets is
/// part of a record that it can open, or its connection ends; and on a connection each message
/// comes once, in order and without a gap.
#[test]
fn a_server_that_is_killed_while_it_writes_leaves_no_wrong_byte() {
    const SUBSCRIBERS: usize = 48;
    const BURST: usize = 24;
    let nursery = Nursery::encrypted("");
    let first = nursery.server(&[]);
    let clients = Mutex::new(Clients::new(&nursery, &TLS13));
    let mut survived = 0;
    let (mut order, mut doubtful) = (Vec::new(), HashSet::new());
    let (heard, server) = std::thread::scope(|scope| {
        let mut server = first;
        let all: Vec<_> = (0..SUBSCRIBERS)
            .map(|_| {
                let subscriber = clients.lock().unwrap().subscriber();
                let clients = &clients;
                scope.spawn(move || listen(clients, subscriber))
            })
            .collect();
        let (noise, at) = (noise(kills()), nursery.at());
        for (round, random) in noise.iter().enumerate() {
            nursery.until_held(SUBSCRIBERS);
            let burst = scope.spawn(move || {
                let messages = (0..BURST)
                    .map(|number| format!("{round} {number} {}", "x".repeat(8_000)))
                    .map(|message| (publish(at, &message), message));
                messages.collect::<Vec<_>>()
            });
            std::thread::sleep(Duration::from_micros(u64::from(*random) * 400));
            server.signal("KILL");
            drop(server.ended());
            server = nursery.server(&[]);
            for (is_confirmed, message) in burst.join().unwrap() {
                if !is_confirmed {
                    doubtful.insert(message.clone());
                }
                order.push(message);
            }
            server.says("took over ");
            let errors = server.errors();
            let kept = errors.split("took over ").nth(1).unwrap();
            survived += kept.split(' ').next().unwrap().parse::<usize>().unwrap();
        }
        until("the last message is published", || publish(nursery.at(), END));
        let heard: Vec<Vec<Heard>> = all.into_iter().map(|one| one.join().unwrap()).collect();
        (heard, server)
    });
    let mut ended = 0;
    for one in heard.iter().flatten() {
        ended += usize::from(one.has_ended);
        let Some(first) = one.messages.first() else { continue };
        let start = order.iter().position(|message| message == first).unwrap();
        // Messages whose publication failed came to all or to nobody.
        let mut expected = order[start..].iter();
        for message in &one.messages {
            let is_next =
                expected.by_ref().find(|next| *next == message || !doubtful.contains(*next));
            assert_eq!(is_next, Some(message));
        }
        let rest: Vec<_> = expected.filter(|message| !doubtful.contains(*message)).collect();
        assert!(one.has_ended || rest.is_empty(), "{rest:?} are missing");
    }
    let times = kills() * SUBSCRIBERS;
    println!("{times} times a connection's server was killed: {survived} went on, {ended} ended");
    assert!(survived > times / 4, "{survived} of {times} connections went on");
    server.signal("TERM");
    assert!(server.ended().0.success());
}

/// Without the setting, keys stay in the server.
#[test]
fn keys_are_left_only_if_the_configuration_says_so() {
    let nursery = Nursery::encrypted("");
    nursery.configure(crate::keep::succession::AT_REST_SOON);
    let server = nursery.server(&[]);
    let mut clients = Clients::new(&nursery, &TLS13);
    let (mut encrypted, mut plain) = (clients.idle(), connect(nursery.at()));
    get(&mut plain, "/small");
    nursery.until_held(1);
    server.signal("KILL");
    drop(server.ended());
    let server = nursery.server(&[]);
    server.says("took over 1 connections");
    assert!(get(&mut plain, "/small").ends_with("0123456789"));
    assert!(encrypted.read(&mut [0]).is_err());
    server.signal("TERM");
    assert!(server.ended().0.success());
}

/// Returns the owner of a file of a process in `/proc`: the superuser if its memory is hidden.
fn owner(process: &std::process::Child) -> u32 {
    std::fs::metadata(format!("/proc/{}/environ", process.id())).unwrap().uid()
}

/// As an unprivileged user, who may otherwise trace the own processes.
#[test]
fn the_memory_of_processes_with_keys_is_hidden() {
    const NOBODY: u32 = 65_534;
    let own = std::fs::metadata("/proc/self").unwrap().uid();
    let user = if own == 0 { NOBODY } else { own };
    let site = Site::new();
    site.certificate();
    for name in ["", "cert.pem", "cert.key", "www"] {
        if own == 0 {
            std::os::unix::fs::chown(site.path(name), Some(user), Some(user)).unwrap();
        }
    }
    for is_hidden in [true, false] {
        for tls in [true, false] {
            let certificate = "tls = { certificate = \"cert.pem\", key = \"cert.key\" }";
            let certificate = if tls { certificate } else { "" };
            let text = format!(
                "[[listeners]]\naddress = \"127.0.0.1:0\"\n{certificate}\n\
                 [[hosts]]\n[[hosts.routes]]\nfiles = {{ root = \"www\" }}\n"
            );
            let (config, socket) = (site.write("server.toml", &text), site.path("keeper"));
            let dumpable: &[&str] = if is_hidden { &[] } else { &["--dumpable"] };
            let mut keep = superpoll();
            keep.arg("keep").arg("--listen").arg(&socket).args(dumpable);
            let mut serve = superpoll();
            serve.args(["serve", "--stats", "off", "-c"]).arg(config).args(dumpable);
            for command in [&mut keep, &mut serve] {
                command.stdout(Stdio::null());
                if own == 0 {
                    command.uid(user).gid(user);
                }
            }
            let keeper = Running(keep.spawn().unwrap());
            until("the keeper listens", || socket.exists());
            assert_eq!(owner(&keeper.0), if is_hidden { 0 } else { user });
            let server = Server::of(serve, 1);
            assert_eq!(owner(server.child()), if is_hidden && tls { 0 } else { user });
            server.finish();
            drop(keeper);
            let _ = std::fs::remove_file(&socket);
        }
    }
}
